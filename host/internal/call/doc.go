// Package call turns the arguments of an operation into a Call: checked bytes, which a plan can run on, or an error
// that names the argument and what was expected of it.
//
// What lives here: the rules for arguments and for sends in place, counts on the host and on the device, the layout of
// blocks, the signature by which plans are cached, the identity by which ranks notice that they call different
// collectives, and the comparison of counts between ranks. All of it is pure: a function of the rank, the world and the
// arguments.
//
// What may not live here: communicators, peers, plans and clocks. Nothing here touches the caller's memory, allocates
// on the path of a good call, or imports package host.
package call
