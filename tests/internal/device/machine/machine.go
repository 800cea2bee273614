// Package machine gives test ranks GPUs: those of the machine, or where it has
// none, GPUs in memory, each with a driver of its own, as each rank's process
// has one, and with kernels in Go in the place of cudaipc's.
//
// It is for the TestMain of test binaries. What needs a real GPU asks Real.
package machine

import (
	"context"
	"encoding/binary"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/executor/commandtest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// Builtin is the spec of the transport that Register registers.
const Builtin = "builtin:cudaipc"

// usual is the number of GPUs of a machine in memory, where With says no other.
const usual = 8

var memory = struct {
	sync.Mutex
	count   int
	drivers map[int]*cudatest.Driver // by device; made when first used
	used    bool
}{count: usual}

// Register registers cudaipc as a builtin transport and decides where ranks run.
// Every process of a test calls it, ranks included.
func Register() { host.Register(Transport()) }

// Transport returns cudaipc on the GPUs that ranks of this process have.
func Transport() plugin.Transport {
	if _, err := cuda.Open(); err == nil {
		return cudaipc.Transport{}
	}
	memory.Lock()
	defer memory.Unlock()
	memory.used, memory.drivers = true, map[int]*cudatest.Driver{}
	device.Use(func(ordinal int) (cuda.Driver, error) { return driver(ordinal), nil })
	return transport{}
}

// NCCL returns the transport nccl on the same GPUs. On those in memory it needs InstallNCCL.
func NCCL() plugin.Transport {
	if Real() {
		return nccl.Transport{}
	}
	return nccl.Transport{Drivers: func(ordinal int) cuda.Driver { return driver(ordinal) }}
}

// StagedNCCL returns the transport nccl as in a process of its own, under the name nccl_staged, with so many bytes
// of staging memory. On GPUs in memory its driver is not the rank's, as that of another process is not.
func StagedNCCL(bytes int64) plugin.Transport {
	t := nccl.Staged{Bytes: bytes}
	if !Real() {
		t.Drivers = func(ordinal int) cuda.Driver { return driver(othersDrivers + ordinal) }
	}
	return stagedNCCL{t}
}

// othersDrivers is the first number of the drivers that are not the ranks'.
const othersDrivers = 1 << 10

type stagedNCCL struct{ nccl.Staged }

func (s stagedNCCL) Info() plugin.Info {
	info := s.Staged.Info()
	info.Name = "nccl_staged"
	return info
}

// InstallNCCL makes nccltest's library the one that ranks of this process use on GPUs in memory.
func InstallNCCL(t testing.TB, flags ...string) {
	t.Helper()
	path, err := nccltest.Build(t.TempDir(), flags...)
	if err == nil {
		err = nccltest.Install(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(nccl.Variable, path)
}

// ncclOfRanks names the library in the environment of a rank that is a process of its own.
const ncclOfRanks = "NCCL_FAKE"

// NCCLOfRanks builds nccltest's library, and returns the environment with which ranks in processes of their own use it
// on GPUs in memory, if they call JoinNCCL.
func NCCLOfRanks(t testing.TB) []string {
	t.Helper()
	path, err := nccltest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return []string{ncclOfRanks + "=" + path, nccl.Variable + "=" + path}
}

// JoinNCCL makes the library of NCCLOfRanks the one of this process, if this is such a rank.
func JoinNCCL() {
	path := os.Getenv(ncclOfRanks)
	if path == "" {
		return
	}
	if err := nccltest.Install(path); err != nil {
		panic(err)
	}
	nccltest.Apart()
}

// Real says whether ranks run on real GPUs.
func Real() bool { return !memory.used }

func driver(ordinal int) *cudatest.Driver {
	memory.Lock()
	defer memory.Unlock()
	d := memory.drivers[ordinal]
	if d == nil {
		kernels := cudaipctest.Kernels()
		kernels[device.HoldKernel] = hold
		maps.Copy(kernels, nccltest.Kernels())
		maps.Copy(kernels, commandtest.Kernels())
		d = cudatest.New(cudatest.Options{Devices: memory.count, Kernels: kernels})
		memory.drivers[ordinal] = d
	}
	return d
}

// hold is device.HoldKernel on GPUs in memory, which have no multiprocessors: the stream alone is held.
func hold(g cudatest.Grid) {
	parameter := func(i int) uint64 { return binary.LittleEndian.Uint64(g.Launch.Params[8*i:]) }
	word := (*uint64)(device.Pointer(cuda.Ptr(parameter(0))))
	atomic.AddUint64((*uint64)(device.Pointer(cuda.Ptr(parameter(3)))), 2*parameter(2))
	limit := time.After(time.Duration(parameter(1)))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for atomic.LoadUint64(word) == 0 {
		select {
		case <-limit:
			return
		case <-g.Done:
			return
		case <-tick.C:
		}
	}
}

// Leaks lists what ranks of this process made on GPUs in memory and did not
// give back. It is nil on real ones.
func Leaks() []string {
	memory.Lock()
	defer memory.Unlock()
	var leaks []string
	for _, d := range memory.drivers {
		leaks = append(leaks, d.Leaks()...)
	}
	return leaks
}

// With lets the machine in memory have so many GPUs for the length of a test.
func With(t testing.TB, gpus int) {
	t.Cleanup(func() { remake(usual) })
	remake(gpus)
}

// Close ends the GPUs in memory; the next use makes new ones.
func Close() { remake(usual) }

func remake(gpus int) {
	memory.Lock()
	defer memory.Unlock()
	memory.count = gpus
	for _, d := range memory.drivers {
		d.Close()
	}
	clear(memory.drivers)
}

// transport opens endpoints on the driver of the rank's device.
type transport struct{ cudaipc.Transport }

func (t transport) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	return cudaipc.Transport{Driver: driver(c.Device)}.Open(ctx, c)
}
