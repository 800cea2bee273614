package host

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/report"
)

// ReplaceProcessRead puts another function in the kernel's place where ranks
// find out whether they can read each other's memory, and returns how to undo
// it. No communicator may be in the making.
func ReplaceProcessRead(f func(pid int, here []unix.Iovec, there []unix.RemoteIovec, flags uint) (int,
	error)) (undo func()) {
	before := survey.ProcessRead
	survey.ProcessRead = f
	return func() { survey.ProcessRead = before }
}

// ReplaceNVLink puts another function in the place of the one that looks whether two GPUs
// are joined by NVLink, likewise.
func ReplaceNVLink(f func(gpu, peer string) (bool, error)) (undo func()) {
	before := survey.NVLinked
	survey.NVLinked = f
	return func() { survey.NVLinked = before }
}

// NVLink is what this rank's transports are told of it.
func NVLink(c *Communicator) bool { return c.plans.Request(call.Signature{}).NVLink }

// Refused is what a rank's control page says of the call that it refused last.
func Refused(c *Communicator, rank int) string {
	return strings.TrimPrefix(c.observer.RejectedBy(rank), "; ")
}

// Collectives is how many collectives this rank has counted.
func Collectives(c *Communicator) uint64 { return c.sequence.Collectives }

// ReplaceFiling puts another function in the place of the one that writes the
// records of communicators that fail, unless it is nil, and other times for how
// long an error and Close wait for it. It returns how to undo that.
func ReplaceFiling(write func(report.Report, string) error, delay time.Duration) (undo func()) {
	before, filing, closing := diagnosis.WriteReport, diagnosis.FilingDelay, diagnosis.ClosingDelay
	diagnosis.FilingDelay, diagnosis.ClosingDelay = delay, delay
	if write != nil {
		diagnosis.WriteReport = write
	}
	return func() { diagnosis.WriteReport, diagnosis.FilingDelay, diagnosis.ClosingDelay = before, filing, closing }
}

// Exports are where the exports of this rank begin, and how many bytes they have.
func Exports(c *Communicator) (list [][2]int64) {
	for _, e := range c.device.buffers.Exports() {
		list = append(list, [2]int64{int64(e.Base), e.Bytes})
	}
	return list
}

// TakeTurn takes a communicator's turn; waited says whether somebody waits for it.
func TakeTurn(c *Communicator) (waited func() bool, release func()) {
	_ = c.waitTurn("test")
	return func() bool { return c.turn.Contended() }, c.release
}

// Awaited is how many exports were withdrawn that kernels may still use.
func Awaited(c *Communicator) int { return c.device.buffers.Awaited() }

// Begun reports whether a kernel that looks for exports is at work.
func Begun(c *Communicator) bool { return c.device.buffers.Busy() }
