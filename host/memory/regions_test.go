package memory

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// What another rank says of its regions is checked before anything is made of it.
func TestAnnouncementsOutOfBounds(t *testing.T) {
	const kinds = "not all of which are known"
	whole := segment(t, 4096).Region()
	for name, test := range map[string]struct {
		change func(*plugin.Region)
		want   string
	}{
		"good":                 {func(*plugin.Region) {}, ""},
		"role local":           {func(r *plugin.Region) { r.Role = plugin.RegionRoleLocal }, "has role local"},
		"an unknown role":      {func(r *plugin.Region) { r.Role = plugin.RegionRoleDeferred + 1 }, kinds},
		"unknown memory":       {func(r *plugin.Region) { r.Memory = plugin.MemoryKindCuda + 1 }, kinds},
		"an unknown handle":    {func(r *plugin.Region) { r.Handle.Kind = plugin.HandleKindCudaIpc + 1 }, kinds},
		"one byte too few":     {func(r *plugin.Region) { r.Bytes = -1 }, "has -1 bytes"},
		"the fewest bytes":     {func(r *plugin.Region) { r.Bytes = math.MinInt64 }, "bytes"},
		"-1 without a handle":  {func(r *plugin.Region) { r.Bytes, r.Handle = -1, plugin.Handle{FD: -1} }, "has -1 bytes"},
		"more than its handle": {func(r *plugin.Region) { r.Bytes = r.Handle.Bytes + 1 }, "region 0"},
		"a wrapping offset":    {func(r *plugin.Region) { r.Handle.Offset = math.MaxInt64 }, "region 0"},
		"a negative offset":    {func(r *plugin.Region) { r.Handle.Offset = -1 }, "region 0"},
		"no generation":        {func(r *plugin.Region) { r.Handle.Generation = 0 }, "generation"},
		"a memfd of a GPU":     {func(r *plugin.Region) { r.Memory = plugin.MemoryKindCuda }, "a memfd handle of cuda"},
	} {
		r := whole
		test.change(&r)
		got, err := decodeAnnouncement(announcement{Regions: []plugin.Region{whole, r}}.encode())
		if test.want == "" {
			require.NoError(t, err, name)
			require.Len(t, got.Regions, 2, name)
			continue
		}
		require.ErrorIs(t, err, plugin.Protocol, name)
		require.ErrorContains(t, err, test.want, name)
		require.Empty(t, got.Regions, name)
	}
	for number, fits := range map[int]bool{0: true, MaxShared: true, MaxShared + 1: false} {
		_, err := decodeAnnouncement(announcement{Regions: slices.Repeat([]plugin.Region{whole}, number)}.encode())
		require.Equal(t, fits, err == nil, "%d regions: %v", number, err)
	}
}

// Ranks map each other's regions only if they share the same: what differs is an error that says both.
func TestRegionsThatDiffer(t *testing.T) {
	mine := plugin.Region{ID: 3, Role: plugin.RegionRoleScratch, Memory: plugin.MemoryKindHost, Bytes: 4096}
	x := &Exchange{rank: 1, mine: []plugin.Region{mine, mine}}
	require.NoError(t, x.alike(0, []plugin.Region{mine, mine}))
	for want, change := range map[string]func(*plugin.Region){
		"rank 0 id 4, role scratch and 4096 bytes of host memory": func(r *plugin.Region) { r.ID = 4 },
		"rank 0 id 3, role buffer and 4096 bytes of host memory": func(r *plugin.Region) {
			r.Role = plugin.RegionRoleBuffer
		},
		"rank 0 id 3, role scratch and 4095 bytes of host memory": func(r *plugin.Region) { r.Bytes-- },
		"rank 0 id 3, role scratch and 4096 bytes of cuda memory": func(r *plugin.Region) {
			r.Memory = plugin.MemoryKindCuda
		},
	} {
		for i := range x.mine {
			theirs := []plugin.Region{mine, mine}
			change(&theirs[i])
			err := x.alike(0, theirs)
			require.ErrorIs(t, err, plugin.Mismatch)
			require.ErrorContains(t, err, "rank 1 has id 3, role scratch and 4096 bytes of host memory, "+want)
		}
	}
	for _, theirs := range [][]plugin.Region{nil, {mine}, {mine, mine, mine}} {
		require.ErrorIs(t, x.alike(0, theirs), plugin.Mismatch)
	}
}

// Descriptors are all there, or none stays open: where one cannot be copied, and where as many are not published as are
// wanted.
func TestDescriptorsAreAllOrNone(t *testing.T) {
	all := shares(t, 2)
	fd := segment(t, 4096).Region().Handle.FD
	before := openFiles(t)
	for _, fds := range [][]int{{-1}, {fd, -1}, {fd, fd, -1, fd}} {
		copies, err := duplicate(fds)
		require.Error(t, err, "%v", fds)
		require.Empty(t, copies)
		require.Equal(t, before, openFiles(t), "%v", fds)
	}
	require.NoError(t, all[0].Publish("two", []int{fd, fd}))
	before = openFiles(t)
	for _, wanted := range []int{0, 1, 3, MaxShared} {
		_, err := all[1].Fetch(t.Context(), 0, "two", wanted)
		require.ErrorIs(t, err, plugin.Protocol, "%d", wanted)
		require.ErrorContains(t, err, "2 descriptors arrived")
	}
	for _, wanted := range []int{-1, MaxShared + 1} {
		_, err := all[1].Fetch(t.Context(), 0, "two", wanted)
		require.ErrorIs(t, err, plugin.InvalidArgument, "%d", wanted)
	}
	all[0].Withdraw("two")
	leaveNothing(t, before-2, all)
}

// slow publishes under a tag what rank 1 makes once the test has ended.
func slow(t *testing.T, tag string) []*Share {
	all := shares(t, 2)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) }) // before the shares are closed
	all[1].OnDemand(tag, func() (int, error) {
		<-ended
		return -1, plugin.Errorf(plugin.Aborted, "the test has ended")
	})
	return all
}

// An exchange that takes too long ends early enough for the ranks to agree on that before the caller's deadline.
func TestMappingLeavesTimeToAgree(t *testing.T) {
	all := slow(t, "late")
	x := &Exchange{share: all[0], tag: "late", mine: []plugin.Region{segment(t, 4096).Region()}}
	theirs := x.mine[0]
	theirs.Handle.FD = 0
	x.announced = []announcement{{Regions: x.mine}, {Regions: []plugin.Region{theirs}}}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := x.mapAll(ctx, func(int, []plugin.Region) error { return nil })
	require.Equal(t, plugin.Timeout, plugin.CodeOf(err), "%v", err)
	require.NoError(t, ctx.Err(), "no time is left")
}

// A fetch from a rank that has given up ends, whatever the time that its caller has.
func TestFetchFromARankThatGivesUp(t *testing.T) {
	all := slow(t, "gone")
	done := make(chan error, 1)
	go func() {
		_, err := all[0].Fetch(context.Background(), 1, "gone", 1)
		done <- err
	}()
	all[1].group.Session().Fail(&plugin.Error{Code: plugin.Internal, Rank: 1, Message: "rank 1 gives up"})
	select {
	case err := <-done:
		require.ErrorContains(t, err, "rank 1 gives up")
	case <-time.After(10 * time.Second):
		t.Fatal("the fetch does not end with the rank")
	}
}
