package shared

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/plugin"
)

// A copy that was interrupted must not end the process that loads it.
func TestObjectsThatWereCutOffAreRefused(t *testing.T) {
	path, err := ctransport.Build(t.TempDir())
	require.NoError(t, err)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, wholeELF(bytes.NewReader(whole), int64(len(whole))))
	cut := filepath.Join(t.TempDir(), "cut.so")
	for _, n := range []int{4, 63, 64, 100, 1000, 5000, len(whole) / 2} {
		require.NoError(t, os.WriteFile(cut, whole[:n], 0o755))
		_, err := Open(cut, nil)
		require.ErrorIs(t, err, plugin.PluginRejected, "%d of %d bytes", n, len(whole))
		require.ErrorContains(t, err, "it is cut off", "%d of %d bytes", n, len(whole))
	}
}

// An end of a segment that no file has, or that is past the largest number, is no end within the file.
func TestSegmentsBehindTheFileAreRefused(t *testing.T) {
	for _, segment := range []elf.Prog64{
		{Off: math.MaxUint64 - 1, Filesz: 4}, {Off: 4, Filesz: math.MaxUint64 - 1}, {Off: 1 << 63, Filesz: 1 << 63},
		{Off: math.MaxUint64, Filesz: 0}, {Off: 1 << 20, Filesz: 1},
	} {
		segment.Type = uint32(elf.PT_LOAD)
		head := elf.Header64{Phoff: 64, Phentsize: 56, Phnum: 1, Machine: uint16(machines[runtime.GOARCH])}
		copy(head.Ident[:], elf.ELFMAG)
		head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
		var file bytes.Buffer
		require.NoError(t, binary.Write(&file, binary.LittleEndian, head))
		require.NoError(t, binary.Write(&file, binary.LittleEndian, segment))
		err := wholeELF(bytes.NewReader(file.Bytes()), int64(file.Len()))
		require.ErrorIs(t, err, plugin.PluginRejected, "%+v", segment)
		require.ErrorContains(t, err, fmt.Sprintf("a segment of %d at %d", segment.Filesz, segment.Off))
	}
}

// The loader would say of an object for another architecture that there is no such file.
func TestObjectsForAnotherArchitectureAreRefused(t *testing.T) {
	path, err := ctransport.Build(t.TempDir())
	require.NoError(t, err)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	own := machines[runtime.GOARCH]
	for is, name := range map[elf.Machine]string{
		elf.EM_X86_64: "x86-64", elf.EM_AARCH64: "aarch64", elf.EM_RISCV: "EM_RISCV",
	} {
		if is == own {
			continue
		}
		const at = 18 // of the machine in the header
		binary.LittleEndian.PutUint16(whole[at:], uint16(is))
		require.NoError(t, os.WriteFile(path, whole, 0o755))
		_, err := Open(path, nil)
		require.ErrorIs(t, err, plugin.PluginRejected)
		require.ErrorContains(t, err, fmt.Sprintf("it is for %s, and this process is %s", name, machineNames[own]))
	}
}

func FuzzWholeELF(f *testing.F) {
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(f, err)
	f.Add(self[:4096], int64(4096))
	f.Add(self[:4096], int64(len(self)))
	f.Add([]byte("\x7fELF"), int64(4))
	f.Fuzz(func(t *testing.T, start []byte, size int64) {
		if err := wholeELF(bytes.NewReader(start), max(size, 0)); err != nil {
			require.ErrorIs(t, err, plugin.PluginRejected)
		}
	})
}
