package shared

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"

	"github.com/shunt-ccl/shunt/plugin"
)

// CheckFile looks at a file that is about to be opened as a shared object. It words the
// commonest mistakes better than the loader does, and refuses files that end too early:
// the loader maps those, and the process dies of SIGBUS where it touches what is missing.
func CheckFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return wholeELF(f, info.Size())
}

var (
	machines     = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} // by GOARCH
	machineNames = map[elf.Machine]string{elf.EM_X86_64: "x86-64", elf.EM_AARCH64: "aarch64"}
)

// wholeELF checks that a file of this length begins as an ELF object for this process's architecture does and holds
// everything that the loader would map. Whatever else is wrong with it, and other forms than 64 bits in little-endian
// order, are left to the loader.
func wholeELF(f io.ReaderAt, size int64) error {
	var head elf.Header64
	start := make([]byte, binary.Size(head))
	n, err := f.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if start = start[:n]; !bytes.HasPrefix(start, []byte(elf.ELFMAG)) {
		return plugin.Errorf(plugin.PluginRejected, "it is not a shared object: it begins with %q",
			start[:min(n, elf.EI_NIDENT)])
	}
	if n < cap(start) {
		return plugin.Errorf(plugin.PluginRejected, "it is cut off: %d bytes are not even an ELF header", n)
	}
	if start[elf.EI_CLASS] != byte(elf.ELFCLASS64) || start[elf.EI_DATA] != byte(elf.ELFDATA2LSB) {
		return nil
	}
	if _, err := binary.Decode(start, binary.LittleEndian, &head); err != nil {
		return err
	}
	if is, own := elf.Machine(head.Machine), machines[runtime.GOARCH]; own != 0 && is != own {
		return plugin.Errorf(plugin.PluginRejected, "it is for %s, and this process is %s",
			cmp.Or(machineNames[is], is.String()), machineNames[own])
	}
	var segment elf.Prog64
	if int(head.Phentsize) != binary.Size(segment) {
		return nil
	}
	table := io.NewSectionReader(f, 0, size)
	if _, err := table.Seek(int64(min(head.Phoff, uint64(size))), io.SeekStart); err != nil {
		return err
	}
	for range head.Phnum {
		if err := binary.Read(table, binary.LittleEndian, &segment); err != nil {
			return plugin.Errorf(plugin.PluginRejected, "it is cut off: its %d bytes end before its program headers", size)
		}
		if end := segment.Off + segment.Filesz; segment.Type == uint32(elf.PT_LOAD) &&
			(end < segment.Off || end > uint64(size)) {
			return plugin.Errorf(plugin.PluginRejected, "it is cut off: it has %d bytes, and a segment of %d at %d", size,
				segment.Filesz, segment.Off)
		}
	}
	return nil
}
