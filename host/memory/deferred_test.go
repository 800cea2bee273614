package memory

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

const deferredBytes = plugin.DeferredMultiple

// deferring is a rank with a deferred region.
type deferring struct {
	*Deferred
	driver *cudatest.Driver
	ctx    cuda.Context
	first  cuda.Mapping // region 0
	at     map[int]cuda.Ptr
}

func (d *deferring) enter(rank int, address cuda.Ptr) error {
	d.at[rank] = address
	return nil
}

func (d *deferring) need(t *testing.T, peers []int) error {
	t.Helper()
	return d.Map(t.Context(), 0, peers, d.enter)
}

func (d *deferring) close() error {
	err := d.Close()
	for _, m := range d.Ranks {
		err = errors.Join(err, m.Close())
	}
	return errors.Join(err, d.Copies.Close(), d.driver.Unmap(d.ctx, d.first))
}

// deferred returns ranks that have mapped each other's region 0.
func deferred(t *testing.T, s []*Share) []*deferring {
	ranks := make([]*deferring, len(s))
	for i := range ranks {
		d := &deferring{at: map[int]cuda.Ptr{}}
		d.driver, d.ctx = device(t)
		var err error
		d.first, err = d.driver.CreateMemory(d.ctx, 0, deferredBytes)
		require.NoError(t, err)
		ranks[i] = d
	}
	for i, d := range ranks {
		c := DeferredConfig{Driver: d.driver, Context: d.ctx, Rank: i, Share: s[i], Tag: "test", Before: deferredBytes}
		for _, peer := range ranks {
			fd, err := peer.driver.ExportMemory(peer.ctx, peer.first.Handle)
			require.NoError(t, err)
			m, err := MapExtensible(d.driver, d.ctx, 0, plugin.Region{Memory: plugin.MemoryKindCuda, Bytes: deferredBytes,
				Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: 1, Bytes: deferredBytes, FD: fd}}, deferredBytes)
			require.NoError(t, err)
			require.NoError(t, unix.Close(fd))
			c.Ranks = append(c.Ranks, m)
		}
		var err error
		c.Copies, err = NewStaging(d.driver, d.ctx, 64<<10)
		require.NoError(t, err)
		d.Deferred = NewDeferred(c, []plugin.Region{{ID: 2, Role: plugin.RegionRoleDeferred, Bytes: deferredBytes}})
	}
	return ranks
}

// Memory is made by the ranks that an operation is between, and given to each peer without a call of the driver.
func TestDeferredMemoryIsGivenWithoutTheDriver(t *testing.T) {
	s := shares(t, 3)
	before := openFiles(t)
	ranks := deferred(t, s)
	require.NoError(t, ranks[0].need(t, []int{1}))
	require.True(t, ranks[0].Has(0, []int{1}))
	require.False(t, ranks[0].Has(0, []int{1, 2}))
	require.False(t, ranks[0].Has(0, nil))
	require.Equal(t, []int64{deferredBytes, deferredBytes, 0}, []int64{ranks[0].Held(), ranks[1].Held(), ranks[2].Held()})
	require.NoError(t, ranks[2].need(t, []int{}))

	for _, d := range ranks {
		d.driver.Fail("ExportMemory", 0, cuda.OutOfMemory)
	}
	for i, d := range ranks {
		require.NoError(t, d.need(t, nil))
		require.True(t, d.Has(0, nil))
		require.NoError(t, d.driver.Write(d.ctx, d.at[i]+8, []byte{byte(i + 1)}))
	}
	for _, d := range ranks {
		for i := range ranks {
			require.Equal(t, []byte{0, byte(i + 1)}, d.driver.Bytes(d.at[i]+7, 2))
		}
		require.True(t, d.driver.Pending("ExportMemory"))
	}
	// A rank that asks once more gets a new descriptor.
	_, err := s[0].Fetch(t.Context(), 1, ranks[1].tag(0), 1)
	require.ErrorIs(t, err, plugin.OutOfMemory)
	fds, err := s[0].Fetch(t.Context(), 1, ranks[1].tag(0), 1)
	require.NoError(t, err)
	closeAll(fds)

	for _, d := range ranks {
		require.NoError(t, d.close())
		require.Equal(t, []string{"1 retained contexts"}, d.driver.Leaks())
	}
	leaveNothing(t, before, s)
}

// Descriptors that no rank has asked for are closed with the memory.
func TestDeferredMemoryThatNobodyAskedFor(t *testing.T) {
	s := shares(t, 3)
	before := openFiles(t)
	ranks := deferred(t, s)
	require.NoError(t, ranks[0].need(t, []int{1}))
	for _, d := range ranks {
		require.NoError(t, d.close())
	}
	require.ErrorIs(t, ranks[1].need(t, nil), plugin.Closed)
	leaveNothing(t, before, s)
}

// What a rank had not made when it closed is not made any more, and what it had made is given until its operations have
// ended. The memory of the others stays, whichever rank has closed.
func TestDeferredMemoryWithoutARankThatHasClosed(t *testing.T) {
	for _, made := range []bool{false, true} {
		sessions := join(t, 3)
		s := make([]*Share, len(sessions))
		noErrors(t, each(len(s), func(rank int) (err error) {
			s[rank], err = newShare(t.Context(), sessions[rank].All())
			return err
		}))
		before := openFiles(t)
		ranks := deferred(t, s)
		if made {
			require.NoError(t, ranks[1].need(t, []int{}))
		}
		ranks[1].End()
		require.NoError(t, sessions[1].Close())
		left := func() bool { return sessions[0].State(1) != bootstrap.Alive }
		require.Eventually(t, left, 10*time.Second, time.Millisecond)
		require.NoError(t, ranks[0].need(t, []int{1, 2}))
		for _, peer := range []int{1, 2} {
			require.NoError(t, ranks[0].driver.Write(ranks[0].ctx, ranks[0].at[peer], []byte{1}))
		}
		require.NoError(t, ranks[2].need(t, []int{}))
		require.Equal(t, []byte{1}, ranks[2].driver.Bytes(ranks[2].at[2], 1))
		if made {
			require.Equal(t, []byte{1}, ranks[1].driver.Bytes(ranks[1].at[1], 1))
		} else {
			require.Zero(t, ranks[1].Held())
		}
		require.NoError(t, ranks[1].Close()) // nothing of it runs any more
		require.NoError(t, ranks[2].need(t, []int{1}))
		require.NoError(t, ranks[2].driver.Write(ranks[2].ctx, ranks[2].at[1], []byte{2}))
		if made {
			require.Equal(t, []byte{1}, ranks[1].driver.Bytes(ranks[1].at[1], 1))
		}
		for _, d := range ranks {
			require.NoError(t, d.close())
			require.Equal(t, []string{"1 retained contexts"}, d.driver.Leaks())
		}
		leaveNothing(t, before, s)
	}
}

// A rank that lives and cannot send its descriptor says so: its peer must not take it for dead, and store what is meant
// for it where nobody reads.
func TestARankThatCannotSendADescriptorIsNotDead(t *testing.T) {
	s := shares(t, 2)
	ranks := deferred(t, s)
	s[1].OnDemand(ranks[1].tag(0), func() (int, error) { return 1 << 19, nil }) // which is not open
	err := ranks[0].need(t, []int{1})
	require.ErrorIs(t, err, plugin.System)
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, err, "sending 1 descriptors: ")
}
