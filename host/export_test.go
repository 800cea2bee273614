package host

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/allocator"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
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

// ReplaceManagement puts another NVML in the place of the machine's; it returns what puts that back.
func ReplaceManagement(open func() (cuda.Management, error)) (undo func()) {
	before := survey.OpenManagement
	survey.OpenManagement = open
	return func() { survey.OpenManagement = before }
}

// ReplaceNewEngine puts another function in the place of the one that makes executors; it returns what undoes that.
func ReplaceNewEngine(f func(rank, world int) (*executor.Engine, error)) (undo func()) {
	before := newEngine
	newEngine = f
	return func() { newEngine = before }
}

// NVLink returns the value in the requests to this rank's transports.
func NVLink(c *Communicator) bool { return c.plans.Request(call.Signature{}).NVLink }

// Exchanges returns the number of exchanges over the rendezvous that this rank has begun.
func Exchanges(c *Communicator) uint64 { return c.job.Session.Exchanges() }

// Refused returns the text on a rank's control page of the call that it rejected last.
func Refused(c *Communicator, rank int) string {
	return strings.TrimPrefix(c.observer.RejectedBy(rank), "; ")
}

// Collectives returns the number of collectives that this rank has counted.
func Collectives(c *Communicator) uint64 { return c.ledger.Collectives }

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

// Exports returns where the exports of this rank begin, and how many bytes they have.
func Exports(c *Communicator) (list [][2]int64) {
	for _, e := range c.endpoints.Buffers.Exports() {
		list = append(list, [2]int64{int64(e.Base), e.Bytes})
	}
	return list
}

// TakeTurn takes a communicator's turn; waited says whether another caller waits for it.
func TakeTurn(c *Communicator) (waited func() bool, release func()) {
	_ = c.turn.Wait("test")
	return func() bool { return c.turn.Contended() }, c.turn.Leave
}

// Awaited returns the number of withdrawn exports that kernels may still use.
func Awaited(c *Communicator) int { return c.endpoints.Buffers.Awaited() }

// Begun reports whether a kernel that looks for exports is at work.
func Begun(c *Communicator) bool { return c.endpoints.Buffers.Busy() }

// UnderTurn calls f while it holds a communicator's turn.
func UnderTurn(c *Communicator, f func()) {
	release, err := c.enter("test")
	if err == nil {
		f()
		release()
	}
}

// ReplaceDestroyWait makes Allocator.Destroy wait for less, and returns what undoes that.
func ReplaceDestroyWait(wait time.Duration) (undo func()) {
	before := allocator.DestroyWait
	allocator.DestroyWait = wait
	return func() { allocator.DestroyWait = before }
}

// Known reports whether all peers have mapped what an address lies in.
func Known(c *Communicator, p cuda.Ptr) bool { return c.endpoints.Buffers.Known(p) }

// LimitRegistrations changes how many registrations of a transport stay, and returns what undoes that.
func LimitRegistrations(n int) (undo func()) { return buffers.LimitRegistrations(n) }

// StateOf returns what a rank knows of another one's calls, as errors word it.
func StateOf(c *Communicator, rank int) string { return c.observer.State(rank).String() }

// Enqueue puts a call of operations, a group where there are several, behind everything started before, as a call does
// that has to wait. The channel is closed when they have ended, before the caller of the call learns of it.
func Enqueue(c *Communicator, operations ...Operation) (<-chan struct{}, error) {
	push := func() (*Request, error) { return c.enqueueGroup(operations) }
	if len(operations) == 1 {
		push = func() (*Request, error) { return c.enqueue(&operations[0]) }
	}
	r, err := push()
	if err != nil {
		return nil, err
	}
	return r.done, nil
}
