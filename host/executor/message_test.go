package executor

import (
	"math"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// noting makes a world whose control pages have room for notes.
func noting(t testing.TB, n int) *world {
	t.Helper()
	w := newWorld(t, n, 4096)
	bytes := ControlBytes + int(MessageBytes(n))
	for rank := range n {
		fd := memfd(t, bytes)
		for _, e := range w.engines {
			must(t, e.SetControl(rank, memory(mapped(t, fd, bytes))))
		}
	}
	return w
}

func send(e *Engine, peer int, bytes int64, dtype plugin.DType) {
	e.Sent(Single, peer).Note(MessageOf(bytes, dtype))
	e.Sent(Single, peer).Begun()
}

func receive(e *Engine, peer int, bytes int64, dtype plugin.DType) {
	e.Received(Single, peer).Note(MessageOf(bytes, dtype))
	e.Received(Single, peer).Begun()
}

func TestContradictionsAreFoundAmongKeptMessages(t *testing.T) {
	w := noting(t, 3)
	a, b := w.engines[0], w.engines[2]
	none := func(when string) {
		t.Helper()
		for _, pair := range [][2]int{{0, 2}, {2, 0}, {0, 1}, {1, 0}, {0, 0}, {0, -1}, {0, 3}} {
			if c, found := w.engines[pair[0]].Contradiction(pair[1]); found {
				t.Fatalf("%s, rank %d finds %+v", when, pair[0], c)
			}
		}
	}
	none("before any message")
	for i := range int64(500) { // b runs behind by as many as are kept, then catches up
		send(a, 2, 8*i, plugin.Float32)
		send(b, 0, i, plugin.Uint8)
		receive(a, 2, i, plugin.Int8)
		if i >= keptMessages-1 {
			receive(b, 0, 8*(i-keptMessages+1), plugin.Int64)
		}
		none("while b is behind")
	}
	if m, ok := b.SentTo(0, 499); !ok || m.Bytes() != 8*499 || m.DType() != plugin.Float32 {
		t.Errorf("message 499 is %d bytes of %s, %v", m.Bytes(), m.DType(), ok)
	}
	for _, number := range []uint64{499 - keptMessages, 500, 499 + 1<<15} {
		if m, ok := b.SentTo(0, number); ok {
			t.Errorf("message %d is %d bytes", number, m.Bytes())
		}
	}
	for _, rank := range []int{-1, 3} {
		if _, ok := b.SentTo(rank, 0); ok {
			t.Errorf("a message of rank %d", rank)
		}
	}
	receive(b, 0, 8*(501-keptMessages)+1, plugin.Int32)
	want := Contradiction{Sender: 0, Receiver: 2, Sent: MessageOf(8*(501-keptMessages), plugin.Float32),
		Expected: MessageOf(8*(501-keptMessages)+1, plugin.Int32)}
	for _, pair := range [][2]int{{0, 2}, {2, 0}} {
		c, found := w.engines[pair[0]].Contradiction(pair[1])
		if !found || c.Sender != 0 || c.Receiver != 2 || c.Sent.Bytes() != want.Sent.Bytes() ||
			c.Expected.Bytes() != want.Expected.Bytes() ||
			c.Sent.DType() != want.Sent.DType() || c.Expected.DType() != want.Expected.DType() {
			t.Errorf("rank %d finds %+v, %v", pair[0], c, found)
		}
	}
	a.Close()
	if _, found := a.Contradiction(2); found {
		t.Error("a closed engine finds one")
	}
	a.Sent(Single, 2).Note(MessageOf(1, 0)) // writes nowhere
}

// A sender whose transport keeps its messages may be any number of them ahead of the receiver: what it has noted of
// later ones is not taken for what the receiver waits for, nor for nothing.
func TestFarAheadNotesAreNotOfTheAwaitedMessage(t *testing.T) {
	w := noting(t, 2)
	sender, receiver := w.engines[0], w.engines[1]
	length := func(number int64) int64 { return 8 + number%1000 }
	received := int64(3 * keptMessages)
	for i := range received {
		receive(receiver, 0, length(i), plugin.Uint8)
	}
	for i := range int64(1) << 18 {
		send(sender, 1, length(i), plugin.Uint8)
		if i < received {
			continue
		}
		for rank, e := range w.engines {
			if c, found := e.Contradiction(1 - rank); found {
				t.Fatalf("%d messages ahead, rank %d finds %+v", i+1-received, rank, c)
			}
		}
		if receiver.Unsent(0) {
			t.Fatalf("%d messages ahead, the sender counts as behind", i+1-received)
		}
		if m, known := receiver.SentTo(0, uint64(received)); known && m.Bytes() != length(received) {
			t.Fatalf("%d messages ahead, the awaited one has %d bytes, want %d", i+1-received, m.Bytes(), length(received))
		}
	}
}

func TestNotesHoldEveryLengthAndDType(t *testing.T) {
	for _, dtype := range plugin.DTypes() {
		for _, bytes := range []int64{0, 1, 4096, 1 << 40, maxMessage} {
			if m := MessageOf(bytes, dtype); m.Bytes() != bytes || m.DType() != dtype {
				t.Errorf("%d bytes of %s are noted as %d of %s", bytes, dtype, m.Bytes(), m.DType())
			}
		}
	}
	if m := MessageOf(math.MaxInt64, plugin.Uint8); m.Bytes() != maxMessage {
		t.Errorf("%d bytes", m.Bytes())
	}
}

// Pages without room for notes, as those of a communicator on CUDA memory, have none.
func TestPagesWithoutRoomHaveNoNotes(t *testing.T) {
	w := newWorld(t, 2, 4096)
	send(w.engines[0], 1, 4, plugin.Uint8)
	receive(w.engines[1], 0, 5, plugin.Uint8)
	for rank, e := range w.engines {
		if c, found := e.Contradiction(1 - rank); found {
			t.Errorf("rank %d finds %+v", rank, c)
		}
	}
	if _, ok := w.engines[1].SentTo(0, 0); ok {
		t.Error("a message is known")
	}
}

// A launch of a group is noted when it begins, not when the group does: those that
// wait behind another of their lane are not yet.
func TestLaunchesOfAGroupAreNotedAsTheyBegin(t *testing.T) {
	w := noting(t, 2)
	e := w.engines[0]
	program := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			word := b.Region(b.Const(testRegion), b.Const(0), b.Const(0))
			b.Wait(word, b.Const(1), b.Const(1))
		})
	})
	done := make(chan error, 1)
	go func() {
		launches := make([]Launch, 3)
		for i := range launches {
			launches[i] = Launch{Program: program, Lane: i / 2,
				Note: e.Sent(Single, 1).Take(MessageOf(int64(i+1), plugin.Uint8))}
		}
		done <- e.RunGroup(launches, 0)
	}()
	for {
		if waiting, _, _, _ := e.Waiting(); waiting {
			break
		}
	}
	for number, want := range []bool{true, false, true} { // the second is behind the first
		if m, ok := w.engines[1].SentTo(0, uint64(number)); ok != want || (ok && m.Bytes() != int64(number+1)) {
			t.Errorf("message %d: %d bytes, %v", number, m.Bytes(), ok)
		}
	}
	atomic.StoreInt64((*int64)(unsafe.Pointer(&w.regions[0][0])), 1)
	must(t, <-done)
	if m, ok := w.engines[1].SentTo(0, 1); !ok || m.Bytes() != 2 {
		t.Errorf("in the end the second is %d bytes, %v", m.Bytes(), ok)
	}
}

// Whatever a peer has written, looking at it ends, and finds nothing that this rank
// has not said.
func FuzzContradiction(f *testing.F) {
	w := noting(f, 2)
	own, theirs := w.engines[0], w.engines[1]
	for i := range int64(10) {
		receive(own, 1, i, plugin.Uint8)
		send(own, 1, 100+i, plugin.Float64)
		send(theirs, 0, i, plugin.Uint8)
	}
	page := unsafe.Slice((*byte)(theirs.controls[1].Base), ControlBytes+int(MessageBytes(2)))[ControlBytes:]
	f.Add(append([]byte(nil), page...))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		clear(page)
		copy(page, bytes)
		c, found := own.Contradiction(1)
		if !found {
			return
		}
		mine, differ := c.Expected, c.Sent.Bytes() != c.Expected.Bytes()
		if c.Sender == 0 {
			mine = c.Sent
		}
		received := c.Receiver == 0 && mine.Bytes() < 10
		sent := c.Sender == 0 && mine.Bytes() >= 100 && mine.Bytes() < 110
		if !differ || !(received || sent) || c.Sent.DType() > 31 {
			t.Fatalf("%+v", c)
		}
	})
}
