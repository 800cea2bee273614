// Package algorithm writes plans of every collective for any transport whose
// regions all peers can map, however little else it can do. They need only
// copies and reductions into a peer's scratch, reads of the own scratch,
// signal and wait; nothing is ever read from a peer but by get. So a transport
// without plans of its own is complete, and one with some has a fallback.
//
// Messages go through channels (channel.go), one for each ordered pair of
// ranks and protocol class, whose slots lie in the receiver's scratch. Everything
// is said in messages: a rank signals and waits on every peer it would talk to,
// also when there are no bytes to move; counters live in the scratch and only
// grow; slots are reused under credits. Reductions read the contributions of
// all ranks at once and in rank order where the result is made, so every rank
// gets the same bits and nothing is rounded on the way.
//
// One-sided operations work on windows: regions that a user asked for, with a
// header that WindowBytes makes room for (window.go).
//
// Nothing here runs a plan, allocates memory or knows a transport.
package algorithm
