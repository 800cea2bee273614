package survey

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// probe is a word with a random value in this process, whose address is sent to peers, so that they find out whether
// they can read this process's memory. That depends on the user, capabilities, seccomp filters, the Yama module and pid
// namespaces; a look tells more than all of their rules.
type probe struct{ word *[8]byte }

// newProbe returns a fresh word for every rank to read.
func newProbe() probe {
	p := probe{word: new([8]byte)}
	rand.Read(p.word[:]) // never fails
	if binary.LittleEndian.Uint64(p.word[:]) == 0 {
		p.word[0] = 1 // fresh pages are zero too
	}
	return p
}

// published returns what peers learn of the probe: the address of its word, and its value.
func (p probe) published() (address, value uint64) {
	return uint64(uintptr(unsafe.Pointer(p.word))), binary.LittleEndian.Uint64(p.word[:])
}

// ProcessRead is the kernel's part. Tests replace it.
var ProcessRead = unix.ProcessVMReadv

// look reads another process's word and compares it with what it must say.
func look(pid int, address, value uint64) error {
	if pid <= 0 || address > uint64(^uintptr(0)) {
		return fmt.Errorf("process %d cannot have address %#x", pid, address)
	}
	var got [8]byte
	here := []unix.Iovec{{Base: &got[0], Len: uint64(len(got))}}
	there := []unix.RemoteIovec{{Base: uintptr(address), Len: len(got)}}
	n, err := ProcessRead(pid, here, there, 0)
	switch {
	case err != nil:
		return fmt.Errorf("process_vm_readv of pid %d: %w", pid, err)
	case n != len(got) || binary.LittleEndian.Uint64(got[:]) != value:
		return fmt.Errorf("pid %d is another process here", pid)
	}
	return nil
}

// Replies to the question whether a rank can read every other rank's memory.
var canRead, cannotRead = []byte{1}, []byte{0}

// PeerRead returns the part in which the ranks find out whether every rank can read every other rank's memory, which
// found says when it was heard.
func (s *Survey) PeerRead(found *Found) round.Part {
	if !s.looks(found) {
		return round.Part{Hear: func([][]byte) error { return nil }}
	}
	mine := canRead
	for rank, i := range found.introductions {
		if err := look(found.Topology.Places[rank].PID, i.Probe, i.Value); err != nil {
			s.Logger.Info("cannot read the memory of a rank; bytes go through shared memory instead", "communicator", s.Label,
				"rank", s.Rank, "peer", rank, "reason", err)
			mine = cannotRead
			break
		}
	}
	return round.Part{Mine: mine, Hear: func(answers [][]byte) error {
		defer runtime.KeepAlive(found.word.word) // until everybody has looked
		for rank, a := range answers {
			if len(a) != 1 || a[0] > 1 {
				return plugin.Errorf(plugin.Protocol, "init: rank %d returned %d bytes to the question whether it can read its peers' memory", rank, len(a))
			}
			if !bytes.Equal(a, canRead) {
				s.Logger.Debug("ranks do not read each other's memory", "communicator", s.Label, "reason",
					fmt.Sprintf("rank %d cannot", rank))
				return nil
			}
		}
		found.PeerRead = true
		return nil
	}}
}

// looks reports whether ranks may read each other's memory at all. All ranks return the same.
func (s *Survey) looks(found *Found) bool {
	if s.World == 1 || len(found.Topology.Hosts()) > 1 {
		return false
	}
	for rank, i := range found.introductions {
		if i.Probe == 0 {
			s.Logger.Debug("ranks do not read each other's memory", "communicator", s.Label, "reason",
				fmt.Sprintf("SHUNT_PEER_READ is off on rank %d", rank))
			return false
		}
	}
	return true
}
