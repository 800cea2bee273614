package host

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// probe is a word with a random value in this process, whose address peers are
// told, so that they find out whether they can read this process's memory. That
// depends on the user, capabilities, seccomp filters, the Yama module and pid
// namespaces; a look tells more than all of their rules.
type probe struct{ word *[8]byte }

// newProbe is a fresh word for every rank to read.
func newProbe() probe {
	p := probe{word: new([8]byte)}
	rand.Read(p.word[:]) // never fails
	if binary.LittleEndian.Uint64(p.word[:]) == 0 {
		p.word[0] = 1 // fresh pages are zero too
	}
	return p
}

// published is what peers are told: where the word is, and what it says.
func (p probe) published() (address, value uint64) {
	return uint64(uintptr(unsafe.Pointer(p.word))), binary.LittleEndian.Uint64(p.word[:])
}

// processRead is the kernel's part, which tests replace.
var processRead = unix.ProcessVMReadv

// look reads another process's word and compares it with what it must say.
func look(pid int, address, value uint64) error {
	if pid <= 0 || address > uint64(^uintptr(0)) {
		return fmt.Errorf("process %d, address %#x", pid, address)
	}
	var got [8]byte
	here := []unix.Iovec{{Base: &got[0], Len: uint64(len(got))}}
	there := []unix.RemoteIovec{{Base: uintptr(address), Len: len(got)}}
	n, err := processRead(pid, here, there, 0)
	switch {
	case err != nil:
		return fmt.Errorf("process_vm_readv of pid %d: %w", pid, err)
	case n != len(got) || binary.LittleEndian.Uint64(got[:]) != value:
		return fmt.Errorf("pid %d is another process here", pid)
	}
	return nil
}

// Answers to whether a rank can read every other rank's memory.
var canRead, cannotRead = []byte{1}, []byte{0}

// agreePeerRead finds out whether every rank can read every other rank's
// memory, and if so tells the executor which processes they are. introductions
// are those of all ranks, so all ranks come to the same answer; mine is the probe
// that was published in this rank's.
func (c *Communicator) agreePeerRead(ctx context.Context, mine probe, introductions []introduction) error {
	defer runtime.KeepAlive(mine.word) // until everybody has looked
	if c.world == 1 || len(c.observer.Topology.Hosts()) > 1 {
		return nil
	}
	for rank, i := range introductions {
		if i.Probe == 0 {
			c.logger.Debug("ranks do not read each other's memory", "communicator", c.label, "reason", fmt.Sprintf("SHUNT_PEER_READ is off on rank %d", rank))
			return nil
		}
	}
	answer := canRead
	for rank, i := range introductions {
		if err := look(c.observer.Topology.Places[rank].PID, i.Probe, i.Value); err != nil {
			c.logger.Info("cannot read the memory of a rank; bytes go through shared memory instead", "communicator", c.label, "rank", c.rank, "peer", rank, "reason", err)
			answer = cannotRead
			break
		}
	}
	answers, err := c.group.AllGather(ctx, "peer read "+c.label, answer)
	if err != nil {
		return c.observer.WrapError("init", err)
	}
	for rank, a := range answers {
		if len(a) != 1 || a[0] > 1 {
			return plugin.Errorf(plugin.Protocol, "init: rank %d answered %d bytes to whether it can read its peers' memory", rank, len(a))
		}
		if !bytes.Equal(a, canRead) {
			c.logger.Debug("ranks do not read each other's memory", "communicator", c.label, "reason", fmt.Sprintf("rank %d cannot", rank))
			return nil
		}
	}
	for rank, place := range c.observer.Topology.Places {
		if err := c.engine.SetPeerProcess(rank, place.PID); err != nil {
			return c.observer.WrapError("init", err)
		}
	}
	c.plans.PeerRead = true
	return nil
}
