package endpoints

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a transport whose endpoints have what a test gives them.
type fake struct {
	plugin.Transport
	open func(plugin.OpenConfig) (plugin.Endpoint, error)
}

func (f fake) Open(_ context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) { return f.open(c) }

type endpoint struct {
	plugin.Endpoint
	regions []plugin.Region
	images  []plugin.Image
	failure error // of closing it
	closed  bool
}

func (e *endpoint) Regions() []plugin.Region { return e.regions }
func (e *endpoint) Images() []plugin.Image   { return e.images }
func (e *endpoint) Close() error {
	e.closed = true
	return e.failure
}

// of returns a transport for the kind of memory of the tests, whose endpoints are given.
func of(name string, memory plugin.MemoryKind, open func(plugin.OpenConfig) (plugin.Endpoint, error)) *carrier.Loaded {
	return &carrier.Loaded{Info: plugin.Info{Name: name, Memory: []plugin.MemoryKind{memory}}, Transport: fake{open: open}}
}

func none(string) map[string]string { return nil }

// aSet returns the endpoints of a rank that has no group yet. The ranks are on one host, each with a GPU.
func aSet(rank, world int, kind plugin.MemoryKind) *Set {
	places := make([]topology.Place, world)
	for i := range places {
		places[i] = topology.Local()
		places[i].GPUs = []topology.GPU{{UUID: string(rune('a' + i)), PCI: "bus " + string(rune('a'+i))}}
	}
	o := &diagnosis.Observer{Rank: rank, World: world, Label: "world",
		Logger: slog.New(slog.DiscardHandler), Topology: topology.New(places)}
	o.SetTimeout(15 * time.Second)
	return &Set{Observer: o, Plans: &plans.Planner{Observer: o, Memory: kind, Absent: map[string]string{}}}
}

// eachRank joins so many ranks of this process, runs body on each with endpoints that have an executor, of the CPU and
// on CUDA memory of a GPU too, closes them, and returns each rank's error.
func eachRank(t *testing.T, n int, kind plugin.MemoryKind, body func(ctx context.Context, s *Set) error) []error {
	t.Helper()
	id, root, err := bootstrap.NewID("127.0.0.1:0")
	require.NoError(t, err)
	defer root.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			s := aSet(rank, n, kind)
			session, err := bootstrap.Join(ctx, bootstrap.Config{Rank: rank, World: n, ID: id, HaveID: true,
				Timeout: s.Timeout()})
			if err != nil {
				errs[rank] = err
				return
			}
			s.Group = session.All()
			if s.Engine, err = executor.NewEngine(rank, n); err != nil {
				t.Error(err)
			}
			release := addGPU(t, s)
			errs[rank] = body(ctx, s)
			s.Engine.Close()
			if err := s.Close(); err != nil {
				t.Errorf("closing rank %d's: %v", rank, err)
			}
			release()
			if err := session.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
	return errs
}

// addGPU gives a rank on CUDA memory a GPU in memory. release checks that nothing is left on it.
func addGPU(t *testing.T, s *Set) (release func()) {
	if s.Plans.Memory != plugin.MemoryKindCuda {
		return func() {}
	}
	driver := cudatest.New(cudatest.Options{Devices: s.World})
	context, err := driver.Retain(s.Rank)
	if err == nil {
		s.GPU, err = NewGPU(driver, context, cuda.DeviceInfo{Ordinal: s.Rank, Bus: "bus"}, s.Rank, s.World, 0)
	}
	if err != nil {
		t.Error(err)
		return driver.Close
	}
	return func() {
		if err := driver.Release(s.Rank); err != nil {
			t.Error(err)
		}
		if leaks := driver.Leaks(); len(leaks) > 0 {
			t.Errorf("rank %d's GPU still has %v", s.Rank, leaks)
		}
		driver.Close()
	}
}

// hostRegion makes a region of host memory, which lasts as long as the test.
func hostRegion(t *testing.T, id uint32, role plugin.RegionRole) plugin.Region {
	segment, err := memory.NewSegment("shunt-test", 1<<20)
	if err != nil {
		t.Error(err)
		return plugin.Region{}
	}
	t.Cleanup(func() { _ = segment.CloseFD() })
	r := segment.Region()
	r.ID, r.Role = id, role
	return r
}

// openAll opens endpoints, and agrees on it as the making of a communicator does.
func openAll(ctx context.Context, s *Set, loaded ...*carrier.Loaded) error {
	_, err := s.Open(ctx, loaded, plugin.OpenConfig{Rank: s.Rank, World: s.World, Memory: s.Plans.Memory}, none)
	return round.Exchange(ctx, s.Group, "open", round.Agreement(s.Rank, err), s.Meet())
}

// connect connects endpoints that all ranks use.
func connect(ctx context.Context, s *Set) error {
	return s.Connect(ctx, 7, nil, s.Plans.LeaveOut(nil, s.Optional),
		func(failed error) error { return s.Group.Agree(ctx, "connect", failed) })
}

// alike requires one error of all ranks.
func alike(t *testing.T, errs []error, want string) {
	t.Helper()
	for rank, err := range errs {
		require.EqualError(t, err, want, "rank %d", rank)
	}
}

func names(s *Set) (list []string) {
	for _, e := range s.List {
		list = append(list, e.Name)
	}
	slices.Sort(list)
	return list
}
