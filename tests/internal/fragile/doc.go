// Package fragile is a transport of plans alone, small enough to be read at once,
// that can be broken on purpose: Mutants are the ways in which a plan breaks the
// rules of correctness. It keeps all of them unless a mutant is chosen.
//
// Its test shows that the short run of the conformance suite passes it whole, and
// fails every mutant, whatever the seed.
//
// What moves bytes is in three files, one a way to share memory: exchange.go (all ranks publish, all ranks read, two
// slots in turn), channel.go (one writer and its readers, slots under credits) and offer.go (bytes are copied from
// where they are). Memory is that of shm, whose plans it does not use.
package fragile
