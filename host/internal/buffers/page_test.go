package buffers

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// testPage returns a page in ordinary memory, with bytes at its start.
func testPage(world int, data []byte) page {
	words := make([]uint64, pageBytes(world)/8)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8), data)
	return page{unsafe.Pointer(&words[0])}
}

func TestDirectoryPageGivesBackWhatWasWritten(t *testing.T) {
	p := testPage(4, nil)
	want := pageEntry{generation: 9, kind: plugin.HandleKindCudaIpc, base: 0x7f0000000000, bytes: 1 << 30, ordinal: 3}
	copy(want.ipc[:], bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 8))
	for i := range plugin.DirectoryExports {
		if _, ok := p.read(i); ok {
			t.Fatalf("entry %d of an empty page", i)
		}
	}
	p.write(127, want)
	if got, ok := p.read(127); !ok || got != want {
		t.Fatalf("%+v became %+v, %v", want, got, ok)
	}
	*p.mapped(3, 127) = 1 // the last word
	if got := unsafe.Slice((*uint64)(p.base), pageBytes(4)/8); got[len(got)-1] != 1 {
		t.Fatal("the last word is not the last rank's last export")
	}
	p.clear(127)
	if _, ok := p.read(127); ok {
		t.Fatal("an entry that was withdrawn")
	}
}

// FuzzDirectoryPage reads entries of a peer that writes anything.
func FuzzDirectoryPage(f *testing.F) {
	sound := testPage(1, nil)
	sound.write(0, pageEntry{generation: 1, kind: plugin.HandleKindCudaVmm, base: 4096, bytes: 100, pieces: 1})
	f.Add(bytes.Clone(unsafe.Slice((*byte)(sound.base), entryBytes)))
	f.Add(bytes.Repeat([]byte{0xFF}, entryBytes))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := testPage(2, data[:min(len(data), int(pageBytes(2)))])
		for i := range plugin.DirectoryExports {
			s, ok := p.read(i)
			if !ok {
				continue
			}
			if s.generation == 0 || s.pieces < 0 || s.pieces > maxPieces ||
				(s.kind == plugin.HandleKindCudaVmm) != (s.pieces > 0) || s.bytes <= 0 || s.bytes > maxExport || s.ordinal < 0 ||
				s.ordinal >= 1<<16 || uint64(s.base)+uint64(s.bytes) < uint64(s.base) {
				t.Fatalf("entry %d: %+v", i, s)
			}
			switch s.kind {
			case plugin.HandleKindCudaVmm, plugin.HandleKindCudaIpc, kindWindow:
			default:
				t.Fatalf("entry %d: kind %s", i, s.kind)
			}
		}
	})
}
