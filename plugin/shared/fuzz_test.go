package shared

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
)

func FuzzSupport(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 0, 0, 0, 'a', 0})
	f.Add([]byte{0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := supportOfBytes(b)
		if err != nil {
			return
		}
		if err := s.Validate(); err == nil && len(s.Algorithms) > plugin.MaxAlgorithms {
			t.Fatalf("%d algorithms", len(s.Algorithms))
		}
	})
}

func FuzzRegion(f *testing.F) {
	f.Add(make([]byte, 400))
	f.Add(bytes.Repeat([]byte{0xFE, 0, 0, 0}, 100))
	f.Add(bytes.Repeat([]byte{0xFE, 0xFF, 0xFF, 0xFF}, 100))
	for at := range 16 { // a negative descriptor, wherever it lies
		f.Add(append(make([]byte, 4*at), 0xFE, 0xFF, 0xFF, 0xFF))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := regionOfBytes(b)
		if err != nil {
			return
		}
		h := r.Handle
		if h.FD < -1 {
			t.Fatalf("descriptor %d", h.FD)
		}
		if err := check.Region(r); err == nil && h.Kind != plugin.HandleKindNone &&
			(h.Offset < 0 || r.Bytes > h.Bytes-h.Offset || len(h.Data) > plugin.MaxHandleData) {
			t.Fatalf("accepted %+v", r)
		}
	})
}

func FuzzPlan(f *testing.F) {
	head := binary.LittleEndian.AppendUint32(nil, 120)
	head = append(head, make([]byte, 12)...)
	head = binary.LittleEndian.AppendUint32(head, 2) // world
	head = binary.LittleEndian.AppendUint32(head, 1) // rank
	for _, n := range []uint32{1, 2, 3, 4, 1, 0, 1, 0} {
		head = binary.LittleEndian.AppendUint32(head, n)
	}
	f.Add(head, []byte{1, 0, 0, 0, 16, 0})
	f.Fuzz(func(t *testing.T, head, fill []byte) {
		p, err := planOfBytes(head, fill)
		if err != nil {
			return
		}
		if len(p.Steps) > plugin.MaxSteps || len(p.Refs) > plugin.MaxRefs || len(p.Tracks) > plugin.MaxTracks ||
			len(p.Consts) > plugin.MaxRegisters || p.Temps > plugin.MaxRegisters {
			t.Fatalf("%d steps, %d refs, %d tracks, %d constants, %d temporaries", len(p.Steps), len(p.Refs), len(p.Tracks),
				len(p.Consts), p.Temps)
		}
		_ = p.Validate()
	})
}
