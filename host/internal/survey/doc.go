// Package survey gathers facts about the ranks when a communicator is made: where they run and what they load, whether
// they can read each other's memory, whether NVLink joins their GPUs, and whether what one GPU writes into another's
// memory arrives there.
//
// What lives here: facts that all ranks must agree on before anything relies on them, and the world that a transport
// serves. What may not: acting on them, opening transports, and anything that runs later than Init. It does not import
// package host.
package survey
