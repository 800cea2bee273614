package buffers

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/memory"
)

func TestPiecesThatAnAddressRangeSpans(t *testing.T) {
	e := export{base: 100, bytes: 60, pieces: []cuda.Ptr{100, 110, 140}}
	for _, test := range []struct {
		p        cuda.Ptr
		bytes    int64
		from, to int
	}{
		{100, 60, 0, 3}, {100, 1, 0, 1}, {109, 1, 0, 1}, {109, 2, 0, 2}, {110, 30, 1, 2}, {110, 31, 1, 3}, {159, 1, 2, 3},
		{150, 100, 2, 3}, {50, 51, 0, 1}, {50, 100, 0, 3},
	} {
		from, to := e.spanned(test.p, test.bytes)
		require.Equal(t, [2]int{test.from, test.to}, [2]int{from, to}, "%d bytes at %d", test.bytes, test.p)
	}
}

func TestDescriptorsOfPiecesComeInFullMessages(t *testing.T) {
	for pieces, want := range map[int][2]int{1: {1, 1}, 2: {1, 3}, memory.MaxShared - 1: {1, memory.MaxShared},
		memory.MaxShared: {2, memory.MaxShared + 1}, maxPieces: {3, maxPieces + 1}} {
		messages, descriptors := parts(pieces)
		require.Equal(t, want, [2]int{messages, descriptors}, "%d pieces", pieces)
	}
}

// FuzzPieceLengths reads lengths of pieces that a peer wrote.
func FuzzPieceLengths(f *testing.F) {
	sound := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 2<<20), 4<<20)
	f.Add(sound, 2, int64(6<<20))
	f.Add(sound, 1, int64(2<<20))
	f.Add(bytes.Repeat([]byte{0xFF}, 16), 2, int64(-2))
	f.Add([]byte{}, 0, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, pieces int, total int64) {
		list, err := readLengths(b, pieces, total)
		if err != nil {
			return
		}
		if len(list) != pieces || pieces < 1 || pieces > maxPieces {
			t.Fatalf("%d lengths of %d pieces", len(list), pieces)
		}
		sum := int64(0)
		for _, n := range list {
			if n <= 0 || n > total-sum {
				t.Fatalf("%v of %d bytes", list, total)
			}
			sum += n
		}
		if sum != total {
			t.Fatalf("%v are %d bytes, not %d", list, sum, total)
		}
	})
}
