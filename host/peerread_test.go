package host_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// singleCopies moves messages of several lengths in ways that can copy out of
// a peer's memory, and says for each rank whether single_copy was to choose from.
func singleCopies(t *testing.T, n int) []bool {
	t.Helper()
	offered := make([]bool, n)
	world(t, n, func(c *host.Communicator) error {
		explanation, err := c.Explain(plugin.AllGather, plugin.Float32, plugin.OpSum, 1<<20)
		if err != nil {
			return err
		}
		names := []string{explanation.Chosen}
		for _, a := range explanation.Fallback {
			names = append(names, a.Name)
		}
		offered[c.Rank()] = slices.ContainsFunc(names, func(name string) bool {
			return strings.HasSuffix(name,
				"/single_copy")
		})
		for _, count := range []int{1, 5000, 200000} {
			if err := moveAround(c, count); err != nil {
				return err
			}
		}
		return nil
	})
	return offered
}

// moveAround broadcasts, gathers from all and passes on to the next rank count
// elements, and checks what arrives.
func moveAround(c *host.Communicator, count int) error {
	n, me := c.World(), c.Rank()
	mine, got := ramp(me, count), make([]float32, n*count)
	if err := c.AllGather(at(mine), at(got), int64(count), plugin.Float32, nil); err != nil {
		return err
	}
	for r := range n {
		if err := equal(got[r*count:(r+1)*count], ramp(r, count)); err != nil {
			return err
		}
	}
	got = ramp(me, count)
	if err := c.Broadcast(at(got), at(got), int64(count), plugin.Float32, n-1, nil); err != nil {
		return err
	}
	if err := equal(got, ramp(n-1, count)); err != nil {
		return err
	}
	var g host.Group
	next, last := (me+1)%n, (me+n-1)%n
	g.Add(host.Operation{Collective: plugin.Send, Send: at(mine), Count: int64(count), DType: plugin.Float32, Root: next})
	g.Add(host.Operation{Collective: plugin.Recv, Recv: at(got), Count: int64(count), DType: plugin.Float32, Root: last})
	if err := g.Run(c); err != nil {
		return err
	}
	return equal(got, ramp(last, count))
}

// needsPeerRead skips where the kernel does not let a process read even itself.
func needsPeerRead(t *testing.T) {
	t.Helper()
	var word, copied [8]byte
	if _, err := unix.ProcessVMReadv(unix.Getpid(), []unix.Iovec{{Base: &copied[0], Len: 8}},
		[]unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&word)), Len: 8}}, 0); err != nil {
		t.Skipf("process_vm_readv is not permitted here: %v", err)
	}
}

func TestRanksReadEachOthersMemory(t *testing.T) {
	needsPeerRead(t)
	require.Equal(t, []bool{true, true, true}, singleCopies(t, 3))
}

// One rank that cannot read one peer is enough: all ranks take the other way.
func TestOneRankThatCannotReadDecidesForAll(t *testing.T) {
	needsPeerRead(t)
	for name, read := range map[string]func(here []unix.Iovec) (int, error){
		"refused": func([]unix.Iovec) (int, error) { return 0, unix.EPERM },
		"another process": func(here []unix.Iovec) (int, error) {
			binary.LittleEndian.PutUint64(unsafe.Slice(here[0].Base, 8), 4711)
			return 8, nil
		},
		"too little": func([]unix.Iovec) (int, error) { return 4, nil },
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			defer host.ReplaceProcessRead(func(pid int, here []unix.Iovec, there []unix.RemoteIovec, flags uint) (int, error) {
				if calls.Add(1) == 4 {
					return read(here)
				}
				return unix.ProcessVMReadv(pid, here, there, flags)
			})()
			require.Equal(t, []bool{false, false, false}, singleCopies(t, 3))
		})
	}
}

func TestPeerReadIsSwitchedOff(t *testing.T) {
	defer host.ReplaceProcessRead(func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error) {
		t.Error("a rank looked at its peers' memory")
		return 0, unix.EPERM
	})()
	t.Setenv("SHUNT_PEER_READ", "off")
	require.Equal(t, []bool{false, false}, singleCopies(t, 2))
}

// Memory that no process may read is an error that names whose it is and what to
// do, on the rank that meets it and on the others.
func TestMemoryThatPeersCannotRead(t *testing.T) {
	needsPeerRead(t)
	const count = 1 << 20
	hidden, err := unix.Mmap(-1, 0, count, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer unix.Munmap(hidden)
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		if c.Rank() == 0 {
			return c.Send(unsafe.Pointer(&hidden[0]), count, plugin.Uint8, 1, nil)
		}
		return c.Recv(at(make([]byte, count)), count, plugin.Uint8, 0, nil)
	})
	require.ErrorContains(t, errs[1], "recv on rank 1: rank 1: recv by shm/")
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.System, "rank %d", rank)
		for _, part := range []string{"rank 0's memory at 0x", "bad address", "SHUNT_PEER_READ=off"} {
			require.ErrorContains(t, err, part, "rank %d", rank)
		}
	}
}

// Receive memory that is not there is the mistake of the rank that gave it, and every rank says so.
func TestReceiveMemoryThatIsNotThere(t *testing.T) {
	needsPeerRead(t)
	const count = 1 << 20
	absent, err := unix.Mmap(-1, 0, count, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer unix.Munmap(absent)
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		if c.Rank() == 0 {
			return c.Send(at(make([]byte, count)), count, plugin.Uint8, 1, nil)
		}
		return c.Recv(unsafe.Pointer(&absent[0]), count, plugin.Uint8, 0, nil)
	})
	for rank, call := range []string{"send", "recv"} {
		require.ErrorIs(t, errs[rank], plugin.InvalidArgument, "rank %d", rank)
		require.ErrorContains(t, errs[rank], fmt.Sprintf(
			"%s on rank %d: the receive memory of %d bytes at %p is not all mapped for writing on rank 1; communicator", call, rank,
			count, &absent[0]))
	}
}
