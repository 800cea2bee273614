// Package survey is what the ranks of a communicator find out about each other when it is made: who they are, where
// they run and what they load, whether they can read each other's memory, whether NVLink joins their GPUs, and whether
// what one GPU writes into another's memory arrives there.
//
// What lives here: questions whose answers all ranks must agree on before anything relies on them. What may not: acting
// on the answers, opening transports, and anything that runs later than Init. It does not import package host.
package survey
