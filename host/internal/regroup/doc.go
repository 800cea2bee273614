// Package regroup decides about a communicator that is made of another one's ranks: which ranks it has, its label,
// whose numbers its errors have, and whether the survivors of a failure try again.
//
// It makes no communicators, and no collective calls: it knows what the ranks have said, not how it reached them.
package regroup
