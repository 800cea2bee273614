package host

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/watch"
)

// ReplaceProcessRead puts another function in the kernel's place where ranks
// find out whether they can read each other's memory, and returns how to undo
// it. No communicator may be in the making.
func ReplaceProcessRead(f func(pid int, here []unix.Iovec, there []unix.RemoteIovec, flags uint) (int, error)) (undo func()) {
	before := processRead
	processRead = f
	return func() { processRead = before }
}

// ReplaceNVLink puts another function in the place of the one that looks whether two GPUs
// are joined by NVLink, likewise.
func ReplaceNVLink(f func(gpu, peer string) (bool, error)) (undo func()) {
	before := nvlinked
	nvlinked = f
	return func() { nvlinked = before }
}

// NVLink is what this rank's transports are told of it.
func NVLink(c *Communicator) bool { return c.request(call.Signature{}).NVLink }

// Refused is what a rank's control page says of the call that it refused last.
func Refused(c *Communicator, rank int) string {
	return strings.TrimPrefix(c.refusalOf(rank), "; ")
}

// Collectives is how many collectives this rank has counted.
func Collectives(c *Communicator) uint64 { return c.collectives }

// ReplaceFiling puts another function in the place of the one that writes the
// records of communicators that fail, unless it is nil, and other times for how
// long an error and Close wait for it. It returns how to undo that.
func ReplaceFiling(write func(watch.Report, string) error, delay time.Duration) (undo func()) {
	before, filing, closing := writeReport, filingDelay, closingDelay
	filingDelay, closingDelay = delay, delay
	if write != nil {
		writeReport = write
	}
	return func() { writeReport, filingDelay, closingDelay = before, filing, closing }
}

// Exports are where the exports of this rank begin, and how many bytes they have.
func Exports(c *Communicator) (list [][2]int64) {
	t := c.device.buffers
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.exports {
		if e.bytes > 0 && e.leaving == staying {
			list = append(list, [2]int64{int64(e.base), e.bytes})
		}
	}
	return list
}

// TakeTurn takes a communicator's turn; waited says whether somebody waits for it.
func TakeTurn(c *Communicator) (waited func() bool, release func()) {
	_ = c.waitTurn("test")
	return func() bool { return c.turn.state.Load() == contended }, c.release
}

// Awaited is how many exports were withdrawn that kernels may still use.
func Awaited(c *Communicator) (n int) {
	t := c.device.buffers
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.exports {
		if e.leaving == awaited {
			n++
		}
	}
	return n
}

// Begun reports whether a kernel that looks for exports is at work.
func Begun(c *Communicator) bool {
	n, err := c.device.buffers.counts()
	return err == nil && n.begun != n.ended
}
