package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error makes a Code usable with errors.Is: errors.Is(err, plugin.Timeout).
func (v Code) Error() string { return v.String() }

// Error is the form in which errors cross every boundary of Shunt: a code and one sentence that
// names the rank, the peer, the operation and the cause. Rank is where the
// failure began, or -1.
type Error struct {
	Code    Code
	Rank    int
	Message string // says everything; Cause is not repeated behind it
	Cause   error  // what errors.Is and errors.As see besides Code; may be nil
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap makes both the code and the cause visible to errors.Is.
func (e *Error) Unwrap() []error {
	if e.Cause != nil {
		return []error{e.Code, e.Cause}
	}
	return []error{e.Code}
}

// Errorf makes an Error that began on no particular rank. A %w operand becomes
// part of the message and stays visible to errors.Is.
func Errorf(code Code, format string, args ...any) error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Code: code, Rank: -1, Message: wrapped.Error(), Cause: errors.Unwrap(wrapped)}
}

// CodeOf returns the code of the first Error in err's tree and OK for nil. Of errors without a code, that of a context
// whose deadline has passed is Timeout, that of one that was canceled Aborted, and every other Internal, as one whose
// code is none of the table.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code.known()
	}
	var c Code
	if errors.As(err, &c) {
		return c.known()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Aborted
	}
	return Internal
}

// known returns the code itself, or Internal for one outside the table; an error is
// never OK.
func (v Code) known() Code {
	if v <= OK || v > Internal {
		return Internal
	}
	return v
}

// NativeError returns the failure of a transport's own code, what, with the status that it returned, the rank that it
// named, or -1, and its words, of which unprintable characters become question marks.
func NativeError(what string, status Code, rank int, said string) *Error {
	e := &Error{Code: status.known(), Rank: rank, Message: fmt.Sprintf("the transport's %s failed: %s", what, status)}
	if e.Code != status {
		e.Message = fmt.Sprintf("the transport's %s returned status %d, which is unknown", what, int32(status))
	}
	if said != "" {
		e.Message += ": " + Printable(said)
	}
	return e
}

// Printable returns a text from elsewhere, fit for a message.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
}

func nameOf[T ~int32 | ~uint16 | ~uint32 | ~uint64](names map[T]string, v T) string {
	if name, ok := names[v]; ok {
		return name
	}
	return "unknown(" + strconv.FormatInt(int64(v), 10) + ")"
}

func parse[T ~uint32](what string, names map[T]string, name string) (T, error) {
	for v, n := range names {
		if n == name {
			return v, nil
		}
	}
	known := make([]string, 0, len(names))
	for _, v := range slices.Sorted(maps.Keys(names)) {
		known = append(known, names[v])
	}
	return 0, Errorf(InvalidArgument, "unknown %s %q; known are %s", what, name, strings.Join(known, ", "))
}

// ParseDType turns a dtype's name into its value. An unknown name is
// InvalidArgument, with all known ones, here and below.
func ParseDType(name string) (DType, error) { return parse("dtype", dTypeNames, name) }

// ParseOp turns a reduction op's name into its value.
func ParseOp(name string) (Op, error) { return parse("reduction op", opNames, name) }

// ParseCollective turns a collective's name into its value.
func ParseCollective(name string) (Collective, error) {
	return parse("collective", collectiveNames, name)
}

// String names the bits that are set, joined by "|"; "none" for no bit.
func (v Feature) String() string {
	var names []string
	for _, f := range Features() {
		if v&f != 0 {
			names = append(names, featureNames[f])
			v &^= f
		}
	}
	if v != 0 {
		names = append(names, "unknown("+strconv.FormatUint(uint64(v), 10)+")")
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "|")
}

// Bytes returns the size of one element, or 0 for a value outside the table.
func (v DType) Bytes() int64 {
	if int(v) < len(dTypeBytes) {
		return dTypeBytes[v]
	}
	return 0
}

// Valid reports whether v is in the table.
func (v DType) Valid() bool { return int(v) < len(dTypeBytes) }

// Valid reports whether v is in the table.
func (v Op) Valid() bool { return v <= OpPremulSum }

// Valid reports whether v is in the table.
func (v Collective) Valid() bool { return v <= Wait }

// Rooted reports whether the collective takes a root.
func (v Collective) Rooted() bool {
	switch v {
	case Reduce, Broadcast, Gather, GatherV, Scatter, ScatterV:
		return true
	}
	return false
}

// Reduces reports whether the collective takes a reduction op.
func (v Collective) Reduces() bool {
	switch v {
	case AllReduce, Reduce, ReduceScatter, ReduceScatterV:
		return true
	}
	return false
}

// Varying reports whether the collective takes a count for each rank.
func (v Collective) Varying() bool {
	switch v {
	case AllGatherV, ReduceScatterV, AllToAllV, GatherV, ScatterV:
		return true
	}
	return false
}

// Pairwise reports whether ranks know the lengths of their own messages only, so that
// the two ends of each must be compared.
func (v Collective) Pairwise() bool {
	switch v {
	case Send, Recv, AllToAllV, GatherV, ScatterV:
		return true
	}
	return false
}

// PointToPoint reports whether the operation involves one peer only, so that
// ranks may issue different sequences of them.
func (v Collective) PointToPoint() bool {
	switch v {
	case Send, Recv, Put, Get, Signal, Wait:
		return true
	}
	return false
}
