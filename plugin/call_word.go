package plugin

import "fmt"

// CallWord is what kernels compare of a call in FaultCall, from the top: the collective in 5 bits, the op in 4, the
// dtype in 4, the root in 3 where there is one, 4 bits of the transport's own, and the bytes in 44. A kernel that gets
// a peer's word in a short flag may know fewer of the bytes.
type CallWord uint64

// NewCallWord returns the word of a call whose message has so many bytes.
func NewCallWord(c Collective, op Op, d DType, root int, bytes int64) CallWord {
	if !c.Rooted() {
		root = 0
	}
	if !c.Reduces() {
		op, d = 0, 0
	}
	return CallWord(c)<<59 | CallWord(op&15)<<55 | CallWord(d&15)<<51 | CallWord(root&7)<<48 | CallWord(bytes)&(1<<44-1)
}

// What returns the collective, op, dtype and root, which has the lowest 3 of these bits.
func (w CallWord) What() uint16 { return uint16(w >> 48) }

// String returns the call in words.
func (w CallWord) String() string {
	c, bytes := Collective(w>>59), uint64(w&(1<<44-1))
	text := c.String()
	if c.Reduces() {
		text += fmt.Sprintf(" (%s, %s)", Op(w>>55&15), DType(w>>51&15))
	}
	if c.Rooted() {
		text += fmt.Sprintf(" with root %d", w>>48&7)
	}
	if bytes != 0 {
		text += fmt.Sprintf(" of %d bytes", bytes)
	}
	return text
}
