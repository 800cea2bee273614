package stamp

import "unsafe"

// Available reports whether this processor has the rest of this package.
const Available = true

// Write enters an operation that has ended as soon as it began, in the sx_record
// and, unless they are null, in the sx_flight and the sx_call of engine.h. values are
// the operation's {seq, what, how, count, number, mark}. It returns the processor's counter, which it
// enters as the beginning and the end. So many lines from next on
// are fetched to be written.
//
//go:noescape
func Write(record, flight, call, values, next unsafe.Pointer, lines uint64) uint64
