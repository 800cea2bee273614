package buffers

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// Whatever order ranges come in, an address finds the one that holds it.
func TestSymmetricRangesAreFoundByAddress(t *testing.T) {
	const each = 100
	for n := range 9 {
		var s Symmetric
		for _, i := range rand.Perm(n) { // with a gap behind every second range
			s.insert(&Range{base: cuda.Ptr(1000 + i*each), bytes: each - 50*int64(i%2), number: int64(i + 1)})
		}
		for range 5000 { // whatever was asked for before
			p := cuda.Ptr(900 + rand.IntN(1200))
			want := int64(0)
			if i := int(p-1000) / each; p >= 1000 && i < n && int64(p-1000)%each < each-50*int64(i%2) {
				want = int64(i + 1)
			}
			got := int64(0)
			if r := s.Find(p, 1); r != nil {
				got = r.number
			}
			require.Equal(t, want, got, "%d of %d ranges", p, n)
		}
		for len(s.sorted) > 0 {
			r := s.sorted[rand.IntN(len(s.sorted))]
			s.Remove(r)
			require.Nil(t, s.Find(r.base, 1))
		}
	}
}

// Of ranges that overlap the last that holds all of the bytes is found, as a search through all of them finds it.
func TestOverlappingSymmetricRanges(t *testing.T) {
	for round := range 200 {
		var s Symmetric
		var all []*Range
		for number := range 1 + rand.IntN(12) {
			r := &Range{base: cuda.Ptr(1000 + rand.IntN(300)), bytes: 1 + rand.Int64N(100), number: int64(number + 1)}
			all = append(all, r)
			s.insert(r)
			overlap := slices.Clone(all[:number])
			overlap = slices.DeleteFunc(overlap, func(o *Range) bool {
				return r.base+cuda.Ptr(r.bytes) <= o.base || o.base+cuda.Ptr(o.bytes) <= r.base
			})
			s.Remove(r)
			require.Equal(t, overlap, append([]*Range{}, s.overlapping(r)...))
			s.insert(r)
		}
		for len(all) > 0 {
			for range 300 {
				p, bytes := cuda.Ptr(950+rand.IntN(500)), 1+rand.Int64N(60)
				var want *Range
				for _, r := range all {
					if r.base <= p && p+cuda.Ptr(bytes) <= r.base+cuda.Ptr(r.bytes) {
						want = r
					}
				}
				require.Equal(t, want, s.Find(p, bytes), "round %d: %d bytes at %d", round, bytes, p)
			}
			at := rand.IntN(len(all))
			s.Remove(all[at])
			all = slices.Delete(all, at, at+1)
		}
	}
}

// newSymmetric returns the symmetric ranges of a rank in a world, empty.
func newSymmetric(world int) Symmetric {
	return NewSymmetric(&diagnosis.Observer{World: world})
}

// far is the first address of made-up memory, away from Go's own.
const far = 1 << 41

func addressOf(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func symmetricCall(collective plugin.Collective, recv uintptr, bytes int64) *call.Call {
	c := &call.Call{Collective: collective, Recv: addressOf(recv)}
	c.Slots[plugin.SlotRecvBytes] = bytes
	return c
}

func TestCallsAreSymmetricWhereAllOfTheirMemoryIs(t *testing.T) {
	s := newSymmetric(2)
	r := &Range{base: far + 1000, bytes: 100, number: 7, addresses: []cuda.Ptr{far + 1000, far + 5000}}
	s.insert(r)
	for _, test := range []struct {
		collective plugin.Collective
		recv       uintptr
		bytes      int64
		world      int
		is         bool
	}{
		{plugin.AllGather, 1000, 100, 2, true}, {plugin.AllToAll, 1096, 4, 2, true}, {plugin.Broadcast, 1000, 1, 2, true},
		{plugin.Scatter, 1050, 50, 2, true},
		{plugin.AllGather, 1000, 101, 2, false}, {plugin.AllGather, 999, 100, 2, false},
		{plugin.AllGather, 1100, 1, 2, false},
		{plugin.AllGather, 1000, 0, 2, false}, {plugin.AllGather, 1000, 100, 1, false},
		{plugin.Gather, 1000, 100, 2, false}, {plugin.AllGatherV, 1000, 100, 2, false}, {plugin.Recv, 1000, 100, 2, false},
		{plugin.Get, 1000, 100, 2, false},
	} {
		c := symmetricCall(test.collective, far+test.recv, test.bytes)
		s.observer.World = test.world
		found := s.Mark(c)
		require.Equal(t, test.is, found == r, "%+v", test)
		require.Equal(t, test.is, c.Symmetric)
		if !test.is {
			require.Nil(t, found)
			require.Nil(t, s.PeerRecv(found, 0))
			require.Zero(t, c.Slots[plugin.SlotWindow])
			continue
		}
		offset := int64(test.recv) - 1000
		require.Equal(t, []int64{7, offset}, []int64{c.Slots[plugin.SlotWindow], c.Slots[plugin.SlotOffset]})
		require.Equal(t, []cuda.Ptr{far + 1000 + cuda.Ptr(offset), far + 5000 + cuda.Ptr(offset)}, s.PeerRecv(found, offset))
	}
}

func TestSymmetricCallsAllocateNothing(t *testing.T) {
	s := newSymmetric(2)
	for i := range 100 {
		s.insert(&Range{base: cuda.Ptr(far + 1000*i), bytes: 900, number: int64(i), addresses: make([]cuda.Ptr, 8)})
	}
	c := symmetricCall(plugin.AllGather, far+50_100, 8)
	s.PeerRecv(s.Mark(c), 0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.PeerRecv(s.Mark(c), 0)
	}))
}

// What a call costs whose memory is in none of the ranges.
func BenchmarkCallOutsideOfSymmetricRanges(b *testing.B) {
	for name, n := range map[string]int{"no ranges": 0, "1 range": 1, "100 ranges": 100} {
		b.Run(name, func(b *testing.B) {
			s := newSymmetric(2)
			for i := range n {
				s.insert(&Range{base: cuda.Ptr(far + 1000*i), bytes: 900, number: int64(i)})
			}
			call := symmetricCall(plugin.AllGather, far+50_950, 8)
			for b.Loop() {
				s.Mark(call)
			}
		})
	}
}

func FuzzSymmetricExport(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"Bytes":400,"Export":3,"Generation":1,"Offset":8}`,
		`{"Code":2,"Message":"no"}`, `{"Bytes":9223372036854775807,"Offset":1}`, `{"Bytes":1,"Export":128}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := readRangeExport(b)
		if err != nil {
			require.ErrorIs(t, err, plugin.Protocol)
			return
		}
		if o.Code == plugin.OK && (o.Export < 0 || o.Export >= plugin.DirectoryExports || o.Bytes < 1 || o.Offset < 0 ||
			o.Offset+o.Bytes < 0) {
			t.Errorf("accepted %+v", o)
		}
	})
}
