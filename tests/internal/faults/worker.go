package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() {
	pool.Handle("faults open", openHandler)
	pool.Handle("faults traffic", trafficHandler)
	pool.Handle("faults close", closeHandler)
	pool.Handle("faults limit", limitHandler)
	pool.Handle("faults soak calls", soakCallsHandler)
	pool.Handle("faults soak communicators", soakCommunicatorsHandler)
}

// request is the argument of every handler here.
type request struct {
	job.Request
	Absent  int   // this rank stays away; -1: none
	Spare   int   // limit: descriptors that the rank Limited may still open
	Limited int   // limit: the rank
	Rounds  int   // soak
	Bytes   int64 // traffic: size of the largest message
	Left    int   // shrink: ranks that continue
	Late    int   // shrink: this rank is late when a new communicator has been agreed on; -1: none
	Counted bool  // soak: counts are on the device
}

// reply is the result of every handler here. A fault's error is a result, not a
// failure of the handler: the test judges it.
type reply struct {
	Code       plugin.Code
	Rank       int // of the error: where it began
	Message    string
	At         time.Time // when the error came
	Operations int       // that succeeded before
	Plugin     int       // process of the transport, 0 for builtin and shared
	Took       time.Duration
	Close      string // what closing said
	CloseCode  plugin.Code
	Leaks      []string // what is left after closing
	Before     Resources
	After      Resources
	Course     []Resources // soak of communicators: after each courseStep of them
}

func (a *reply) fail(err error) {
	a.At = time.Now()
	a.Code, a.Rank, a.Message = plugin.CodeOf(err), -1, err.Error()
	var e *plugin.Error
	if errors.As(err, &e) {
		a.Rank = e.Rank
	}
}

// closed keeps what closing said.
func (a *reply) closed(err error) {
	if err != nil {
		a.Close, a.CloseCode = err.Error(), plugin.CodeOf(err)
	}
}

// rank is the state of a worker between open and traffic.
type rank struct {
	*job.Job
	before Resources
	graph  *device.Graph // of captureHandler
}

// opened returns a handler's request and the rank that openHandler made.
func opened(w *pool.Worker, payload []byte) (request, *rank, error) {
	r, err := parse(payload)
	j, ok := w.State.(*rank)
	if err == nil && (!ok || j.Comm == nil) {
		err = errors.New("no communicator is open")
	}
	return r, j, err
}

// memoryFor returns the bytes that traffic of messages up to the given size needs.
func memoryFor(world int, most int64) int64 { return 2*int64(world)*most + 64 }

// newRank measures the process before anything is opened, with the reserve of descriptors that joining fills. A device
// is opened first: its driver keeps descriptors of its own.
func newRank(w *pool.Worker, r request) (*rank, error) {
	j, err := job.New(w, r.Memory, memoryFor(w.World, r.Bytes))
	if err != nil {
		return nil, err
	}
	if err := descriptors.Ready(); err != nil {
		return nil, err
	}
	settle()
	before, err := measure(j)
	return &rank{Job: j, before: before}, err
}

func openRank(ctx context.Context, w *pool.Worker, r request) (*rank, error) {
	j, err := newRank(w, r)
	if err != nil {
		return nil, err
	}
	return j, j.Join(ctx, r.Request)
}

// measure is like Measure, with the device memory that is left.
func measure(j *job.Job) (Resources, error) {
	r, err := Measure()
	if err == nil && j.Device != nil {
		r.DeviceFree, _, err = j.Device.Driver.MemoryInfo(j.Device.Context)
	}
	return r, err
}

// settle releases what the runtime would release at some time.
func settle() {
	runtime.GC()
	debug.FreeOSMemory()
}

func parse(payload []byte) (request, error) {
	var r request
	err := json.Unmarshal(payload, &r)
	return r, err
}

func openHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	var a reply
	if r.Absent == w.Rank {
		return json.Marshal(a)
	}
	j, err := openRank(ctx, w, r)
	if j == nil {
		return nil, err
	}
	w.State = j
	if err != nil {
		a.fail(err)
		a.Leaks = j.leaks()
	} else {
		a.Plugin = j.Comm.Transports()[0].PID()
	}
	return json.Marshal(a)
}

// leaks waits until everything of the job has gone, for at most two seconds,
// and returns what is still there. A driver may tell that a graph has gone after
// the communicator was closed; then it is for Collect to free what the graph held.
func (j *rank) leaks() []string {
	deadline := time.Now().Add(2 * time.Second)
	for {
		if err := host.Collect(); err != nil {
			return []string{err.Error()}
		}
		settle()
		now, err := measure(j.Job)
		if err != nil {
			return []string{err.Error()}
		}
		left := now.Since(j.before)
		// The runtime makes its poller and its wake-up descriptor on first use.
		left = slices.DeleteFunc(left, func(s string) bool {
			return s == "anon_inode:[eventpoll]" || s == "anon_inode:[eventfd]" || s == "/dev/null"
		})
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		runtime.Gosched()
	}
}

// trafficHandler runs collectives without end until one fails, closes the
// communicator and returns the error and what is left.
func trafficHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	var a reply
	if r.Absent == w.Rank {
		// In the process, but in no operation, until the others give up.
		for err = j.Comm.Err(); err == nil && ctx.Err() == nil; err = j.Comm.Err() {
			runtime.Gosched()
		}
	}
	for err == nil && ctx.Err() == nil {
		if err = j.operation(a.Operations, r.Bytes); err == nil {
			a.Operations++
		}
	}
	if err == nil {
		return nil, fmt.Errorf("nothing failed in %d operations", a.Operations)
	}
	if errors.Is(err, errWrong) {
		return nil, err
	}
	a.fail(err)
	a.closed(j.Leave())
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

func closeHandler(_ context.Context, w *pool.Worker, _ []byte) ([]byte, error) {
	var a reply
	j, ok := w.State.(*rank)
	if !ok {
		return json.Marshal(a)
	}
	if err := j.Leave(); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// limitHandler joins while one rank may open only a few more descriptors, and
// then again without the limit.
func limitHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	j, err := newRank(w, r)
	if err != nil {
		return nil, err
	}
	restore, err := r.limit(w.Rank)
	if err != nil {
		return nil, err
	}
	var a reply
	err = j.Join(ctx, r.Request)
	if err := restore(); err != nil {
		return nil, err
	}
	if err != nil {
		a.fail(err)
	} else if err := j.operation(0, 4096); err != nil {
		return nil, fmt.Errorf("joined, but the first operation failed: %w", err)
	}
	if err := j.Leave(); err != nil {
		return nil, fmt.Errorf("close: %w", err)
	}
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// limit leaves Spare descriptors to the rank Limited, or to every one if that is -1.
// restore lifts the limit; on the other ranks it does nothing.
func (r request) limit(rank int) (restore func() error, err error) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return nil, err
	}
	if r.Limited != rank && r.Limited >= 0 {
		return func() error { return nil }, nil
	}
	few := unix.Rlimit{Cur: limitFor(r.Spare), Max: old.Max}
	return func() error { return unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }, unix.Setrlimit(unix.RLIMIT_NOFILE, &few)
}

// limitFor returns the limit on descriptor numbers that leaves spare free ones.
// Open descriptors above it stay as they are.
func limitFor(spare int) uint64 {
	for fd := 0; ; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			continue
		}
		if spare == 0 {
			return uint64(fd)
		}
		spare--
	}
}
