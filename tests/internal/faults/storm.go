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

// phases lists what the ranks of a storm do when a fault hits them.
var phases = []string{"traffic", "split", "shrink", "life"}

// stormRequest is the request to the ranks of a storm.
type stormRequest struct {
	request
	Phase string
	For   time.Duration // without a failure they end together after so long
	// when the rank Limited loses all descriptors but Spare, and the rank Starved all memory but Room
	After   time.Duration
	Starved int // -1: none
	Room    uint64
}

// weathered is the report of a rank of a storm.
type weathered struct {
	Failed reply
	Rounds int           // before the failure
	Left   []int32       // ranks of the world that this one went on with, in order; nil: it did not
	Why    string        // it did not
	Took   time.Duration // the round that failed
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
	restore, err := r.curtail(w.Rank)
	if err != nil {
		return nil, err
	}
	defer restore()
	var s weathered
	began := time.Now()
	for ctx.Err() == nil {
		round := time.Now()
		err := j.stormRound(ctx, r, s.Rounds)
		over := false
		if err == nil {
			over, err = j.agree(time.Since(began) > r.For)
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
	restore()
	if s.Failed.Code != plugin.OK && j.Comm != nil && r.Phase != "life" {
		if err := j.goOn(ctx, &s); err != nil {
			s.Left, s.Why = nil, err.Error()
		}
	}
	s.Failed.closed(j.Leave())
	s.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// curtail takes descriptors or address space from a rank when the time comes; restore gives them back.
func (r stormRequest) curtail(rank int) (restore func(), err error) {
	var resource int
	var limit func() uint64
	switch rank {
	case r.Limited:
		resource, limit = unix.RLIMIT_NOFILE, func() uint64 { return limitFor(r.Spare) }
	case r.Starved:
		resource, limit = unix.RLIMIT_AS, func() uint64 { return addressSpace() + r.Room }
	default:
		return func() {}, nil
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(resource, &old); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	over := false
	timer := time.AfterFunc(r.After, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: limit(), Max: old.Max}) // no fault then, which the test notices
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
		_ = unix.Setrlimit(resource, &old) // back to what it was
	}, nil
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

func (j *rank) stormRound(ctx context.Context, r stormRequest, number int) error {
	switch r.Phase {
	case "split":
		c, err := j.Comm.Split(ctx, 0, j.Comm.Rank())
		if err != nil {
			return err
		}
		return errors.Join(j.Sum(c), c.Close())
	case "shrink":
		next, err := j.Comm.Shrink(ctx)
		if err != nil {
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
	case "life":
		if number > 0 {
			if err := j.Leave(); err != nil {
				return err
			}
			again := r.Request
			again.ID += fmt.Sprint("-", number)
			if err := j.Join(ctx, again); err != nil {
				return err
			}
		}
		return j.Sum(j.Comm)
	}
	return j.operation(number, r.Bytes)
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
