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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
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

// request is what every handler here takes.
type request struct {
	Transport string
	ID        string
	Timeout   time.Duration
	Absent    int   // this rank stays away; -1: none
	Spare     int   // limit: descriptors that the rank Limited may still open
	Limited   int   // limit: the rank
	Rounds    int   // soak
	Bytes     int64 // traffic: size of the largest message
	Left      int   // shrink: ranks that are left at the end
}

// answer is what every handler here gives. A fault's error is an answer, not a
// failure of the handler: the test judges it.
type answer struct {
	Code       plugin.Code
	Rank       int // of the error: where it began
	Message    string
	At         time.Time // when the error came
	Operations int       // that succeeded before
	Plugin     int       // process of the transport, 0 for builtin and shared
	Close      string    // what closing said
	CloseCode  plugin.Code
	Leaks      []string // what is left after closing
	Before     Resources
	After      Resources
}

func (a *answer) fail(err error) {
	a.At = time.Now()
	a.Code, a.Rank, a.Message = plugin.CodeOf(err), -1, err.Error()
	var e *plugin.Error
	if errors.As(err, &e) {
		a.Rank = e.Rank
	}
}

// job is what a worker keeps between open and traffic.
type job struct {
	comm   *host.Communicator
	before Resources
	memory []byte
}

// newJob measures the process before anything is opened.
func newJob() (*job, error) {
	settle()
	before, err := Measure()
	return &job{before: before}, err
}

func (j *job) join(ctx context.Context, w *pool.Worker, r request) (err error) {
	j.comm, err = host.Init(ctx, host.Options{Rank: w.Rank, World: w.World, ID: r.ID, Transports: []string{r.Transport}, Timeout: r.Timeout})
	return err
}

func openJob(ctx context.Context, w *pool.Worker, r request) (*job, error) {
	j, err := newJob()
	if err != nil {
		return nil, err
	}
	return j, j.join(ctx, w, r)
}

// settle lets go of what the runtime would let go of at some time.
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
	var a answer
	if r.Absent == w.Rank {
		return json.Marshal(a)
	}
	j, err := openJob(ctx, w, r)
	if j == nil {
		return nil, err
	}
	w.State = j
	if err != nil {
		a.fail(err)
		a.Leaks = j.leaks()
	} else {
		a.Plugin = j.comm.Transports()[0].PID()
	}
	return json.Marshal(a)
}

// leaks waits until everything of the job has gone, for at most two seconds,
// and answers what is still there.
func (j *job) leaks() []string {
	deadline := time.Now().Add(2 * time.Second)
	for {
		settle()
		now, err := Measure()
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

func (j *job) close() error {
	if j.comm == nil {
		return nil
	}
	err := j.comm.Close()
	j.comm = nil
	return err
}

// trafficHandler runs collectives without end until one fails, closes the
// communicator and answers the error and what is left.
func trafficHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	j, ok := w.State.(*job)
	if !ok || j.comm == nil {
		return nil, errors.New("traffic without a communicator")
	}
	var a answer
	if r.Absent == w.Rank {
		// In the process, but in no operation, until the others give up.
		for err = j.comm.Err(); err == nil && ctx.Err() == nil; err = j.comm.Err() {
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
	a.fail(err)
	if err := j.close(); err != nil {
		a.Close, a.CloseCode = err.Error(), plugin.CodeOf(err)
	}
	if err := j.release(); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	return json.Marshal(a)
}

// operation runs one of a rotation of collectives, small and large.
func (j *job) operation(number int, most int64) error {
	world := int64(j.comm.World())
	if j.memory == nil {
		var err error
		if j.memory, err = unix.Mmap(-1, 0, int(2*world*most+64), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
			return err
		}
	}
	bytes := []int64{8, most, 4096, most / 3 &^ 3}[number%4]
	send, recv := unsafe.Pointer(&j.memory[0]), unsafe.Pointer(&j.memory[world*most])
	root := number % j.comm.World()
	n := bytes / 4
	switch number / 4 % 7 {
	case 0:
		return j.comm.AllReduce(send, recv, n, plugin.Float32, plugin.OpSum, nil)
	case 1:
		return j.comm.AllGather(send, recv, n, plugin.Float32, nil)
	case 2:
		return j.comm.AllToAll(send, recv, n, plugin.Float32, nil)
	case 3:
		return j.comm.Broadcast(send, recv, n, plugin.Float32, root, nil)
	case 4:
		return j.comm.Reduce(send, recv, n, plugin.Float32, plugin.OpMax, root, nil)
	case 5:
		return j.comm.ReduceScatter(send, recv, n, plugin.Float32, plugin.OpSum, nil)
	}
	return j.comm.Barrier(nil)
}

func (j *job) release() error {
	if j.memory == nil {
		return nil
	}
	err := unix.Munmap(j.memory)
	j.memory = nil
	return err
}

func closeHandler(_ context.Context, w *pool.Worker, _ []byte) ([]byte, error) {
	var a answer
	j, ok := w.State.(*job)
	if !ok {
		return json.Marshal(a)
	}
	if err := errors.Join(j.close(), j.release()); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	return json.Marshal(a)
}

// limitHandler joins while one rank may open only a few more descriptors, and
// then again without the limit.
func limitHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return nil, err
	}
	j, err := newJob()
	if err != nil {
		return nil, err
	}
	if w.Rank == r.Limited {
		limit := unix.Rlimit{Cur: limitFor(r.Spare), Max: old.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, err
		}
	}
	var a answer
	err = j.join(ctx, w, r)
	if restore := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); restore != nil {
		return nil, restore
	}
	if err != nil {
		a.fail(err)
	} else if err := j.operation(0, 4096); err != nil {
		return nil, fmt.Errorf("joined, but the first operation failed: %w", err)
	}
	if err := errors.Join(j.close(), j.release()); err != nil {
		return nil, fmt.Errorf("close: %w", err)
	}
	a.Leaks = j.leaks()
	return json.Marshal(a)
}

// limitFor is the limit on descriptor numbers that leaves spare free ones.
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
