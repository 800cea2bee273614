// Package regroup is what the ranks of a communicator work out when another one is made of them: which ranks it has,
// what it is called, whose numbers its errors have, and whether the survivors of a failure try again.
//
// It makes no communicators, and no collective calls: it knows what the ranks have said, not how it reached them.
package regroup
