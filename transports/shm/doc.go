// Package shm moves bytes between ranks of one host through memory that they
// share.
//
// An endpoint owns two memfds: one that the plans of this package lay out (see
// layout.go), one of role scratch for the host's generic algorithms. The
// package returns plans; it maps nothing, runs nothing and starts no
// goroutine. One file holds one collective, and four more hold what they are
// written in: exchange.go (all ranks publish, all ranks read), blocks.go (the
// same, block after block, for large messages), ring.go (one writer, credits)
// and offer.go (bytes are copied out of the writer's memory, where the ranks can
// read each other's). They use writer.go (a builder of plans that knows the layout),
// length.go (messages that say how long they are) and memfd.go. One-sided operations are not here: the host's generic
// algorithms serve them over buffers that Allocate makes.
//
// How the rules of correctness are kept:
//
//   - Always signal, always wait: every plan does at least one round with every
//     peer it would talk to, also when there are no bytes to move.
//   - Counters only grow and live in the region: a plan loads its counter when it
//     starts and stores it when it ends; no counter is a constant or a slot.
//   - Slots are reused only when their readers are done with them. Each of
//     exchange.go, blocks.go, ring.go and offer.go has a paragraph that says how
//     it knows; each protocol class has slots and counters of its own.
package shm
