package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// Whichever call of the driver fails on one rank, in whichever step of a communicator's life: no rank waits for its
// timeout, the next call gives the same on all ranks, everything is given back, and what the driver did not give back
// is named by an error or in the log.
func TestAnyCallOfTheDriverMayFail(t *testing.T) {
	for at, made := range observedLife(t) {
		for _, method := range slices.Sorted(maps.Keys(made)) {
			for after := range made[method] {
				if n := made[method]; n > 10 && after > 1 && after < n-1 || after > 0 && (testing.Short() || oncePerStep) {
					continue // most likely as those before it
				}
				t.Run(fmt.Sprintf("%s/%s %d", lifeSteps[at].name, method, after), func(t *testing.T) {
					lives := liveTogether(t, func(step int, d *cudatest.Driver) {
						if step == at {
							d.Fail(method, after, cuda.OutOfMemory)
						}
					})
					released := slices.ContainsFunc([]string{"Close", "Destroy", "Free", "Release", "Un"},
						func(verb string) bool { return strings.HasPrefix(method, verb) })
					for i, l := range lives {
						require.NotEqual(t, plugin.Timeout, plugin.CodeOf(l.err), "rank %d: %v", i, l.err)
						require.NotEqual(t, plugin.Timeout, plugin.CodeOf(l.next), "rank %d: %v", i, l.next)
						require.Equal(t, lives[0].next == nil, l.next == nil, "rank %d: %v, rank 0: %v", i, l.next, lives[0].next)
						require.NoError(t, l.own, "rank %d", i)
						require.Empty(t, l.hazards, "rank %d", i)
						if released && i == failing && strings.Contains(l.log.String(), "CUDA_ERROR_OUT_OF_MEMORY") {
							continue
						}
						require.Empty(t, l.leaks, "rank %d: %s", i, &l.log)
					}
				})
			}
		}
	}
}

const failing = 1 // the rank whose driver fails

// programs are calls of the driver that only programs make.
var programs = []string{"BeginCapture", "DestroyGraph", "DestroyGraphExec", "EndCapture", "Instantiate", "LaunchGraph"}

// observedLife returns the calls of the driver in each step of a life in which none fails.
func observedLife(t *testing.T) []map[string]int {
	var made []map[string]int
	var before map[string]int
	lives := liveTogether(t, func(_ int, d *cudatest.Driver) {
		now := d.Calls()
		for method := range now {
			if slices.Contains(programs, method) {
				delete(now, method)
			}
		}
		if before != nil {
			since := maps.Clone(now)
			for method, n := range before {
				since[method] -= n
			}
			made = append(made, since)
		}
		before = now
	})
	for _, l := range lives {
		require.NoError(t, errors.Join(l.err, l.next, l.own))
		require.Empty(t, l.leaks)
	}
	return made
}

// life says how a rank lives and ends.
type life struct {
	*rank
	b      []cuda.Ptr
	memory cuda.Mapping
	config host.Options
	over   *atomic.Bool // a step has failed on some rank

	window           *host.Window
	plain, symmetric *host.Allocator
	undo             []func() error

	log     bytes.Buffer
	err     error // of the step that failed
	next    error // of a call after it
	own     error // of the program's own calls, and of what must not fail twice
	leaks   []string
	hazards []string
}

func (l *life) later(undo func() error) { l.undo = append(l.undo, undo) }

func (l *life) sum() error {
	return l.AllReduce(pointer(l.b[0]), pointer(l.b[1]), 10, plugin.Float32, plugin.OpSum, l)
}

func (l *life) gather(recv cuda.Ptr) error {
	return errors.Join(l.AllGather(pointer(l.b[0]), pointer(recv), long, plugin.Float32, l), l.sync())
}

// lifeSteps are the steps of a life. They end where one fails on any rank, but the last two come always.
var lifeSteps = []struct {
	name string
	do   func(l *life) error
}{
	{"init", func(l *life) (err error) {
		l.Communicator, err = host.Init(context.Background(), l.config)
		return err
	}},
	{"all_reduce", func(l *life) error { return errors.Join(l.sum(), l.sync()) }},
	{"all_gather", func(l *life) error { return l.gather(l.b[2]) }},
	{"register", func(l *life) error {
		l.later(func() error { return l.Deregister(pointer(l.b[2])) })
		return l.Register(pointer(l.b[2]), 2*long*4)
	}},
	{"register_symmetric", func(l *life) error {
		l.later(func() error { return l.Deregister(pointer(l.memory.Address)) })
		return errors.Join(l.RegisterSymmetric(pointer(l.memory.Address), l.memory.Bytes), l.gather(l.memory.Address))
	}},
	{"window", func(l *life) (err error) {
		if l.window, err = l.NewWindow(context.Background(), 4096); err != nil {
			return err
		}
		l.later(l.window.Close)
		w, peer := l.window.On(l), 1-l.Rank()
		return errors.Join(w.Signal(peer), w.Wait(peer, 1), l.sync())
	}},
	{"allocator", func(l *life) (err error) {
		if l.plain, err = l.NewAllocator(host.AllocatorOptions{SegmentBytes: 2 << 20}); err != nil {
			return err
		}
		l.later(l.plain.Destroy)
		block, err := l.plain.Alloc(1<<20, l)
		if err == nil {
			l.later(func() error { return l.freeBlock(block) })
		}
		return err
	}},
	{"symmetric allocator", func(l *life) (err error) {
		if l.symmetric, err = l.NewAllocator(host.AllocatorOptions{Symmetric: true, SegmentBytes: 1}); err == nil {
			l.later(l.symmetric.Destroy)
		}
		return err
	}},
	{"reserve", func(l *life) error { return l.symmetric.Reserve(4096) }},
	{"capture", func(l *life) error {
		began := l.driver.BeginCapture(l.ctx, l.stream)
		block, err := l.plain.Alloc(1<<19, l)
		if err == nil {
			err = l.freeBlock(block)
		}
		err = errors.Join(began, err, l.sum())
		graph, ended := l.driver.EndCapture(l.ctx, l.stream)
		l.later(func() error { return l.driver.DestroyGraph(graph) })
		return errors.Join(err, ended)
	}},
	{"close", func(l *life) error {
		var errs []error
		for _, undo := range slices.Backward(l.undo) {
			errs = append(errs, undo())
		}
		if l.Communicator != nil {
			errs = append(errs, l.Close())
		}
		return errors.Join(append(errs, host.Collect())...)
	}},
}

// freeBlock frees memory of the plain allocator, in the second attempt where the first one fails.
func (l *life) freeBlock(block unsafe.Pointer) error {
	err := l.plain.Free(block, l)
	if err != nil {
		l.own = l.plain.Free(block, l)
	}
	return err
}

// disarm ends what is to fail and has not.
func (l *life) disarm() {
	for method := range l.driver.Calls() {
		l.driver.Fail(method, 0, cuda.Success)
	}
}

// live goes through the steps. begin is called before each on the rank whose driver fails, and after the last.
func (l *life) live(i int, begin func(step int, d *cudatest.Driver)) {
	last := len(lifeSteps) - 1
	step := func(at int) error {
		if i == failing {
			begin(at, l.driver)
		}
		l.all.meet()
		err := lifeSteps[at].do(l)
		if err != nil {
			l.over.Store(true)
			l.config.Logger.Warn("a step failed", "step", lifeSteps[at].name, "error", err)
		}
		l.disarm()
		l.all.meet()
		return err
	}
	for at := 0; at < last && !l.over.Load(); at++ {
		l.err = step(at)
	}
	if l.Communicator != nil {
		l.next = errors.Join(l.sum(), l.sync())
	}
	if err := step(last); l.err == nil {
		l.err = err
	}
	if i == failing {
		begin(last+1, l.driver)
	}
}

// liveTogether runs the lives of two ranks.
func liveTogether(t *testing.T, begin func(step int, d *cudatest.Driver)) []*life {
	t.Helper()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	lives, byDevice := make([]*life, 2), map[int]*cudatest.Driver{}
	var over atomic.Bool
	all := &company{ranks: len(lives)}
	all.here.L = &all.mu
	for i := range lives {
		d := cudatest.New(cudatest.Options{Devices: len(lives), Kernels: cudaipctest.Kernels()})
		l := &life{rank: &rank{driver: d, all: all}, config: options(id, i, len(lives)), over: &over}
		o := &l.config
		o.Transports, o.Memory, o.Device, o.Driver = []string{"builtin:cudaipc"}, plugin.MemoryKindCuda, i, d
		o.Logger = slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		lives[i], byDevice[i] = l, d
	}
	machine.Lock()
	machine.drivers = byDevice
	machine.Unlock()
	var wg sync.WaitGroup
	for i, l := range lives {
		wg.Go(func() {
			defer all.leave()
			d := l.driver
			l.ctx, _ = d.Retain(i)
			l.stream, _ = d.NewStream(l.ctx, 0)
			l.memory, _ = d.CreateMemory(l.ctx, i, 2*long*4)
			for _, n := range []int{long, 10, 2 * long} {
				p, err := l.floats(ramp(i, n))
				l.own, l.b = errors.Join(l.own, err), append(l.b, p)
			}
			l.live(i, begin)
			l.own = errors.Join(l.own, host.Collect(), d.SynchronizeStream(l.ctx, l.stream), l.free(l.b...),
				d.Unmap(l.ctx, l.memory), d.DestroyStream(l.ctx, l.stream), d.Release(i))
			all.meet()
			l.leaks, l.hazards = d.Leaks(), d.Hazards()
			d.Close()
		})
	}
	wg.Wait()
	return lives
}
