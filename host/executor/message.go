package executor

/*
#include "engine.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// The two ends of a message each say how long it is, and only the plans of some
// transports compare. So each rank keeps note of its messages behind its control
// page: of the last ones to and from every other rank, by their number among those of
// the pair. A note is one word, written before the message begins in lines that
// no other rank touches, so that it costs next to nothing; a rank whose message does
// not come, or may be another one, reads both notes. A sender is never further ahead
// of its receiver than there are notes, unless its transport keeps more messages than
// that, as UCX does.

// keptMessages is the number of notes for a pair, direction and kind.
const keptMessages = C.SX_MESSAGES

// Kind is a sequence of messages of a pair that has numbers of its own.
type Kind int

const (
	// Single is a send and its recv.
	Single Kind = iota
	// Block is a block of a collective whose ranks have counts of their own.
	Block
	kinds
)

// MessageBytes returns the size of the part of a control page in which a rank of a world of
// the given size keeps note of its messages. Without that nothing is noted.
func MessageBytes(world int) int64 { return int64(world) * int64(unsafe.Sizeof(C.sx_messages{})) }

// Message is a note: how long a message is, and of what elements.
type Message uint64

// The parts of a note, from the lowest bit on. The first says which message of those
// that share a word it is, so that the note of one is not taken for that of another. A sender
// may be as far ahead as its transport has memory for what was not received: 2^23 messages take
// more than a gigabyte of it. 2^41 bytes are more than a message has.
const (
	messageRoundBits = 17
	messageValid     = 1 << messageRoundBits
	messageDType     = messageRoundBits + 1
	messageDTypeBits = 5
	messageLength    = messageDType + messageDTypeBits
	maxMessage       = 1<<(64-messageLength) - 1
	messageWhich     = messageValid | (messageValid - 1)
)

// MessageOf returns the note of a message. Lengths that no memory has are all one.
func MessageOf(bytes int64, dtype plugin.DType) Message {
	return Message(uint64(min(bytes, maxMessage))<<messageLength |
		uint64(dtype)&(1<<messageDTypeBits-1)<<messageDType | messageValid)
}

// Bytes returns the length.
func (m Message) Bytes() int64 { return int64(m >> messageLength) }

// DType returns the element type that the sender stated. It may be any value.
func (m Message) DType() plugin.DType {
	return plugin.DType(m >> messageDType & (1<<messageDTypeBits - 1))
}

// numbered returns the note of a message that has that number in its pair.
func (m Message) numbered(number uint64) uint64 {
	return uint64(m) | number/keptMessages%(1<<messageRoundBits)
}

// Messages are the messages of this rank to one other, or from it, for the
// goroutine that runs the engine.
type Messages struct {
	words     unsafe.Pointer // keptMessages of them; or null
	begun     uint64
	uncounted Message // in every note: messageUncounted or 0
}

// messageUncounted, in place of a dtype, says that a rank's messages have no numbers: graphs repeat some of them.
const messageUncounted Message = (1<<messageDTypeBits - 1) << messageDType

// Enqueued notes that another message was put into a stream, whose kernels compare its length. captured says that a
// graph will repeat it; from then on peers conclude nothing from numbers.
func (m *Messages) Enqueued(captured bool) {
	if captured {
		m.uncounted = messageUncounted
	}
	m.Note(MessageOf(0, 0) | m.uncounted)
	m.begun++
}

// Note says of the message that comes next how long it is. It may be said again
// until Begun.
func (m *Messages) Note(message Message) {
	if m.words != nil {
		// Plain: the first signal of the operation that follows releases it.
		*(*uint64)(unsafe.Add(m.words, m.begun%keptMessages*8)) = message.numbered(m.begun)
	}
}

// Note describes a message, and where its description is stored.
type Note struct {
	word  *C.uint64_t // nil: nowhere
	value uint64
}

// Take counts the next message, for a launch that notes it when it begins.
func (m *Messages) Take(message Message) Note {
	note := Note{value: message.numbered(m.begun)}
	if m.words != nil {
		note.word = (*C.uint64_t)(unsafe.Add(m.words, m.begun%keptMessages*8))
	}
	m.begun++
	return note
}

// Begun counts the message that was noted.
func (m *Messages) Begun() { m.begun++ }

// Count returns the number of messages so far, which numbers the next one.
func (m *Messages) Count() uint64 { return m.begun }

// Sent returns this rank's messages to a peer. They stay the engine's.
func (e *Engine) Sent(kind Kind, peer int) *Messages { return &e.messages[peer][kind][0] }

// Received returns those from it, likewise.
func (e *Engine) Received(kind Kind, peer int) *Messages { return &e.messages[peer][kind][1] }

// noted returns a rank's notes of its messages with a peer, or nil.
func (e *Engine) noted(rank, peer int) *C.sx_messages {
	page := e.controls[rank]
	if page.Base == nil || page.Bytes < C.SX_CONTROL_BYTES+MessageBytes(peer+1) {
		return nil
	}
	return (*C.sx_messages)(unsafe.Add(page.Base, C.SX_CONTROL_BYTES+uintptr(peer)*unsafe.Sizeof(C.sx_messages{})))
}

// noteMessages looks up where this rank keeps its notes. mu is held.
func (e *Engine) noteMessages() {
	for peer := range e.world {
		n := e.noted(e.rank, peer)
		for kind := range kinds {
			for direction := range 2 {
				words := &e.messages[peer][kind][direction].words
				if *words = nil; n != nil {
					*words = unsafe.Add(unsafe.Pointer(n), noteOffset(kind, direction))
				}
			}
		}
	}
}

// noteOffset returns the offset of the notes of a kind, sent or received, in an sx_messages.
func noteOffset(kind Kind, direction int) uintptr {
	return (uintptr(kind)*2 + uintptr(direction)) * keptMessages * 8
}

// Contradiction is a message of which the two ends say different lengths.
type Contradiction struct {
	Kind             Kind
	Sender, Receiver int
	Sent, Expected   Message
}

// Contradiction looks for one among the latest messages between this rank and a
// peer that both have begun. The peer's part comes from memory that the peer
// writes. It may be called from any goroutine.
func (e *Engine) Contradiction(peer int) (Contradiction, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if peer < 0 || peer >= e.world || e.closed {
		return Contradiction{}, false
	}
	own, theirs := e.noted(e.rank, peer), e.noted(peer, e.rank)
	if own == nil || theirs == nil {
		return Contradiction{}, false
	}
	at := func(n *C.sx_messages, offset uintptr, i uintptr) Message {
		return Message(atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(n), offset+8*i))))
	}
	for kind := range kinds {
		sent, received := noteOffset(kind, 0), noteOffset(kind, 1)
		for i := range uintptr(keptMessages) {
			if expected := at(own, received, i); expected != 0 {
				if sent := at(theirs, sent, i); contradict(sent, expected) {
					return Contradiction{Kind: kind, Sender: peer, Receiver: e.rank, Sent: sent, Expected: expected}, true
				}
			}
			if sent := at(own, sent, i); sent != 0 {
				if expected := at(theirs, received, i); contradict(sent, expected) {
					return Contradiction{Kind: kind, Sender: e.rank, Receiver: peer, Sent: sent, Expected: expected}, true
				}
			}
		}
	}
	return Contradiction{}, false
}

// contradict says whether two notes from the same word are of one message, and
// differ about its length.
func contradict(a, b Message) bool {
	return a&messageValid != 0 && a&messageWhich == b&messageWhich && a.Bytes() != b.Bytes()
}

// Unsent reports whether this rank has begun to receive more messages of a peer than that has begun to send. It reads
// what both have noted, may be called from any goroutine, and is false where graphs repeat messages. A peer that
// may yet send more is not told apart from one that will not.
func (e *Engine) Unsent(peer int) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if peer < 0 || peer >= e.world || peer == e.rank || e.closed {
		return false
	}
	own, theirs := e.noted(e.rank, peer), e.noted(peer, e.rank)
	if own == nil || theirs == nil {
		return false
	}
	received, counted := latest(unsafe.Pointer(&own.received))
	sent, countedThere := latest(unsafe.Pointer(&theirs.sent))
	// Numbers wrap; a sender is never so far ahead of what was received.
	return counted && countedThere && int64((received-sent)<<(64-numberBits)) > 0
}

// numberBits is the number of bits of a message's number that a note and its place hold.
const numberBits = messageRoundBits + 6

var _ = [1]struct{}{}[keptMessages-1<<6] // there are so many places

// latest returns how many messages the notes of a pair and direction tell of, modulo 1 << numberBits; counted is false
// if they have no numbers.
func latest(words unsafe.Pointer) (count uint64, counted bool) {
	for i := range uint64(keptMessages) {
		m := Message(atomic.LoadUint64((*uint64)(unsafe.Add(words, 8*i))))
		if m&messageValid == 0 {
			continue
		}
		if m&messageUncounted == messageUncounted {
			return 0, false
		}
		// One more than its number; the words hold numbers that lie close together.
		n := (uint64(m)&(1<<messageRoundBits-1)*keptMessages + i + 1)
		if count == 0 || int64((n-count)<<(64-numberBits)) > 0 {
			count = n
		}
	}
	return count, true
}

// SentTo returns a peer's description of its message of that number to this rank;
// false if the peer has not begun it, has overwritten it, or keeps no notes.
func (e *Engine) SentTo(peer int, number uint64) (Message, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if peer < 0 || peer >= e.world || e.closed {
		return 0, false
	}
	theirs := e.noted(peer, e.rank)
	if theirs == nil {
		return 0, false
	}
	word := unsafe.Add(unsafe.Pointer(&theirs.sent), number%keptMessages*8)
	m := Message(atomic.LoadUint64((*uint64)(word)))
	return m, uint64(m)&messageWhich == Message(messageValid).numbered(number)
}
