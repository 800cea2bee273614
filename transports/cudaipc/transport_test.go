package cudaipc

import (
	stdcontext "context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/internal/parts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request(c plugin.Collective, world, rank int) plugin.Request {
	return plugin.Request{Collective: c, DType: plugin.Float32, World: world, Rank: rank, Hosts: 1,
		Memory: plugin.MemoryKindCuda}
}

// open returns an endpoint on a driver in memory.
func open(t *testing.T, world, rank int) (*endpoint, *cudatest.Driver) {
	d := cudatest.New(cudatest.Options{})
	t.Cleanup(d.Close)
	e, err := Transport{Driver: d}.Open(stdcontext.Background(),
		plugin.OpenConfig{Rank: rank, World: world, Memory: plugin.MemoryKindCuda})
	require.NoError(t, err)
	return e.(*endpoint), d
}

func TestWatchPageAndDirectoryAreTheContracts(t *testing.T) {
	require.Equal(t, map[string]uintptr{
		"abort": plugin.WatchAbort, "timeout": plugin.WatchTimeout, "fault": plugin.WatchFault, "peer": plugin.WatchFaultPeer,
		"own": plugin.WatchFaultOwn, "theirs": plugin.WatchFaultTheirs,
		"epoch": plugin.WatchFaultEpoch, "missed": plugin.WatchMissed, "missed bytes": plugin.WatchMissedBytes,
		"end": plugin.WatchBytes,
	}, watchPage())
	require.Equal(t, map[string]int64{
		"exports": plugin.DirectoryExports, "entry": plugin.DirectoryEntryBytes, "imports": plugin.DirectoryImport(0, 0),
		"bytes": 8, "known": 16, "generation": 24,
		"counts of 3": plugin.DirectoryCounts(3), "begun": plugin.DirectoryBegun, "decided": plugin.DirectoryDecided,
		"ended":     plugin.DirectoryEnded,
		"forgotten": plugin.DirectoryForgotten, "used": plugin.DirectoryUsed, "count bytes": plugin.DirectoryCountBytes,
	}, directoryLayout())
}

func TestSupportsSaysWhyNot(t *testing.T) {
	for want, change := range map[string]func(*plugin.Request){
		"cudaipc moves CUDA memory only":           func(r *plugin.Request) { r.Memory = plugin.MemoryKindHost },
		"cudaipc reaches ranks of one host only":   func(r *plugin.Request) { r.Hosts = 2 },
		"cudaipc serves at most 8 ranks of a host": func(r *plugin.Request) { r.World = 9 },
		"cudaipc does not do this operation":       func(r *plugin.Request) { r.Collective = 200 },
	} {
		r := request(plugin.AllReduce, 4, 0)
		change(&r)
		require.Equal(t, plugin.Support{Reason: want}, Transport{}.Supports(r))
	}
	for world, last := range map[int][]string{2: {"direct", "staged"}, 4: {"staged"}} {
		var names []string
		for _, a := range (Transport{}).Supports(request(plugin.AllReduce, world, 0)).Algorithms {
			names = append(names, a.Name)
		}
		require.Equal(t, append([]string{"one_shot_ll", "one_shot_ll128", "two_shot_ll128"}, last...), names, "world %d",
			world)
	}
	a, b := request(plugin.AllReduce, 4, 0), request(plugin.AllReduce, 4, 3)
	require.Equal(t, Transport{}.Supports(a), Transport{}.Supports(b), "every rank gets the same result")
	require.Equal(t, "one_shot_ll", Transport{}.Supports(a).Algorithms[0].Name)
}

func TestRegionIsZeroedExportedAndFreed(t *testing.T) {
	e, d := open(t, 4, 1)
	r := e.Regions()
	require.Len(t, r, 2+parts.Count)
	require.Equal(t, plugin.Region{
		ID: 1, Role: plugin.RegionRoleDirectory, Memory: plugin.MemoryKindCuda, Bytes: plugin.DirectoryBytes(4),
		Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: r[0].Handle.Generation, Offset: directoryOffset,
			Bytes: r[0].Handle.Bytes, FD: r[0].Handle.FD},
	}, r[1], "a part of the first")
	require.LessOrEqual(t, r[0].Bytes, int64(8*mib), "device memory of a communicator of 4, before it is used")
	at, total := r[0].Bytes, int64(0)
	for i, part := range r[2:] {
		require.Equal(t, plugin.RegionRoleDeferred, part.Role)
		require.Equal(t, uint32(2+i), part.ID)
		require.Equal(t, plugin.HandleKindNone, part.Handle.Kind)
		require.Zero(t, part.Bytes%plugin.DeferredMultiple)
		total += part.Bytes
	}
	require.Equal(t, regionBytes(4), at+total, "the parts lie behind each other")
	require.Equal(t, r[0].Bytes, r[0].Handle.Bytes, "the deferred parts begin where it ends")
	require.Equal(t, plugin.HandleKindCudaVmm, r[0].Handle.Kind)
	require.NotZero(t, r[0].Handle.Generation)
	peer := cudatest.New(cudatest.Options{})
	defer peer.Close()
	ctx, err := peer.Retain(0)
	require.NoError(t, err)
	m, err := peer.ImportMemory(ctx, 0, r[0].Handle.FD, r[0].Handle.Bytes)
	require.NoError(t, err)
	for i, b := range peer.Bytes(m.Address, 1<<16) {
		require.Zero(t, b, "byte %d", i)
	}

	buffer, err := e.Allocate(stdcontext.Background(), 5, 100)
	require.NoError(t, err)
	require.Equal(t, plugin.RegionRoleBuffer, buffer.Role)
	_, err = e.Allocate(stdcontext.Background(), 5, 100)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.NoError(t, e.Free(stdcontext.Background(), 5))
	require.ErrorIs(t, e.Free(stdcontext.Background(), 5), plugin.InvalidArgument)
	_, err = e.Allocate(stdcontext.Background(), 6, 100)
	require.NoError(t, err)

	fd := r[0].Handle.FD
	require.NoError(t, e.Close())
	require.NoError(t, e.Close(), "twice")
	require.Empty(t, d.Leaks())
	var st unix.Stat_t
	require.ErrorIs(t, unix.Fstat(fd, &st), unix.EBADF)
}

func TestOpenFreesWhatItMadeWhenAnythingFails(t *testing.T) {
	for _, method := range []string{"Devices", "Retain", "CreateMemory", "NewStream", "Set", "SynchronizeStream",
		"ExportMemory"} {
		t.Run(method, func(t *testing.T) {
			d := cudatest.New(cudatest.Options{})
			defer d.Close()
			d.Fail(method, 0, cuda.OutOfMemory)
			_, err := Transport{Driver: d}.Open(stdcontext.Background(),
				plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda})
			require.ErrorIs(t, err, plugin.OutOfMemory)
			require.Empty(t, d.Leaks())
		})
	}
	for name, c := range map[string]plugin.OpenConfig{
		"world":   {World: 9, Memory: plugin.MemoryKindCuda},
		"rank":    {World: 2, Rank: 2, Memory: plugin.MemoryKindCuda},
		"memory":  {World: 2},
		"device":  {World: 2, Memory: plugin.MemoryKindCuda, Device: 7},
		"options": {World: 2, Memory: plugin.MemoryKindCuda, Options: map[string]string{"tea": "hot"}},
	} {
		t.Run(fmt.Sprint("bad ", name), func(t *testing.T) {
			d := cudatest.New(cudatest.Options{})
			defer d.Close()
			_, err := Transport{Driver: d}.Open(stdcontext.Background(), c)
			require.ErrorIs(t, err, plugin.InvalidArgument)
			require.Empty(t, d.Leaks())
		})
	}
}

// oldDriver is one that CUDA 12's images cannot be loaded into.
type oldDriver struct{ *cudatest.Driver }

func (oldDriver) Version() int { return 11080 }

func TestDriversThatAreTooOldAreNamed(t *testing.T) {
	d := cudatest.New(cudatest.Options{})
	t.Cleanup(d.Close)
	_, err := Transport{Driver: oldDriver{d}}.Open(stdcontext.Background(),
		plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda})
	require.ErrorContains(t, err, "the CUDA driver supports CUDA 11.8; 12.0 (driver 525) is the least")
	require.Equal(t, plugin.Unsupported, plugin.CodeOf(err))
	require.Zero(t, d.Held()["retained contexts"])
}
