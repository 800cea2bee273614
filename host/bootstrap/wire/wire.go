// Package wire encodes and decodes the small messages that Shunt's processes
// send each other: little-endian integers and length-prefixed strings.
//
// A Reader never panics and never allocates more than it was given bytes: the
// first violation of a bound is kept, everything after it reads as zero, and
// Err reports it. What a message means is its own package's business.
package wire

import (
	"encoding/binary"
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// MaxMessage is the longest message of an error, in bytes.
const MaxMessage = 4096

// Writer appends values to B.
type Writer struct{ B []byte }

// U8 appends one byte.
func (w *Writer) U8(v uint8) { w.B = append(w.B, v) }

// Bool appends one byte, 0 or 1.
func (w *Writer) Bool(v bool) {
	if v {
		w.U8(1)
	} else {
		w.U8(0)
	}
}

// U16 appends two bytes.
func (w *Writer) U16(v uint16) { w.B = binary.LittleEndian.AppendUint16(w.B, v) }

// U32 appends four bytes.
func (w *Writer) U32(v uint32) { w.B = binary.LittleEndian.AppendUint32(w.B, v) }

// U64 appends eight bytes.
func (w *Writer) U64(v uint64) { w.B = binary.LittleEndian.AppendUint64(w.B, v) }

// I64 appends eight bytes.
func (w *Writer) I64(v int64) { w.U64(uint64(v)) }

// String appends a length of two bytes and at most 65535 bytes of s.
func (w *Writer) String(s string) {
	if len(s) > math.MaxUint16 {
		s = s[:math.MaxUint16]
	}
	w.U16(uint16(len(s)))
	w.B = append(w.B, s...)
}

// Bytes appends a length of four bytes and b.
func (w *Writer) Bytes(b []byte) {
	w.U32(uint32(len(b)))
	w.B = append(w.B, b...)
}

// Error appends an error or its absence; the message is cut at MaxMessage.
func (w *Writer) Error(e *plugin.Error) {
	if e == nil {
		w.U32(uint32(plugin.OK))
		return
	}
	message := e.Message
	if len(message) > MaxMessage {
		message = message[:MaxMessage]
	}
	rank := e.Rank
	if rank < -1 || rank >= plugin.MaxWorld {
		rank = -1
	}
	w.U32(uint32(plugin.CodeOf(e))) // what transports return may be in no table, which readers refuse
	w.U32(uint32(int32(rank)))
	w.String(message)
}

// Reader takes values from the front of a message.
type Reader struct {
	b   []byte
	err error
}

// NewReader reads b, which it does not copy.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Fail records a violation unless there is one already.
func (r *Reader) Fail(format string, args ...any) {
	if r.err == nil {
		r.err = plugin.Errorf(plugin.Protocol, format, args...)
	}
	r.b = nil
}

// Err returns the first violation, or nil.
func (r *Reader) Err() error { return r.err }

// Len returns the number of bytes left.
func (r *Reader) Len() int { return len(r.b) }

// End records a violation if bytes are left, and returns Err.
func (r *Reader) End() error {
	if len(r.b) != 0 {
		r.Fail("%d bytes too many in a message", len(r.b))
	}
	return r.err
}

func (r *Reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.Fail("a message ends %d bytes early", n-len(r.b))
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// U8 takes one byte.
func (r *Reader) U8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// Bool takes one byte that must be 0 or 1.
func (r *Reader) Bool() bool {
	v := r.U8()
	if v > 1 {
		r.Fail("%d is not a boolean", v)
	}
	return v == 1
}

// U16 takes two bytes.
func (r *Reader) U16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 takes four bytes.
func (r *Reader) U32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 takes eight bytes.
func (r *Reader) U64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// I64 takes eight bytes.
func (r *Reader) I64() int64 { return int64(r.U64()) }

// Fixed takes exactly len(dst) bytes.
func (r *Reader) Fixed(dst []byte) { copy(dst, r.take(len(dst))) }

// String takes a string of at most limit bytes.
func (r *Reader) String(limit int) string {
	n := int(r.U16())
	if n > limit {
		r.Fail("a string of %d bytes, at most %d", n, limit)
		return ""
	}
	return string(r.take(n))
}

// Bytes takes at most limit bytes. They alias the message.
func (r *Reader) Bytes(limit int) []byte {
	n := r.U32()
	if int64(n) > int64(limit) {
		r.Fail("%d bytes, at most %d", n, limit)
		return nil
	}
	return r.take(int(n))
}

// Count takes a number of two bytes, at most limit, of items that take at
// least size bytes each; so what is allocated for them is bounded by the message.
func (r *Reader) Count(limit, size int) int {
	n := int(r.U16())
	if n > limit || n*size > len(r.b) {
		r.Fail("%d items, at most %d in %d bytes", n, limit, len(r.b))
		return 0
	}
	return n
}

// Rest takes everything that is left. It aliases the message.
func (r *Reader) Rest() []byte { return r.take(len(r.b)) }

// Error takes an error, nil if none was sent.
func (r *Reader) Error() *plugin.Error {
	code := plugin.Code(r.U32())
	if code == plugin.OK || r.err != nil {
		return nil
	}
	if code < 0 || code > plugin.Internal {
		r.Fail("unknown error code %d", int32(code))
		return nil
	}
	rank := int(int32(r.U32()))
	if rank < -1 || rank >= plugin.MaxWorld {
		r.Fail("an error of rank %d", rank)
		return nil
	}
	message := r.String(MaxMessage)
	if r.err != nil {
		return nil
	}
	return &plugin.Error{Code: code, Rank: rank, Message: message}
}
