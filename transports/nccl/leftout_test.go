package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// drivers are the devices of the test that runs.
var drivers []*cudatest.Driver

func driver(device int) cuda.Driver { return drivers[device] }

// lacking is a transport that one rank cannot open.
type lacking struct{ plugin.Transport }

var lacks = -1

func (l lacking) Info() plugin.Info {
	i := l.Transport.Info()
	i.Name = "lacking"
	return i
}

func (l lacking) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	if lacks == c.Rank {
		return nil, plugin.Errorf(plugin.Unsupported, "lacking: not with this device")
	}
	return l.Transport.Open(ctx, c)
}

func init() {
	ipc := cudaipctest.Transport{Drivers: driver}
	host.Register(ipc)
	host.Register(lacking{ipc})
	host.Register(nccl.Transport{Drivers: driver})
	host.Register(other{nccl.Transport{Drivers: driver}})
}

// world runs body on two ranks of a communicator, on GPUs in memory.
func world(t *testing.T, transports []string, body func(*host.Communicator) error) []error {
	t.Helper()
	kernels := cudaipctest.Kernels()
	maps.Copy(kernels, nccltest.Kernels())
	drivers = nil
	for range 2 {
		d := cudatest.New(cudatest.Options{Devices: 2, Kernels: kernels})
		drivers = append(drivers, d)
		t.Cleanup(func() {
			assert.Empty(t, d.Leaks())
			d.Close()
		})
	}
	plugins = drivers // every transport of this binary is opened
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	errs := make([]error, 2)
	var all sync.WaitGroup
	for rank := range errs {
		all.Go(func() {
			c, err := host.Init(t.Context(), host.Options{ID: id.String(), Rank: rank, World: 2, Transports: transports,
				Memory: plugin.MemoryKindCuda, Device: rank, Driver: drivers[rank]})
			if err == nil {
				err = errors.Join(body(c), c.Close())
			}
			errs[rank] = err
		})
	}
	all.Wait()
	return errs
}

// absent returns the reason why a communicator does without a transport.
func absent(c *host.Communicator, name string) (string, error) {
	e, err := c.Explain(plugin.AllReduce, plugin.Float32, plugin.OpSum, 1<<20)
	if err != nil {
		return "", err
	}
	for _, r := range e.Rejected {
		if r.Name == name {
			return r.Reason, nil
		}
	}
	return "", fmt.Errorf("%s is not named: %+v", name, e)
}

// What a rank cannot use is left out on all ranks, where the user has named no transports.
func TestWhatARankLacksIsLeftOut(t *testing.T) {
	t.Setenv(nccl.Variable, "/etc/passwd")
	lacks = 1
	t.Cleanup(func() { lacks = -1 })
	for _, err := range world(t, nil, func(c *host.Communicator) error {
		for name, want := range map[string]string{
			"nccl":    "rank 0 cannot use it: opening transport nccl: nccl: SHUNT_NCCL_LIBRARY: /etc/passwd: ",
			"lacking": "rank 1 cannot use it: opening transport lacking: lacking: not with this device",
		} {
			if reason, err := absent(c, name); err != nil || !strings.HasPrefix(reason, want) {
				return fmt.Errorf("%q, want %q: %w", reason, want, err)
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
}

// A library that the driver does not run, or another version on one rank, is left out on all ranks with the reason.
func TestLibrariesThatRanksCannotShareAreLeftOut(t *testing.T) {
	for _, test := range []struct{ cuda, name, want string }{
		{"13.0", "nccl", "rank 0 cannot use it: opening transport nccl: nccl: SHUNT_NCCL_LIBRARY: "},
		{"12.4", "other", "rank 0 cannot use it: connecting transport other: nccl: rank 1 has NCCL \"2.27.3\" and rank 0 NCCL \"2.28.9\"; they must be the same"},
	} {
		path, err := nccltest.Build(t.TempDir(), `-DFAKE_CUDA="`+test.cuda+`"`)
		require.NoError(t, err)
		t.Setenv(nccl.Variable, path)
		for _, err := range world(t, nil, func(c *host.Communicator) error {
			if reason, err := absent(c, test.name); err != nil || !strings.HasPrefix(reason, test.want) {
				return fmt.Errorf("%q, want %q: %w", reason, test.want, err)
			}
			return nil
		}) {
			require.NoError(t, err)
		}
	}
}

// other is NCCL of which rank 1 has an older version.
type other struct{ nccl.Transport }

func (o other) Info() plugin.Info {
	i := o.Transport.Info()
	i.Name = "other"
	return i
}

func (o other) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := o.Transport.Open(ctx, c)
	if err != nil || c.Rank != 1 {
		return e, err
	}
	return older{e}, nil
}

type older struct{ plugin.Endpoint }

func (older) Publish(context.Context, plugin.Exchange) ([]byte, error) { return []byte("2.27.3"), nil }
func (o older) Connect(ctx context.Context, x plugin.Exchange, published [][]byte) error {
	return o.Endpoint.(plugin.Exchanger).Connect(ctx, x, published)
}

// A transport that is named is required.
func TestNamedTransportsAreNotLeftOut(t *testing.T) {
	lacks = 1
	t.Cleanup(func() { lacks = -1 })
	for _, err := range world(t, []string{"builtin:cudaipc", "builtin:lacking"},
		func(*host.Communicator) error { return nil }) {
		require.ErrorIs(t, err, plugin.Unsupported)
		assert.Contains(t, err.Error(), "lacking: not with this device")
	}
}

// With every transport there is, float sums stay as the tables say however fast NCCL is, and what NCCL does exactly may
// go to it; where the user takes any numerics, all may.
func TestNumericsWithNccl(t *testing.T) {
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, nccltest.Install(path))
	t.Setenv(nccl.Variable, path)
	tuning := filepath.Join(t.TempDir(), "tuning.json")
	fast := selector.Tuning{Entries: []selector.Entry{{Collective: "all_reduce", Algorithm: "nccl/tuned",
		Points: []selector.Point{{Bytes: 64, Microseconds: 0.001}, {Bytes: 4 << 30, Microseconds: 0.002}}}}}
	require.NoError(t, fast.WriteFile(tuning))
	t.Setenv("SHUNT_TUNING_FILE", tuning)
	for _, numerics := range []string{"fixed", "", "any"} { // "": reordered, which of two ranks nothing is
		t.Setenv("SHUNT_NUMERICS", numerics)
		for _, err := range world(t, nil, func(c *host.Communicator) error {
			for _, op := range plugin.Ops() {
				for _, dtype := range plugin.DTypes() {
					for bytes := int64(64); bytes <= 4<<30; bytes *= 8 {
						e, err := c.Explain(plugin.AllReduce, dtype, op, bytes)
						if err != nil {
							return err
						}
						inexact := dtype == plugin.Float32 && op == plugin.OpMax
						exact := dtype == plugin.Int32 && op == plugin.OpSum
						if (e.OwnNumerics && numerics != "any") || (inexact && e.OwnNumerics != (numerics == "any")) ||
							(exact && e.Chosen != "nccl/tuned") {
							return fmt.Errorf("%s of %s, %d bytes, numerics %q runs %s", op, dtype, bytes, numerics, e.Chosen)
						}
					}
				}
			}
			return nil
		}) {
			require.NoError(t, err)
		}
	}
}

// Where NCCL could not make its communicator, later calls say so too, and why.
func TestACommunicatorOfNcclThatCouldNotBeMade(t *testing.T) {
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, nccltest.Install(path))
	t.Setenv(nccl.Variable, path)
	t.Setenv("SHUNT_ALGO", "all_reduce=nccl/tuned")
	t.Cleanup(func() { nccltest.Break(-1, 0, "") })
	var calls [2][3]error
	for rank, err := range world(t, []string{"builtin:cudaipc", "builtin:nccl"}, func(c *host.Communicator) error {
		d := drivers[c.Rank()]
		context, err := d.Retain(c.Rank())
		if err != nil {
			return err
		}
		p, err := d.Alloc(context, 64)
		if err != nil {
			return err
		}
		nccltest.Break(0, 3, "no room")
		at := *(*unsafe.Pointer)(unsafe.Pointer(&p))
		for i := range calls[c.Rank()] {
			calls[c.Rank()][i] = c.AllReduce(at, at, 16, plugin.Float32, plugin.OpSum, nil)
		}
		return errors.Join(d.Free(context, p), d.Release(c.Rank()))
	}) {
		require.NoError(t, err, "rank %d", rank)
		for i, err := range calls[rank] {
			assert.ErrorContains(t, err, "making a communicator: NCCL says \"internal error\": no room", "call %d of rank %d", i,
				rank)
		}
	}
}

// A rank that fails alone while NCCL's communicator is made is named on every rank, and soon: the others wait for it
// inside NCCL.
func TestARankThatCannotMakeItsCommunicatorOfNccl(t *testing.T) {
	for _, spec := range []string{"builtin:nccl", "builtin:staged"} {
		for _, method := range []string{"Alloc", "Submit"} { // before NCCL is called, and instead
			t.Run(spec+"/"+method, func(t *testing.T) {
				fakeNCCL(t)
				began := time.Now()
				errs := onStaged(t, 2, func(rank int, o *host.Options) {
					o.Transports = []string{spec}
					if rank == 1 {
						d := drivers[1]
						if spec == "builtin:staged" {
							d = plugins[1]
						}
						d.Fail(method, 0, cuda.OutOfMemory)
					}
				}, func(*gpu) error { return nil })
				for rank, err := range errs {
					require.ErrorIs(t, err, plugin.OutOfMemory, "rank %d", rank)
					assert.ErrorContains(t, err, fmt.Sprintf("init on rank %d: rank 1: connecting transport", rank))
					assert.NotContains(t, err.Error(), "Shrink", "there is no communicator yet")
				}
				assert.Less(t, time.Since(began), 20*time.Second) // of 60, or of 40 until the transport gives up
			})
		}
	}
}

// The same in the first call that needs NCCL.
func TestARankThatCannotMakeItsCommunicatorOfNcclInACall(t *testing.T) {
	fakeNCCL(t)
	began := time.Now()
	for rank, err := range onStaged(t, 2, func(_ int, o *host.Options) {
		o.Transports, o.Algo = []string{"builtin:cudaipc", "builtin:nccl"}, "all_reduce=nccl/tuned"
	}, func(g *gpu) error {
		p, err := g.driver.Alloc(g.ctx, 64)
		if err != nil {
			return err
		}
		if g.Rank() == 1 {
			drivers[1].Fail("Alloc", 0, cuda.OutOfMemory)
		}
		return errors.Join(g.AllReduce(pointer(p), pointer(p), 16, plugin.Int32, plugin.OpSum, g), g.driver.Free(g.ctx, p))
	}) {
		require.ErrorIs(t, err, plugin.OutOfMemory, "rank %d", rank)
		assert.ErrorContains(t, err, fmt.Sprintf("all_reduce on rank %d: rank 1: connecting transport nccl", rank))
	}
	assert.Less(t, time.Since(began), 20*time.Second)
}
