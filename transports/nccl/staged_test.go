package nccl_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/executor/commandtest"
	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// staged is nccl as in a process of its own, in this one, with a driver that is not the rank's.
type staged struct {
	nccl.Staged
	name string
}

func (s staged) Info() plugin.Info {
	i := s.Staged.Info()
	i.Name = s.name
	return i
}

const (
	stagedBytes = 16 << 10
	leastBytes  = 2 * 2 * 256 // for two ranks
)

// plugins are the drivers of what would be the plugins' processes.
var plugins []*cudatest.Driver

func init() {
	own := nccl.Transport{Drivers: func(device int) cuda.Driver { return plugins[device] }}
	host.Register(staged{nccl.Staged{Transport: own, Bytes: stagedBytes}, "staged"})
	host.Register(staged{nccl.Staged{Transport: own, Bytes: leastBytes}, "staged_least"})
	host.Register(staged{nccl.Staged{Bytes: 4 << 20}, "staged_gpu"})
	host.Register(plain{})
}

// fakeNCCL makes nccltest's library the one that this process finds, and the plugins that it starts.
func fakeNCCL(t *testing.T) {
	t.Helper()
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, nccltest.Install(path))
	t.Setenv(nccl.Variable, path)
	t.Setenv("NCCL_FAKE", path)
	t.Setenv("NCCL_FAKE_STAGING", strconv.Itoa(stagedBytes))
}

// ofItsOwn builds the program of package nccltest/process, and returns its spec.
func ofItsOwn(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shunt-transport-nccl")
	if text, err := builttest.Command("go", "build", "-o", path, "./nccltest/process").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return "process:" + path
}

// inBoth runs a test over commands to this process and to one of their own.
func inBoth(t *testing.T, body func(t *testing.T, spec string)) {
	for _, carrier := range []string{"builtin", "process"} {
		t.Run(carrier, func(t *testing.T) {
			fakeNCCL(t)
			spec := "builtin:staged"
			if carrier == "process" {
				spec = ofItsOwn(t)
			}
			body(t, spec)
		})
	}
}

// gpu is a rank with its device.
type gpu struct {
	*host.Communicator
	driver cuda.Driver
	ctx    cuda.Context
	stream cuda.Stream
}

func (g *gpu) Handle() unsafe.Pointer { return pointer(cuda.Ptr(g.stream)) }

// sum sums int32 of all ranks, in place, and checks it.
func (g *gpu) sum(count int) (err error) {
	p, err := g.driver.Alloc(g.ctx, int64(4*count))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.driver.Free(g.ctx, p)) }()
	b, want := make([]byte, 4*count), make([]byte, 4*count)
	for i := range count {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(i*(g.Rank()+1)))
		binary.LittleEndian.PutUint32(want[4*i:], uint32(i*g.World()*(g.World()+1)/2))
	}
	if err := g.driver.Write(g.ctx, p, b); err != nil {
		return err
	}
	err = errors.Join(g.AllReduce(pointer(p), pointer(p), int64(count), plugin.Int32, plugin.OpSum, g), g.Synchronize(g))
	if err != nil {
		return err
	}
	if err := g.driver.Read(g.ctx, b, p); err != nil {
		return err
	}
	for i := range want {
		if b[i] != want[i] {
			return fmt.Errorf("sum of %d elements: byte %d is %#x, want %#x", count, i, b[i], want[i])
		}
	}
	return nil
}

// onStaged runs ranks as goroutines and returns what each returned. Nothing may be left on any device.
func onStaged(t *testing.T, world int, adjust func(rank int, o *host.Options), body func(g *gpu) error) []error {
	t.Helper()
	kernels := commandtest.Kernels()
	for _, more := range []map[string]cudatest.Kernel{cudaipctest.Kernels(), nccltest.Kernels()} {
		for name, k := range more {
			kernels[name] = k
		}
	}
	drivers, plugins = nil, nil
	for range world {
		for _, list := range []*[]*cudatest.Driver{&drivers, &plugins} {
			d := cudatest.New(cudatest.Options{Devices: world, Kernels: kernels})
			*list = append(*list, d)
			t.Cleanup(func() {
				assert.Empty(t, d.Leaks())
				d.Close()
			})
		}
	}
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	errs := make([]error, world)
	var all sync.WaitGroup
	for rank := range errs {
		all.Go(func() {
			errs[rank] = func() (err error) {
				o := host.Options{ID: id.String(), Rank: rank, World: world, Timeout: 60 * time.Second,
					Memory: plugin.MemoryKindCuda, Device: rank, Driver: drivers[rank]}
				adjust(rank, &o)
				c, err := host.Init(t.Context(), o)
				if err != nil {
					return err
				}
				g := &gpu{Communicator: c, driver: drivers[rank]}
				defer func() {
					closed := c.Close()
					if plugin.CodeOf(closed) == plugin.PluginDied { // which the test did
						closed = nil
					}
					err = errors.Join(err, closed, g.driver.DestroyStream(g.ctx, g.stream), g.driver.Release(rank))
				}()
				if g.ctx, err = g.driver.Retain(rank); err != nil {
					return err
				}
				if g.stream, err = g.driver.NewStream(g.ctx, 0); err != nil {
					return err
				}
				return body(g)
			}()
		})
	}
	all.Wait()
	return errs
}

func over(specs ...string) func(int, *host.Options) {
	return func(_ int, o *host.Options) { o.Transports = specs }
}

// What staging memory does not hold goes in pieces, up to the longest message of a plan; what is longer is refused by
// name. Closing leaves nothing on the devices, that of the plugin's process included: its Close says so.
func TestPieces(t *testing.T) {
	inBoth(t, func(t *testing.T, spec string) {
		require.NoError(t, errors.Join(onStaged(t, 2, over(spec), func(g *gpu) error {
			for _, bytes := range []int{4, stagedBytes, stagedBytes + 4, 10*stagedBytes - 4, 1 << 20} {
				if err := g.sum(bytes / 4); err != nil {
					return err
				}
			}
			return nil
		})...))
	})
}

// A graph is replayed in pieces on what lies in its buffers then.
func TestReplaysInPieces(t *testing.T) {
	inBoth(t, func(t *testing.T, spec string) {
		require.NoError(t, errors.Join(onStaged(t, 1, over(spec), func(g *gpu) error { return g.replay(100_000) })...))
	})
}

func TestTheLongestMessage(t *testing.T) {
	fakeNCCL(t)
	require.NoError(t, errors.Join(onStaged(t, 2, over("builtin:staged_least"), func(g *gpu) error {
		const longest = 1365 * leastBytes
		if err := g.sum(longest / 4); err != nil {
			return err
		}
		err := g.sum(longest/4 + 1)
		if plugin.CodeOf(err) != plugin.Unsupported || !strings.Contains(err.Error(), "takes at most 1365K bytes") {
			return fmt.Errorf("a message that is too long: %w", err)
		}
		return nil
	})...))
}

// Staging memory that is shorter than one piece for each rank is refused.
func TestTooLittleStagingMemory(t *testing.T) {
	fakeNCCL(t)
	_, err := nccl.Staged{Bytes: 1023}.Open(t.Context(), plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda})
	require.ErrorIs(t, err, plugin.InvalidArgument)
	assert.Contains(t, err.Error(), "1023 bytes of staging memory for a world of 2, want at least 1024")
}

// An abort ends a command that waits for a rank.
func TestAbortEndsCommandsOfNccl(t *testing.T) {
	inBoth(t, func(t *testing.T, spec string) {
		var begun time.Time
		errs := onStaged(t, 2, over(spec), func(g *gpu) error {
			if err := g.sum(10); err != nil {
				return err
			}
			if g.Rank() == 1 {
				begun = time.Now()
				g.Abort("enough")
				return nil
			}
			return g.sum(10) // alone
		})
		require.ErrorIs(t, errs[0], plugin.Aborted)
		assert.Contains(t, errs[0].Error(), "rank 1 aborted: enough")
		took := time.Since(begun)
		t.Logf("both ranks had ended after %v", took)
		assert.Less(t, took, 20*time.Second)
	})
}

// A rank that stays away is named at the deadline.
func TestARankThatStaysAwayFromCommandsOfNccl(t *testing.T) {
	inBoth(t, func(t *testing.T, spec string) {
		away := make(chan struct{})
		errs := onStaged(t, 2, func(rank int, o *host.Options) { o.Transports, o.Timeout = []string{spec}, 3*time.Second },
			func(g *gpu) error {
				if err := g.sum(10); err != nil {
					return err
				}
				if g.Rank() == 1 {
					<-away
					return nil
				}
				defer close(away)
				return g.sum(10)
			})
		require.ErrorIs(t, errs[0], plugin.Timeout)
		assert.Contains(t, errs[0].Error(), "rank 1")
	})
}

// What NCCL says of a failure while a command waits is part of the error, with the rank and the operation.
func TestWordsOfNcclInACommand(t *testing.T) {
	fakeNCCL(t)
	t.Cleanup(func() { nccltest.Break(-1, 0, "") })
	waits := make(chan struct{})
	errs := onStaged(t, 2, over("builtin:staged"), func(g *gpu) error {
		if err := g.sum(10); err != nil {
			return err
		}
		if g.Rank() == 0 {
			<-waits
			nccltest.Break(1, 6, "link 3 is down")
			for g.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			return g.Err()
		}
		p, err := g.driver.Alloc(g.ctx, 8)
		if err != nil {
			return err
		}
		err = g.AllReduce(pointer(p), pointer(p), 2, plugin.Int32, plugin.OpSum, g)
		close(waits)
		return errors.Join(err, g.Synchronize(g), g.driver.Free(g.ctx, p))
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.PeerDied, "rank %d", rank)
		assert.Contains(t, err.Error(), "all_reduce")
		assert.Contains(t, err.Error(), "transport staged on rank 1")
		assert.Contains(t, err.Error(), "link 3 is down")
	}
}

// A plugin's process that is killed while its command waits is named on every rank, and soon.
func TestAKilledProcessOfNccl(t *testing.T) {
	fakeNCCL(t)
	spec := ofItsOwn(t)
	called := make(chan struct{})
	var killed int
	var begun time.Time
	errs := onStaged(t, 2, over(spec), func(g *gpu) error {
		if err := g.sum(10); err != nil {
			return err
		}
		if g.Rank() == 0 {
			p, err := g.driver.Alloc(g.ctx, 8)
			if err != nil {
				return err
			}
			err = g.AllReduce(pointer(p), pointer(p), 2, plugin.Int32, plugin.OpSum, g)
			close(called)
			return errors.Join(err, g.Synchronize(g), g.driver.Free(g.ctx, p))
		}
		<-called
		begun = time.Now()
		if killed = childOf(strings.TrimPrefix(spec, "process:")); killed == 0 {
			return errors.New("there is no process of the plugin")
		}
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			return err
		}
		for g.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return g.Err()
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.PluginDied, "rank %d", rank)
		assert.Contains(t, err.Error(), strconv.Itoa(killed))
	}
	took := time.Since(begun)
	t.Logf("both ranks had ended after %v", took)
	assert.Less(t, took, 20*time.Second)
}

// childOf returns a child of this process that runs a program, or 0.
func childOf(program string) int {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if at, err := os.Readlink(link); err != nil || at != program {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "stat"))
		if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(fields) > 1 &&
			fields[1] == strconv.Itoa(os.Getpid()) {
			return pid
		}
	}
	return 0
}

// A library that is missing is the reason of every rank.
func TestAMissingLibraryInAProcessOfItsOwn(t *testing.T) {
	fakeNCCL(t)
	spec := ofItsOwn(t)
	t.Setenv(nccl.Variable, "/nowhere/libnccl.so.2")
	for _, err := range onStaged(t, 2, over(spec), func(*gpu) error { return nil }) {
		require.ErrorIs(t, err, plugin.Unsupported)
		assert.Contains(t, err.Error(), "nccl: SHUNT_NCCL_LIBRARY: /nowhere/libnccl.so.2: no such file or directory")
	}
}

// Beside another transport it runs nothing, whatever the size, unless the user names it.
func TestStagedIsChosenWhereItIsNamed(t *testing.T) {
	fakeNCCL(t)
	both := []string{"builtin:cudaipc", ofItsOwn(t)}
	chosen := func(algo, want string) {
		checked := 0
		require.NoError(t, errors.Join(onStaged(t, 2, func(_ int, o *host.Options) { o.Transports, o.Algo = both, algo },
			func(g *gpu) error {
				for _, c := range []plugin.Collective{plugin.AllReduce, plugin.Broadcast, plugin.AllGather, plugin.ReduceScatter,
					plugin.AllToAll, plugin.AllToAllV, plugin.Send, plugin.Barrier} {
					for bytes := int64(0); bytes <= 1<<20; bytes = bytes*8 + 8 {
						e, err := g.Explain(c, plugin.Int32, plugin.OpSum, bytes)
						if err != nil {
							return err
						}
						if !strings.HasPrefix(e.Chosen, want) {
							return fmt.Errorf("%s of %d bytes runs %s, want %s", c, bytes, e.Chosen, want)
						}
						if g.Rank() == 0 {
							checked++
						}
					}
				}
				return nil
			})...))
		require.Greater(t, checked, 30)
	}
	chosen("", "cudaipc/")
	chosen("*=nccl", "nccl/staged")
}

// Ranks of which only some have NCCL in a process of its own cannot meet.
func TestStagedOnOneRankAlone(t *testing.T) {
	fakeNCCL(t)
	spec := ofItsOwn(t)
	for _, err := range onStaged(t, 2, func(rank int, o *host.Options) {
		o.Transports = []string{[]string{"builtin:nccl", spec}[rank]}
	}, func(*gpu) error { return nil }) {
		require.ErrorIs(t, err, plugin.Unsupported)
		assert.Contains(t, err.Error(), `rank 1 has NCCL "2.28.9 in a process of its own with 16384 bytes of staging memory" and rank 0 NCCL "2.28.9"; they must be the same`)
	}
}

// Opening an endpoint that lacks memory leaves nothing behind.
func TestStagedWithoutDeviceMemory(t *testing.T) {
	fakeNCCL(t)
	for _, method := range []string{"CreateMemory", "Set", "ExportMemory", "NewStream"} {
		d := cudatest.New(cudatest.Options{Kernels: nccltest.Kernels()})
		d.Fail(method, 0, cuda.OutOfMemory)
		_, err := nccl.Staged{Transport: nccl.Transport{Drivers: func(int) cuda.Driver { return d }}}.Open(
			context.Background(), plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda})
		require.ErrorIs(t, err, plugin.OutOfMemory, method)
		assert.Empty(t, d.Leaks(), method)
		d.Close()
	}
}
