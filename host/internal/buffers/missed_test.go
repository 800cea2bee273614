package buffers

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// The receives of a group are exported as one range where the gaps between them are shorter than a piece of memory; the
// range reaches to the end of the one that ends last.
func TestReceivesOfAGroupAreTakenTogether(t *testing.T) {
	const base, length = 1 << 40, int64(1 << 20)
	receive := func(offset, bytes int64) call.Call {
		at := uintptr(base + offset)
		c := call.Call{Collective: plugin.Recv, Recv: *(*unsafe.Pointer)(unsafe.Pointer(&at))}
		c.Slots[plugin.SlotRecvBytes] = bytes
		return c
	}
	missed := func(offset int64) span { return span{cuda.Ptr(base + offset), 512} }
	send := receive(0, length)
	send.Collective = plugin.Send
	for name, test := range map[string]struct {
		calls  []call.Call
		missed int64 // where a kernel missed memory
		taken  bool
	}{
		"the first byte":         {[]call.Call{receive(0, length)}, 0, true},
		"the last byte":          {[]call.Call{receive(0, length)}, length - 1, true},
		"just behind":            {[]call.Call{receive(0, length)}, length, false},
		"just before":            {[]call.Call{receive(512, length)}, 0, false},
		"the second of two":      {[]call.Call{receive(0, length), receive(2*length, length)}, 3*length - 1, true},
		"in any order":           {[]call.Call{receive(2*length, length), receive(0, length)}, 3*length - 1, true},
		"the gap":                {[]call.Call{receive(0, length), receive(2*length, length)}, 3 * length / 2, true},
		"nearly a piece":         {[]call.Call{receive(0, length), receive(length+leastPiece-1, length)}, length + 512, true},
		"a gap of a piece":       {[]call.Call{receive(0, length), receive(length+leastPiece, length)}, length + 512, false},
		"one within the other":   {[]call.Call{receive(0, 4*length), receive(length, length)}, 3 * length, true},
		"short ones, together":   {[]call.Call{receive(0, 4096), receive(directFrom-4096, 4096)}, directFrom - 1, true},
		"together too short":     {[]call.Call{receive(0, 4096), receive(directFrom-4097, 4096)}, 0, false},
		"no receive":             {[]call.Call{send}, 0, false},
		"nothing received":       {[]call.Call{receive(0, 0)}, 0, false},
		"a short one far behind": {[]call.Call{receive(0, length), receive(64*length, 4096)}, 64 * length, false},
	} {
		d := aRegistry(t)
		d.missed = []span{missed(test.missed)}
		d.want.Store(1)
		d.TakeGroup(test.calls, false)
		require.Equal(t, !test.taken, len(d.missed) == 1, name)
		require.EqualValues(t, len(d.missed), d.want.Load(), name)
	}
}

// The audit looks at an export without the lock: what has taken its place meanwhile stays.
func TestTheAuditLosesWhatItLookedAt(t *testing.T) {
	d := aRegistry(t)
	at := d.export(t)
	before := d.exports[at].generation
	d.lose(at, before)
	require.Equal(t, withdrawn, d.exports[at].leaving)
	d.mu.Lock()
	d.release(at)
	d.mu.Unlock()
	d.lose(at, before)
	require.Zero(t, d.exports[at].bytes)
	require.Equal(t, at, d.export(t), "another export is in its place")
	d.lose(at, before)
	require.Equal(t, staying, d.exports[at].leaving, "it was not looked at")
	d.lose(at, d.exports[at].generation)
	require.Equal(t, withdrawn, d.exports[at].leaving)
}

// What lies in memory that is on its way already is not exported again, however many calls name parts of it before the
// keeper looks; and no more waits than the directory, or a process, has room for.
func TestMemoryOnItsWayIsBounded(t *testing.T) {
	d := aRegistry(t)
	allocate := func(bytes int64) cuda.Ptr {
		m, err := d.gpu.Driver.CreateMemory(d.gpu.Context, 0, bytes)
		require.NoError(t, err)
		return m.Address
	}
	waiting := func() int { return len(d.candidates) }
	first, second := allocate(2*leastPiece), allocate(2*leastPiece)
	for i := range int64(100) {
		d.takeSpan(span{first + cuda.Ptr(i*4096), leastPiece})
		d.takeSpan(span{second + cuda.Ptr(2*leastPiece-i-1), i + 1})
	}
	require.Equal(t, 2, waiting())
	d.adoptCandidates()
	for _, p := range []cuda.Ptr{first, second} {
		require.GreaterOrEqual(t, d.find(p, 2*leastPiece), 0)
	}
	for range plugin.DirectoryExports + 10 {
		d.takeSpan(span{allocate(leastPiece), leastPiece})
	}
	require.Equal(t, plugin.DirectoryExports, waiting())
	d.adoptCandidates()
	after := allocate(leastPiece)
	d.takeSpan(span{after, leastPiece})
	require.Equal(t, 1, waiting(), "there is room again")
	d.candidates[0].chunks = slices.Repeat(d.candidates[0].chunks[:1], 2*maxPieces)
	d.takeSpan(span{allocate(leastPiece), leastPiece})
	require.Equal(t, 1, waiting(), "its descriptors are enough")
	cuda.CloseChunks(d.candidates[0].chunks[:1])
}
