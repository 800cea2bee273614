// Package rules ties the rules of correctness to the tests that guard them.
//
// Each rule of the design has at least one test that fails when the rule is
// broken; List names them. Mutations are edits that break a rule on purpose;
// the command breakrules applies each to a copy of the tree and shows that the
// named test then fails, and that it passes without.
//
// What lives here is the list, the edits, and those guarding tests that need a
// whole job. Tests that need less live in the packages they are about.
package rules
