// Package badinput is the table of bad input and of the errors that Shunt returns for it.
//
// table.json is read by the tests of every language. Each entry is one call,
// made by every rank of a world of 2 with nothing else in flight; "code" is
// the error's code and "message" a part of its text. %r stands for the rank.
// After every entry the communicator must still work, unless the entry is one
// of "mismatches", whose ranks make different calls and whose communicator is
// aborted.
//
// Memory is given by a word: "ok" is enough memory, aligned to 64 bytes;
// "null" is a null pointer; "odd" is one byte above aligned memory; "inside"
// is memory that overlaps the other buffer by one element. Enumerations are
// given by name, or by number where no name exists. Fields that are absent
// are zero; memory that is absent is "ok".
//
// What lives here is the table and its Go runner. The functions that other
// packages test themselves (specs, ids, options, tuning texts) are not here.
package badinput
