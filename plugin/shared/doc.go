// Package shared is the carrier of transports that are shared objects with the
// C ABI of shunt_transport.h. Open loads one into this process and gives it to
// the host as a plain transport.
//
// The results of a shared object are copied out of its memory and checked, but it
// runs in the host's address space: a crash takes the host along. Transports that are
// not trusted that far belong in package process. A shared object is never unloaded.
//
// Go authors make such a file with package shared/export. Loading one puts a
// second Go runtime into the process; sigurg.c keeps the first one's
// preemption alive. Nothing here maps memory or runs plans.
package shared
