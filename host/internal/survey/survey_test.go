package survey

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// answers is a group that returns the given contributions of the other ranks, and this rank's own.
type answers struct {
	rank  int
	other []byte // what the only other rank says
}

func (a answers) Agree(_ context.Context, _ string, err error) error { return err }
func (a answers) AllGather(_ context.Context, _ string, payload []byte) ([][]byte, error) {
	all := [][]byte{a.other, a.other}
	all[a.rank] = payload
	return all, nil
}

func of(rank int, other []byte) *Survey {
	o := &diagnosis.Observer{Rank: rank, World: 2, Label: "world", Logger: slog.New(slog.DiscardHandler)}
	return &Survey{Observer: o, Group: answers{rank, other}, Memory: plugin.MemoryKindHost}
}

func introduction(rank int) Introduction {
	place := topology.Local()
	place.Rank = rank
	return Introduction{ID: uint64(10 + rank), Place: place.Encode(), Release: "2.0.0", Transports: "shm 1", Choice: "abc",
		Memory: "host", MaxSMs: 24 * rank}
}

// What ranks must have alike is compared; what else they say is taken together.
func TestIntroductions(t *testing.T) {
	found, err := of(1, introduction(0).encode()).Introduce(t.Context(), introduction(1), false)
	require.NoError(t, err)
	require.EqualValues(t, 10, found.ID, "rank 0's counts")
	require.Equal(t, 24, found.MaxSMs, "0 is no budget")
	require.Equal(t, []int{0, 1}, []int{found.Topology.Places[0].Rank, found.Topology.Places[1].Rank})
	require.Empty(t, found.Unlike)
	require.False(t, found.Checks || found.Named)
	other := introduction(0)
	other.Costs, other.Checks, other.Named = "def", true, true
	found, err = of(1, other.encode()).Introduce(t.Context(), introduction(1), false)
	require.NoError(t, err, "rank 0's costs count")
	require.Equal(t, "def", found.Costs)
	require.Equal(t, []int{1}, found.Unlike)
	require.True(t, found.Checks && found.Named, "one rank is enough")
	for want, change := range map[string]func(*Introduction){
		"rank 0 runs Shunt 2.0.0, rank 1 runs Shunt 2.0.1; install one": func(i *Introduction) {
			i.Release, i.Transports, i.Place = "2.0.1", "shm 2", []byte("of another kind")
		},
		"rank 1 runs Shunt before 1.1.0":           func(i *Introduction) { i.Release = "" },
		"ranks load different transports":          func(i *Introduction) { i.Transports = "shm 2" },
		"init: SHUNT_ALGO differs":                 func(i *Introduction) { i.Choice = "abd" },
		"a budget of -1 multiprocessors":           func(i *Introduction) { i.MaxSMs = -1 },
		"rank 0 is on host memory, rank 1 on cuda": func(i *Introduction) { i.Memory = "cuda" },
		"rank 1 sent a malformed introduction":     func(i *Introduction) { i.Place = []byte("nowhere") },
	} {
		theirs := introduction(1)
		change(&theirs)
		_, err := of(0, theirs.encode()).Introduce(t.Context(), introduction(0), false)
		require.ErrorContains(t, err, want)
	}
}

// Ranks share a GPU if all of them may. Otherwise all get the same error, also those that may.
func TestAGPUIsSharedWhereAllRanksMay(t *testing.T) {
	on := func(rank int, gpu string, may bool) Introduction {
		i, place := introduction(rank), topology.Local()
		place.Rank, place.GPUs = rank, []topology.GPU{{UUID: gpu, PCI: "0000:01:00.0"}}
		i.Place, i.ShareGPU = place.Encode(), may
		return i
	}
	for _, may := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		for rank, other := range []int{1, 0} {
			mine := on(rank, "GPU-1", may[rank])
			_, err := of(rank, on(other, "GPU-1", may[other]).encode()).Introduce(t.Context(), mine, false)
			if may[0] && may[1] {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, plugin.InvalidArgument, "rank %d of %v", rank, may)
				require.ErrorContains(t, err, "both use GPU GPU-1 (0000:01:00.0)")
				require.ErrorContains(t, err, "set SHUNT_SHARE_GPU=on on all ranks")
			}
			_, err = of(rank, on(other, "GPU-2", may[other]).encode()).Introduce(t.Context(), mine, false)
			require.NoError(t, err, "no GPU is shared")
		}
	}
}

// Ranks read each other's memory if all of them can, and none if one cannot.
func TestPeerReadNeedsAllRanks(t *testing.T) {
	s := of(0, nil)
	mine := introduction(0)
	word := newProbe()
	mine.Probe, mine.Value = word.published()
	found := &Found{Topology: topology.New([]topology.Place{topology.Local(), topology.Local()}),
		introductions: []Introduction{mine, mine}, word: word}
	for name, test := range map[string]struct {
		theirs []byte
		fails  bool
		want   bool
	}{
		"all can":          {canRead, false, true},
		"the other cannot": {cannotRead, false, false},
		"this one cannot":  {canRead, true, false},
	} {
		func() {
			defer func(before func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int,
				error)) {
				ProcessRead = before
			}(ProcessRead)
			ProcessRead = func(_ int, here []unix.Iovec, _ []unix.RemoteIovec, _ uint) (int, error) {
				if test.fails {
					return 0, errors.New("not permitted")
				}
				return copy((*[8]byte)(unsafe.Pointer(here[0].Base))[:], word.word[:]), nil
			}
			found.PeerRead = false
			part := s.PeerRead(found)
			require.NoError(t, part.Hear([][]byte{part.Mine, test.theirs}), name)
			require.Equal(t, test.want, found.PeerRead, name)
		}()
	}
	for _, theirs := range []string{"", "\x02", "\xff", "\x01\x01", "\x00\x00", "yes"} {
		part := s.PeerRead(found)
		require.ErrorIs(t, part.Hear([][]byte{part.Mine, []byte(theirs)}), plugin.Protocol, "%q", theirs)
		require.ErrorIs(t, part.Hear([][]byte{[]byte(theirs), part.Mine}), plugin.Protocol, "%q", theirs)
	}
}

// A rank can read another's memory if the whole word is there and says what the other said of it. All else is another
// process, or no access.
func TestLooksThatReadSomethingElse(t *testing.T) {
	defer func(before func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) {
		ProcessRead = before
	}(ProcessRead)
	word := newProbe()
	address, value := word.published()
	for name, test := range map[string]struct {
		pid   int
		bytes int // that are read
		flip  int // the byte that differs; -1: none does
		want  string
	}{
		"the word":           {7, 8, -1, ""},
		"another first byte": {7, 8, 0, "pid 7 is another process here"},
		"another last byte":  {7, 8, 7, "pid 7 is another process here"},
		"a part of the word": {7, 7, -1, "pid 7 is another process here"},
		"nothing":            {7, 0, -1, "pid 7 is another process here"},
		"no access":          {7, -1, -1, "process_vm_readv of pid 7: operation not permitted"},
		"no process":         {0, 8, -1, "process 0 cannot have address"},
		"a negative pid":     {-7, 8, -1, "process -7 cannot have address"},
	} {
		ProcessRead = func(_ int, here []unix.Iovec, _ []unix.RemoteIovec, _ uint) (int, error) {
			if test.bytes < 0 {
				return -1, unix.EPERM
			}
			got := (*[8]byte)(unsafe.Pointer(here[0].Base))
			*got = *word.word // also behind what is said to be read
			if test.flip >= 0 {
				got[test.flip] ^= 1
			}
			return test.bytes, nil
		}
		if err := look(test.pid, address, value); test.want != "" {
			require.ErrorContains(t, err, test.want, name)
		} else {
			require.NoError(t, err, name)
		}
	}
}

// twoGPUs returns a driver with two GPUs, and the places of ranks that have one each.
func twoGPUs(t *testing.T) (*cudatest.Driver, []topology.Place) {
	driver := cudatest.New(cudatest.Options{Devices: 2})
	t.Cleanup(func() { driver.Close() })
	devices, err := driver.Devices()
	require.NoError(t, err)
	places := make([]topology.Place, 2)
	for i, d := range devices {
		places[i] = topology.Place{HostID: "h", GPUs: []topology.GPU{{UUID: d.UUIDString(), PCI: d.Bus, Ordinal: d.Ordinal}}}
	}
	return driver, places
}

// What a peer says of its paths is checked; without NVML nothing is known.
func TestPaths(t *testing.T) {
	defer func(before func() (cuda.Management, error)) { OpenManagement = before }(OpenManagement)
	OpenManagement = func() (cuda.Management, error) { return nil, errors.New("no NVML") }
	driver, places := twoGPUs(t)
	ask := func(theirs []byte) (*topology.Topology, error) {
		s := of(0, theirs)
		s.Memory, s.Topology = plugin.MemoryKindCuda, topology.New(places)
		return s.Topology, s.Paths(t.Context(), driver)
	}
	good := topology.Path{NVLinks: 18, PCIe: topology.NODE, Access: topology.AccessYes}
	found, err := ask(topology.EncodePaths([]topology.Path{good, topology.SamePath()}))
	require.NoError(t, err)
	want := topology.Path{PCIe: topology.Unknown, Access: topology.AccessYes, Why: "no NVML"}
	require.Equal(t, [][]topology.Path{{topology.SamePath(), want}, {want, topology.SamePath()}}, found.Paths)
	for _, bad := range [][]byte{nil, {1}, topology.EncodePaths([]topology.Path{good}),
		topology.EncodePaths([]topology.Path{good, good, good}), {0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		_, err := ask(bad)
		require.ErrorIs(t, err, plugin.Protocol)
		require.ErrorContains(t, err, "init: rank 1 sent malformed paths of its GPU: ")
	}
}

// NVML, which takes milliseconds for a path, is asked once in a process; what it did not say is asked again.
func TestPathsAreLookedForOnce(t *testing.T) {
	defer func(before func() (cuda.Management, error)) { OpenManagement = before }(OpenManagement)
	looks, management := 0, cudatest.NewManagement(2, nil)
	OpenManagement = func() (cuda.Management, error) {
		if looks++; looks == 1 {
			return nil, errors.New("no NVML")
		}
		return management, nil
	}
	driver, places := twoGPUs(t)
	for _, want := range []struct {
		looks, links int
	}{{1, 0}, {2, 18}, {2, 18}} {
		s := of(0, nil)
		s.Memory, s.Topology = plugin.MemoryKindCuda, topology.New(places)
		require.Equal(t, want.links, s.lookFrom(driver)[1].NVLinks)
		require.Equal(t, want.looks, looks)
		require.EqualValues(t, max(looks-1, 0), management.Closed.Load(), "what was opened is closed")
	}
	other, _ := twoGPUs(t)
	s := of(0, nil)
	s.Memory, s.Topology = plugin.MemoryKindCuda, topology.New(places)
	require.Equal(t, 18, s.lookFrom(other)[1].NVLinks)
	require.Equal(t, 3, looks, "another driver's GPUs are others")
}
