package plantest

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// Planner returns the plan of req.Rank for one algorithm.
type Planner func(req plugin.Request, algorithm string) (*plugin.Plan, error)

// World is the ranks of a test.
type World struct {
	Size int

	t        testing.TB
	planner  Planner
	ranks    []*member
	memory   map[place]executor.Memory
	deadline time.Duration
}

// place is a region of a rank.
type place struct {
	region uint32
	rank   int
}

// member is one rank: its engine and the programs it has loaded.
type member struct {
	rank     int
	engine   *executor.Engine
	programs map[programKey]*executor.Program
}

type programKey struct {
	collective plugin.Collective
	dtype      plugin.DType
	op         plugin.Op
	algorithm  string
}

// Open maps the regions of one endpoint for each rank and makes the engines.
// A nil planner asks the endpoints. Everything is closed when the test ends,
// endpoints included.
func Open(t testing.TB, endpoints []plugin.Endpoint, planner Planner) *World {
	t.Helper()
	w := &World{Size: len(endpoints), t: t, planner: planner, deadline: 20 * time.Second,
		memory: map[place]executor.Memory{}}
	if planner == nil {
		w.planner = func(req plugin.Request, algorithm string) (*plugin.Plan, error) {
			return endpoints[req.Rank].Prepare(context.Background(), req, algorithm)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pages := make([]executor.Memory, w.Size)
	for r := range endpoints {
		pages[r] = w.mapMemory(-1, executor.ControlBytes)
		engine, err := executor.NewEngine(r, w.Size)
		check(err)
		engine.SetOversubscribed(w.Size > runtime.NumCPU())
		w.ranks = append(w.ranks, &member{rank: r, engine: engine, programs: map[programKey]*executor.Program{}})
	}
	t.Cleanup(func() {
		for r, m := range w.ranks {
			for _, p := range m.programs {
				p.Free()
			}
			m.engine.Close()
			check(endpoints[r].Close())
		}
	})
	for r, e := range endpoints {
		for _, region := range e.Regions() {
			w.share(region, r)
		}
		for _, m := range w.ranks {
			check(m.engine.SetControl(r, pages[r]))
			check(m.engine.SetPeerProcess(r, os.Getpid())) // plans may copy from peers' memory
		}
	}
	return w
}

// Window gives rank's region, made by an endpoint, to all ranks.
func (w *World) Window(region plugin.Region, rank int) executor.Memory { return w.share(region, rank) }

func (w *World) share(region plugin.Region, rank int) executor.Memory {
	w.t.Helper()
	memory := w.mapMemory(region.Handle.FD, region.Bytes)
	w.memory[place{region.ID, rank}] = memory
	for _, m := range w.ranks {
		if err := m.engine.SetRegion(0, region.ID, rank, memory); err != nil {
			w.t.Fatal(err)
		}
	}
	return memory
}

// mapMemory maps a descriptor, or anonymous memory for -1.
func (w *World) mapMemory(fd int, bytes int64) executor.Memory {
	w.t.Helper()
	flags := unix.MAP_SHARED
	if fd < 0 {
		flags |= unix.MAP_ANONYMOUS
	}
	b, err := unix.Mmap(fd, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			w.t.Error(err)
		}
	})
	return executor.Memory{Base: unsafe.Pointer(&b[0]), Bytes: bytes}
}

// program returns the loaded plan of one rank for an operation.
func (w *World) program(m *member, o *Operation, collective plugin.Collective) (*executor.Program, error) {
	key := programKey{collective, o.DType, o.Op, o.Algorithm}
	if p := m.programs[key]; p != nil {
		return p, nil
	}
	plan, err := w.planner(plugin.Request{
		Collective: collective, DType: o.DType, Op: o.Op, World: w.Size, Hosts: 1, Rank: m.rank, PeerRead: true,
	}, o.Algorithm)
	if err != nil {
		return nil, err
	}
	p, err := m.engine.Load(plan, 0)
	if err != nil {
		return nil, err
	}
	m.programs[key] = p
	return p, nil
}

// Each runs body for every rank at the same time. The first error aborts the
// other ranks and is returned.
func (w *World) Each(body func(rank int) error) error {
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for r := range w.ranks {
		wg.Go(func() {
			if err := body(r); err != nil {
				once.Do(func() {
					first = err
					for _, m := range w.ranks {
						m.engine.Abort(plugin.Aborted, r)
					}
				})
			}
		})
	}
	wg.Wait()
	return first
}

// Run has every rank execute the operations in order, at its own pace, and
// checks every result. between, if not nil, is called on each rank before each
// operation.
func (w *World) Run(operations []Operation, between func(rank, index int)) error {
	return w.Each(func(rank int) error { return w.runAll(rank, operations, between) })
}

func (w *World) runAll(rank int, operations []Operation, between func(rank, index int)) error {
	for i := range operations {
		if between != nil {
			between(rank, i)
		}
		if err := w.execute(w.ranks[rank], &operations[i], i); err != nil {
			return errors.Join(plugin.Errorf(plugin.CodeOf(err), "operation %d (%s) on rank %d", i, &operations[i], rank), err)
		}
	}
	return nil
}

// Repeat has every rank, locked to a thread, execute one operation n times
// over the same memory, without checking results. It returns how long the
// slowest rank took, from the moment when all were ready.
func (w *World) Repeat(o *Operation, n int) (time.Duration, error) {
	var ready sync.WaitGroup
	ready.Add(w.Size)
	took := make([]time.Duration, w.Size)
	err := w.Each(func(rank int) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		m := w.ranks[rank]
		p, err := w.program(m, o, o.Collective)
		job := o.prepare(w.Size, rank, 0)
		ready.Done()
		if err != nil {
			return err
		}
		ready.Wait()
		start := time.Now()
		for range n {
			if err := m.engine.Run(p, &job.args, w.deadline); err != nil {
				return err
			}
		}
		took[rank] = time.Since(start)
		return nil
	})
	return slices.Max(took), err
}
