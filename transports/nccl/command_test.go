package nccl

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// stagedWorld opens the endpoints of a world that has prepared an all_reduce, on GPUs in memory.
func stagedWorld(t *testing.T, world int) []*staged {
	t.Helper()
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, nccltest.Install(path))
	t.Setenv(Variable, path)
	endpoints := make([]*staged, world)
	for rank := range endpoints {
		d := cudatest.New(cudatest.Options{Kernels: nccltest.Kernels()})
		t.Cleanup(func() {
			assert.Empty(t, d.Leaks())
			d.Close()
		})
		over := Staged{Transport: Transport{Drivers: func(int) cuda.Driver { return d }}, Bytes: 1 << 20}
		e, err := over.Open(t.Context(), plugin.OpenConfig{Rank: rank, World: world, Memory: plugin.MemoryKindCuda})
		require.NoError(t, err)
		endpoints[rank] = e.(*staged)
		t.Cleanup(func() { assert.NoError(t, e.Close()) }) // before the driver's
	}
	request := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Int32, World: world, Hosts: 1,
		Memory: plugin.MemoryKindCuda}
	x := plugin.Exchange{Request: request, Algorithm: stagedName}
	published := make([][]byte, world)
	for rank, e := range endpoints {
		published[rank], err = e.Publish(t.Context(), x)
		require.NoError(t, err)
	}
	errs := make([]error, world)
	var all sync.WaitGroup
	for rank, e := range endpoints {
		all.Go(func() {
			if errs[rank] = e.Connect(t.Context(), x, published); errs[rank] == nil {
				_, errs[rank] = e.Prepare(t.Context(), request, stagedName)
			}
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	return endpoints
}

// begin begins the all_reduce of one rank alone, and returns when NCCL waits for the others.
func (e *staged) begin(t *testing.T, ctx context.Context) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- e.do(ctx, &ring.Command{Operation: 1, Args: []int64{64, 0, 0, 0}}) }()
	require.Eventually(t, func() bool {
		done, err := e.driver.StreamDone(e.ctx, e.stream)
		return err == nil && !done
	}, 20*time.Second, time.Millisecond)
	return ended
}

func soon(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the command goes on")
		return nil
	}
}

// A command that ends with its context takes what NCCL does with it.
func TestACommandEndsWithItsContext(t *testing.T) {
	e := stagedWorld(t, 3)[0]
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := e.begin(t, ctx)
	cancel(plugin.Errorf(plugin.Closed, "the endpoint is closed"))
	require.ErrorIs(t, soon(t, ended), plugin.Closed)
	require.Eventually(t, func() bool {
		done, err := e.driver.StreamDone(e.ctx, e.stream)
		return err == nil && done
	}, 20*time.Second, time.Millisecond, "NCCL goes on")
}

// What ends NCCL's work with a command has begun when the command returns: Close may come next, and frees what it uses.
func TestACommandThatEndsEarlyHasAbortedNccl(t *testing.T) {
	for range 20 {
		e := stagedWorld(t, 3)[0]
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			_ = e.do(ctx, &ring.Command{Operation: 1, Args: []int64{64, 0, 0, 0}})
			ended <- e.isAborted()
		}()
		cancel()
		if !assert.True(t, <-ended) {
			return
		}
	}
}

// An abort ends the commands of an endpoint, later ones too, and what NCCL does.
func TestAbortEndsWhatNcclDoes(t *testing.T) {
	e := stagedWorld(t, 3)[0]
	ended := e.begin(t, t.Context())
	e.Abort("enough")
	require.ErrorIs(t, soon(t, ended), plugin.Aborted)
	require.Eventually(t, func() bool {
		done, err := e.driver.StreamDone(e.ctx, e.stream)
		return err == nil && done
	}, 20*time.Second, time.Millisecond, "NCCL goes on")
	err := e.do(t.Context(), &ring.Command{Operation: 1, Args: []int64{64, 0, 0, 0}})
	require.ErrorIs(t, err, plugin.Aborted)
}

// A failure that NCCL learns of while a command waits ends the command, in NCCL's words.
func TestAFailureOfNcclEndsTheCommand(t *testing.T) {
	e := stagedWorld(t, 3)[1]
	t.Cleanup(func() { nccltest.Break(-1, 0, "") })
	ended := e.begin(t, t.Context())
	nccltest.Break(1, 6, "link 3 is down")
	err := soon(t, ended)
	require.ErrorIs(t, err, plugin.PeerDied)
	require.ErrorContains(t, err, "nccl: all_reduce: NCCL says ")
	require.ErrorContains(t, err, "link 3 is down")
}

// Commands that no plan of the endpoint has posted are refused by name.
func TestCommandsThatNobodyHasPrepared(t *testing.T) {
	e := stagedWorld(t, 2)[0]
	for _, c := range []ring.Command{
		{Operation: 2, Args: make([]int64, 4)}, {Operation: -1, Args: make([]int64, 4)}, {Operation: 1},
		{Operation: opCounts}, {Operation: opCounts, Args: []int64{-1, 1}}, {Operation: opCounts, Args: []int64{3, 1, 2}},
		{Operation: 1, Args: []int64{-4, 0, 0, 0}}, {Operation: 1, Args: []int64{1<<20 + 4, 0, 0, 0}},
	} {
		require.ErrorIs(t, e.do(t.Context(), &c), plugin.Protocol, "%+v", c)
	}
}

// Staging memory is zeroed to its end: the driver's is not.
func TestStagingMemoryIsZeroed(t *testing.T) {
	e := stagedWorld(t, 2)[0]
	held := e.driver.(*cudatest.Driver).Bytes(e.staging.Address, e.staging.Bytes)
	require.Equal(t, -1, slices.IndexFunc(held, func(b byte) bool { return b != 0 }), "the first byte that is not 0")
}
