package endpoints

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// watch looks after the work on a GPU, beside the operations.
type watch struct {
	late    diagnosis.Late     // which rank is behind; only the goroutine uses it
	stop    context.CancelFunc // ends the goroutines; nil: none has begun
	done    sync.WaitGroup
	outlast func() error // see outlive
}

// Watch begins to look after the work on the GPU, once the communicator is whole and until Halt; for host memory
// nothing is to be done.
func (s *Set) Watch(ctx context.Context) {
	if s.GPU == nil {
		return
	}
	ctx, s.watch.stop = context.WithCancel(ctx)
	begin := func(keep func(context.Context)) { s.watch.done.Go(func() { keep(ctx) }) }
	begin(s.watchGPU)
	if s.Buffers != nil {
		begin(s.Buffers.Keep)
	}
	if s.Engines != nil {
		begin(s.Engines.Keep)
	}
}

func (s *Set) watchGPU(ctx context.Context) {
	ticker := time.NewTicker(s.Lookout)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.Look()
			s.check()
			s.findLate(time.Now())
		}
	}
}

// Look finds faults that the GPU's kernels have reported, and ranks that contradict each other. It runs every now and
// then, and before a caller relies on a result. It calls no driver.
func (s *Set) Look() { s.look(false) }

// Glance is Look without its wait: what may soon have a better reason is left to the one that watches.
func (s *Set) Glance() { s.look(true) }

func (s *Set) look(atOnce bool) {
	kind, peer, _ := s.GPU.Exec.Fault()
	switch {
	case kind == plugin.FaultNone || s.Failure.Reason() != nil:
	case kind == plugin.FaultEngine:
		s.lookAtEngine(atOnce)
	default:
		s.Fail(s.Fault(kind, peer, s.GPU.Exec.Compared, &s.GPU.Flights), true)
	}
}

// lookAtEngine fails the communicator as one of its engine steps has failed.
func (s *Set) lookAtEngine(atOnce bool) {
	f, base := s.GPU.Exec.EngineFailure()
	if f == nil {
		s.Fail(&plugin.Error{Code: plugin.Timeout, Rank: s.Rank, Message: fmt.Sprintf("the proxy of engine steps on rank %d has not replied to a kernel for %v: native code of a transport blocks in start or poll", s.Rank, s.Timeout())}, true)
		return
	}
	// The end of a peer is reported elsewhere with a better reason than a lost connection has: wait for that.
	if atOnce && f.Code == plugin.PeerDied {
		return
	}
	for end := time.Now().Add(time.Second); f.Code == plugin.PeerDied && time.Now().Before(end); {
		if s.Failure.Reason() != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	reason := &plugin.Error{Code: f.Code, Rank: s.Rank}
	if f.Rank >= 0 {
		reason.Rank = f.Rank
	}
	reason.Message = fmt.Sprintf("transport %s on rank %d: %s", s.NameAt(base), s.Rank, f.Reason)
	s.Fail(reason, true)
}

// NameAt returns the name of the transport whose endpoint has a base.
func (s *Set) NameAt(base uint32) string {
	for _, e := range s.List {
		if e.Base == base {
			return e.Name
		}
	}
	return ""
}

// check finds what has failed in the transports between calls.
func (s *Set) check() {
	for _, e := range s.List {
		if err := e.Check(); err != nil && s.Failure.Reason() == nil {
			s.Fail(&plugin.Error{Code: plugin.CodeOf(err), Rank: s.Rank,
				Message: fmt.Sprintf("transport %s on rank %d: %s", e.Name, s.Rank, err)}, true)
		}
	}
}

// findLate fails the communicator where what this rank has enqueued waits for a rank that will not come.
func (s *Set) findLate(now time.Time) {
	ours := slices.ContainsFunc(s.List, func(e *Endpoint) bool { return e.Enqueues.Load() })
	if reason := s.watch.late.Look(s.Observer, &s.GPU.Flights, ours, s.GPU.Exec.Idle, now); reason != nil {
		s.Fail(reason, true)
	}
}

// graceful is the time that operations in flight have after a failure that does not concern them: the plugin's process
// is gone, but not what it made.
const graceful = 2 * time.Second

// Abort ends the GPU's operations: at once, but after the loss of a plugin only those that have not ended by themselves
// within a while. And it tells every endpoint that the communicator has failed. It waits for none, and may be called
// from any goroutine.
func (s *Set) Abort(reason *plugin.Error) {
	switch {
	case s.GPU == nil:
	case reason.Code == plugin.PluginDied:
		time.AfterFunc(graceful, s.GPU.Exec.Abort)
	default:
		s.GPU.Exec.Abort()
	}
	s.tell(reason)
}

func (s *Set) tell(reason *plugin.Error) {
	if list := s.told.Load(); list != nil {
		for _, e := range *list {
			go e.told.Do(func() { e.Abort(reason.Message) })
		}
	}
}

// Halt ends what runs beside the operations, before anything is released, and the making of memory that is deferred:
// peers still get what this rank has made.
func (s *Set) Halt() error {
	if s.watch.stop != nil {
		s.watch.stop()
		s.watch.done.Wait()
	}
	for _, e := range s.List {
		e.deferred.End()
	}
	if s.GPU == nil {
		return nil
	}
	return s.outlive()
}

// outlive has what still runs when the communicator is closed looked at once it has ended: nothing else would report
// its failure. What is known by the end of Close, that returns; what comes later is logged.
func (s *Set) outlive() error {
	var failed atomic.Pointer[plugin.Error]
	o, exec := s.Observer, s.GPU.Exec
	look := sync.OnceFunc(func() {
		kind, peer, _ := exec.Fault()
		if kind == plugin.FaultNone || o.Failure.Reason() != nil {
			return
		}
		reason := o.FaultOnceClosed(kind, peer)
		o.Logger.Error("operations of a closed communicator have failed, and their results are not there", "communicator",
			o.Label, "rank", o.Rank, "reason", reason.Message)
		failed.Store(reason)
	})
	s.watch.outlast = func() error {
		if !exec.Idle() {
			go func() {
				for !exec.Idle() {
					time.Sleep(s.Lookout)
				}
				look()
			}()
		}
		if reason := failed.Load(); reason != nil {
			return reason
		}
		return nil
	}
	return exec.Later(func() error { look(); return nil }) // before what it looks at goes
}
