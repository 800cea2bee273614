package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults storm", stormHandler) }

// phases lists what the ranks of a storm do, round after round, when a fault hits them.
var phases = []string{"init", "traffic", "split", "shrink", "close"}

// stormRequest is the request to the ranks of a storm. The fault comes in the round From, when the share Into of the
// time has passed that the phase took in the round before: the rank Victim tells the test through Mark, and does to
// itself what Lack and Signal say.
type stormRequest struct {
	request
	Phase  string
	Victim int
	From   int
	Into   float64
	Mark   string        // a FIFO
	For    time.Duration // without a failure the ranks end together so long after the fault
	Lack   string        // "descriptors": it loses all but Spare; "memory": all but Room; or ""
	Room   uint64
	Signal unix.Signal // for its plugin, if not 0
}

// weathered is the report of a rank of a storm.
type weathered struct {
	Failed reply
	Rounds int           // before the failure
	Left   []int32       // ranks of the world that this one went on with, in order; nil: it did not
	Why    string        // it did not
	Took   time.Duration // the round that failed
	Plugin int           // the process that the signal is for
	Leaks  []string
}

// stormHandler does one thing over and over until it fails, or all ranks agree
// that the time is over, and then continues with those that are left.
func stormHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	var r stormRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	j, ok := w.State.(*rank)
	if !ok {
		return nil, errors.New("no rank is open")
	}
	v := victim{stormRequest: r}
	defer v.restore()
	var s weathered
	for ctx.Err() == nil {
		round := time.Now()
		err := j.stormRound(ctx, r, &s, func(do func() error) error {
			if s.Rounds == r.From && w.Rank == r.Victim {
				s.Plugin = v.await(j.Comm)
			}
			began := time.Now()
			err := do()
			v.last = time.Since(began)
			return err
		})
		over := false
		if err == nil {
			over, err = j.agree(v.over())
		}
		if errors.Is(err, errWrong) {
			return nil, err
		}
		if err != nil {
			s.Failed.fail(err)
			s.Took = time.Since(round)
			break
		}
		s.Rounds++
		if over {
			break
		}
	}
	v.restore()
	if s.Failed.Code != plugin.OK && j.Comm != nil && r.lasts() {
		if err := j.goOn(ctx, &s); err != nil {
			s.Left, s.Why = nil, err.Error()
		}
	}
	if err := j.Leave(); err != nil {
		s.Failed.closed(err)
	}
	s.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// lasts reports whether every rank has a communicator at any time.
func (r stormRequest) lasts() bool { return r.Phase != "init" && r.Phase != "close" }

// victim is the rank that the fault hits.
type victim struct {
	stormRequest
	last   time.Duration // that the phase took in the round before
	plugin int

	mu     sync.Mutex
	struck time.Time
	old    map[int]unix.Rlimit
	done   bool // no fault comes any more
}

// await has the fault come at its time, and returns the process of the plugin.
func (v *victim) await(c *host.Communicator) int {
	if c != nil {
		v.plugin = c.Transports()[0].PID()
	}
	time.AfterFunc(time.Duration(v.Into*float64(v.last)), v.strike)
	return v.plugin
}

// strike says that the time has come. Where it cannot do the rest there is no fault, which the test notices.
func (v *victim) strike() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.done {
		return
	}
	v.struck, v.old = time.Now(), map[int]unix.Rlimit{}
	_ = os.WriteFile(v.Mark, []byte{1}, 0)
	switch v.Lack {
	case "descriptors":
		v.limit(unix.RLIMIT_NOFILE, limitFor(v.Spare))
	case "memory":
		v.limit(unix.RLIMIT_AS, addressSpace()+v.Room)
	}
	if v.Signal != 0 && v.plugin > 0 {
		_ = unix.Kill(v.plugin, v.Signal)
	}
}

func (v *victim) limit(resource int, most uint64) {
	var old unix.Rlimit
	if unix.Getrlimit(resource, &old) == nil {
		v.old[resource] = old
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: old.Max})
	}
}

// over reports whether this is the victim, and the time that others have to notice the fault has passed.
func (v *victim) over() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.struck.IsZero() && time.Since(v.struck) > v.For
}

// restore gives the rank back what it has lost.
func (v *victim) restore() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done = true
	for resource, old := range v.old {
		_ = unix.Setrlimit(resource, &old)
	}
}

// addressSpace returns the number of bytes of address space that this process uses.
func addressSpace() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// stormRound does one round, and its phase inside phase.
func (j *rank) stormRound(ctx context.Context, r stormRequest, s *weathered, phase func(do func() error) error) error {
	switch r.Phase {
	case "split":
		return phase(func() error { return j.split(ctx) })
	case "shrink":
		var next *host.Communicator
		if err := phase(func() (err error) { next, err = j.Comm.Shrink(ctx); return err }); err != nil {
			return err
		}
		if next.World() != j.Comm.World() {
			// A rank is missing for a reason that the old communicator has, or gets soon.
			err := j.Comm.Err()
			for deadline := time.Now().Add(2 * time.Second); err == nil && time.Now().Before(deadline); err = j.Comm.Err() {
				runtime.Gosched()
			}
			if err == nil {
				err = fmt.Errorf("%w: a world of %d shrank to %d without a failure", errWrong, j.Comm.World(), next.World())
			}
			return errors.Join(err, next.Close())
		}
		if err := j.Leave(); err != nil {
			return err
		}
		j.Comm = next
		return j.Sum(next)
	case "init", "close":
		again := r.Request
		again.ID += fmt.Sprint("-", s.Rounds)
		leave, join := j.Leave, func() error { return j.Join(ctx, again) }
		if r.Phase == "close" {
			leave = func() error {
				err := phase(j.Leave)
				if r.Signal != 0 { // it is closed all the same
					s.Failed.closed(err)
					return nil
				}
				return err
			}
		} else {
			join = func() error { return phase(func() error { return j.Join(ctx, again) }) }
		}
		if err := leave(); err != nil {
			return err
		}
		if err := join(); err != nil {
			return err
		}
		return j.Sum(j.Comm)
	}
	return phase(func() error { return j.operation(s.Rounds, r.Bytes) })
}

// split makes a communicator of all ranks, uses it and closes it.
func (j *rank) split(ctx context.Context) error {
	c, err := j.Comm.Split(ctx, 0, j.Comm.Rank())
	if err != nil {
		return err
	}
	return errors.Join(j.Sum(c), c.Close())
}

// agree reports whether a rank says that it is over.
func (j *rank) agree(over bool) (bool, error) {
	send, recv := (*int32)(unsafe.Pointer(&j.Bytes[0])), (*int32)(unsafe.Pointer(&j.Bytes[4]))
	old := [2]int32{*send, *recv} // operation fills the memory once only
	defer func() { *send, *recv = old[0], old[1] }()
	*send = 0
	if over {
		*send = 1
	}
	err := j.Comm.AllReduce(j.Pointer(0), j.Pointer(4), 1, plugin.Int32, plugin.OpMax, nil)
	return *recv != 0, err
}

// goOn makes a communicator of those that are left, which exchange the ranks that they were.
func (j *rank) goOn(ctx context.Context, s *weathered) error {
	me := int32(j.Comm.Rank()) // in every phase that comes here, that of the first world
	for {
		next, err := j.Comm.Shrink(ctx)
		if err != nil {
			return err
		}
		if err := j.Leave(); err != nil {
			return errors.Join(err, next.Close())
		}
		j.Comm = next
		left, err := gather(j.Job, next, me)
		if err == nil {
			s.Left = left
			return nil
		}
		if plugin.CodeOf(err) != plugin.PeerDied || ctx.Err() != nil {
			return err
		}
	}
}

func gather(j *job.Job, c *host.Communicator, mine int32) ([]int32, error) {
	all := unsafe.Slice((*int32)(unsafe.Pointer(&j.Bytes[0])), 1+c.World())
	all[0] = mine
	if err := c.AllGather(j.Pointer(0), j.Pointer(4), 1, plugin.Int32, nil); err != nil {
		return nil, err
	}
	return append([]int32(nil), all[1:]...), nil
}
