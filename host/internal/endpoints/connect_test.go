package endpoints

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
)

// A region that cannot be mapped is named with its rank and its transport, on all ranks alike.
func TestRegionThatCannotBeMappedIsNamed(t *testing.T) {
	errs := eachRank(t, 3, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
		e := &endpoint{regions: []plugin.Region{hostRegion(t, 0, plugin.RegionRolePrivate)}}
		if s.Rank == 1 {
			e.regions[0].Handle.Kind = plugin.HandleKindCudaVmm
		}
		if err := openAll(ctx, s, of("unmappable", plugin.MemoryKindHost, given(e, nil))); err != nil {
			return err
		}
		return connect(ctx, s)
	})
	alike(t, errs, "rank 0: mapping region 0 of rank 1: transport unmappable: "+
		"a handle of kind cuda_vmm cannot be mapped as host memory")
}

// What fails on one rank alone before the ranks share their control pages is every rank's error: none waits for a rank
// that has gone.
func TestWhatFailsOnOneRankIsEveryRanks(t *testing.T) {
	t.Run("closing an endpoint that is left out", func(t *testing.T) {
		errs := eachRank(t, 3, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
			out, in := &endpoint{}, &endpoint{}
			if s.Rank == 1 {
				out.failure = plugin.Errorf(plugin.System, "it sticks")
			}
			if err := openAll(ctx, s, of("out", plugin.MemoryKindHost, given(out, nil)),
				of("in", plugin.MemoryKindHost, given(in, nil))); err != nil {
				return err
			}
			s.Plans.Absent["out"] = "rank 2 cannot use it"
			err := connect(ctx, s)
			if !out.closed || in.closed {
				t.Errorf("rank %d: left out: %v, kept: %v", s.Rank, out.closed, in.closed)
			}
			return err
		})
		alike(t, errs, "rank 1: closing transport out: it sticks")
	})
	t.Run("images of kernels", func(t *testing.T) {
		errs := eachRank(t, 3, plugin.MemoryKindCuda, func(ctx context.Context, s *Set) error {
			e := &endpoint{images: []plugin.Image{{Name: "kernels", Data: []byte("code")}}}
			if s.Rank == 2 {
				e.images[0].Data = nil
			}
			return openAll(ctx, s, of("kernels", plugin.MemoryKindCuda, given(e, nil)))
		})
		for rank, err := range errs {
			require.ErrorIs(t, err, plugin.InvalidArgument, "rank %d", rank)
			require.ErrorContains(t, err, "rank 2: transport kernels: ")
			require.ErrorContains(t, err, `image "kernels" has 0 bytes`)
		}
	})
	t.Run("memory of role local", func(t *testing.T) {
		errs := eachRank(t, 2, plugin.MemoryKindCuda, func(ctx context.Context, s *Set) error {
			e := &endpoint{regions: []plugin.Region{hostRegion(t, 0, plugin.RegionRoleLocal)}}
			if s.Rank == 1 {
				s.GPU.Driver.(*cudatest.Driver).Fail("RegisterHost", 0, cuda.OutOfMemory)
			}
			if err := openAll(ctx, s, of("rings", plugin.MemoryKindCuda, given(e, nil))); err != nil {
				return err
			}
			return connect(ctx, s)
		})
		for rank, err := range errs {
			require.ErrorIs(t, err, plugin.OutOfMemory, "rank %d", rank)
			require.ErrorContains(t, err, "rank 1: mapping region 0 of role local: transport rings: ")
		}
	})
}

// Ranks that share their regions leave out what one of them cannot use: all close it, and an error of that is every
// rank's.
func TestEndpointsThatAreLeftOutLate(t *testing.T) {
	for _, sticks := range []bool{false, true} {
		errs := eachRank(t, 3, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
			s.Optional = true
			out, in := &endpoint{regions: []plugin.Region{hostRegion(t, 0, plugin.RegionRolePrivate)}}, &endpoint{}
			var absent map[string]error
			if s.Rank == 1 {
				absent = map[string]error{"out": plugin.Errorf(plugin.Unsupported, "it has no use")}
				if sticks {
					out.failure = plugin.Errorf(plugin.System, "it sticks")
				}
			}
			if err := openAll(ctx, s, of("out", plugin.MemoryKindHost, given(out, nil)),
				of("in", plugin.MemoryKindHost, given(in, nil))); err != nil {
				return err
			}
			err := s.Connect(ctx, 7, nil, s.Plans.LeaveOut(absent, s.Optional),
				func(failed error) error { return s.Group.Agree(ctx, "connect", failed) })
			if got := names(s); !out.closed || in.closed || len(got) != 1 || got[0] != "in" {
				t.Errorf("rank %d: left out: %v, kept: %v, used: %v", s.Rank, out.closed, in.closed, got)
			}
			return err
		})
		if sticks {
			alike(t, errs, "rank 1: closing transport out: it sticks")
		} else {
			require.NoError(t, errors.Join(errs...))
		}
	}
}

// Host memory of an endpoint is one memory for the ranks.
func TestRegionsOfHostMemoryAreShared(t *testing.T) {
	require.NoError(t, errors.Join(eachRank(t, 2, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
		e := &endpoint{regions: []plugin.Region{hostRegion(t, 0, plugin.RegionRolePrivate)}}
		if err := openAll(ctx, s, of("pages", plugin.MemoryKindHost, given(e, nil))); err != nil {
			return err
		}
		if err := connect(ctx, s); err != nil {
			return err
		}
		m := s.List[0].mappings
		*(*int)(m.Local(1 - s.Rank)) = 10 + s.Rank
		if err := s.Group.Agree(ctx, "written", nil); err != nil {
			return err
		}
		if got := *(*int)(m.Local(s.Rank)); got != 11-s.Rank || m.Addresses(0) != nil || !s.Connected() || s.abroad.Load() {
			return fmt.Errorf("rank %d has %d, GPU addresses %v", s.Rank, got, m.Addresses(0))
		}
		return nil
	})...))
}

// gpuRegion makes a region of the rank's GPU, which lasts as long as release was not called.
func gpuRegion(s *Set, id uint32, bytes int64) (r plugin.Region, release func(), err error) {
	m, err := s.GPU.Driver.CreateMemory(s.GPU.Context, s.GPU.Ordinal, bytes)
	if err != nil {
		return r, nil, err
	}
	fd, err := s.GPU.Driver.ExportMemory(s.GPU.Context, m.Handle)
	if err != nil {
		return r, nil, errors.Join(err, s.GPU.Driver.Unmap(s.GPU.Context, m))
	}
	r = plugin.Region{ID: id, Memory: plugin.MemoryKindCuda, Bytes: bytes, Handle: plugin.Handle{
		Kind: plugin.HandleKindCudaVmm, Generation: 1, Bytes: bytes, FD: fd}}
	return r, func() { _ = errors.Join(unix.Close(fd), s.GPU.Driver.Unmap(s.GPU.Context, m)) }, nil
}

// The probe takes region 0 of each rank, also where the endpoint has memory of this rank's alone, which the GPU reaches
// until the endpoint is closed.
func TestGPURegionsBesideLocalMemory(t *testing.T) {
	require.NoError(t, errors.Join(eachRank(t, 2, plugin.MemoryKindCuda, func(ctx context.Context, s *Set) error {
		shared, release, err := gpuRegion(s, 0, 2<<20)
		if err != nil {
			return err
		}
		defer release()
		e := &endpoint{regions: []plugin.Region{shared, hostRegion(t, 1, plugin.RegionRoleLocal)}}
		if err := openAll(ctx, s, of("both", plugin.MemoryKindCuda, given(e, nil))); err != nil {
			return err
		}
		if err := connect(ctx, s); err != nil {
			return err
		}
		driver := s.GPU.Driver.(*cudatest.Driver)
		before := fmt.Sprint(driver.Leaks())
		if err := s.List[0].mappings[0].Close(); err != nil {
			return err
		}
		s.List[0].mappings = s.List[0].mappings[1:]
		if fmt.Sprint(driver.Leaks()) == before || !s.List[0].Enqueues.Load() || s.DeviceBytes() != 2<<20 {
			return fmt.Errorf("%d bytes; the GPU has %v", s.DeviceBytes(), driver.Leaks())
		}
		return nil
	})...))
}

// Transports number what they allocate each by itself: equal generations of two transports are two allocations.
func TestRegionsOfTwoTransportsAreTwo(t *testing.T) {
	require.NoError(t, errors.Join(eachRank(t, 2, plugin.MemoryKindCuda, func(ctx context.Context, s *Set) error {
		var loaded []*carrier.Loaded
		for _, name := range []string{"first", "second"} {
			region, release, err := gpuRegion(s, 0, 2<<20)
			if err != nil {
				return err
			}
			defer release()
			loaded = append(loaded, of(name, plugin.MemoryKindCuda, given(&endpoint{regions: []plugin.Region{region}}, nil)))
		}
		if err := errors.Join(openAll(ctx, s, loaded...), connect(ctx, s)); err != nil {
			return err
		}
		for rank := range s.World {
			if a, b := s.List[0].first[rank], s.List[1].first[rank]; b == nil || a.Address() == b.Address() {
				return fmt.Errorf("the regions of rank %d are one", rank)
			}
		}
		return nil
	})...))
}

// A region that is no part of what its handle stands for, as an earlier region of its rank says, is refused on all
// ranks; one that ends where that does is not.
func TestRegionsLieWithinTheirHandle(t *testing.T) {
	for beyond, want := range map[int64]string{0: "", 8: "rank 0: mapping region 1 of rank 1: transport parts: " +
		"4096 bytes at offset 2093064 do not lie in the 2097152 bytes of handle 1"} {
		errs := eachRank(t, 3, plugin.MemoryKindCuda, func(ctx context.Context, s *Set) error {
			first, release, err := gpuRegion(s, 0, 2<<20)
			if err != nil {
				return err
			}
			defer release()
			second := first
			second.ID, second.Bytes, second.Handle.Offset = 1, 4096, first.Bytes-4096
			if s.Rank == 1 {
				second.Handle.Offset += beyond
				second.Handle.Bytes += beyond
			}
			e := &endpoint{regions: []plugin.Region{first, second}}
			return errors.Join(openAll(ctx, s, of("parts", plugin.MemoryKindCuda, given(e, nil))), connect(ctx, s))
		})
		if want == "" {
			require.NoError(t, errors.Join(errs...))
		} else {
			alike(t, errs, want)
		}
	}
}

// Buffers of a window are mapped for every rank, and each mapping is of its rank.
func TestBuffersOfAllRanks(t *testing.T) {
	require.NoError(t, errors.Join(eachRank(t, 2, plugin.MemoryKindCuda, func(ctx context.Context, s *Set) error {
		buffer, release, err := gpuRegion(s, plugin.MaxRegions, 2<<20)
		if err != nil {
			return err
		}
		defer release()
		buffer.Role = plugin.RegionRoleBuffer
		if err := openAll(ctx, s, of("buffers", plugin.MemoryKindCuda, given(&endpoint{}, nil))); err != nil {
			return err
		}
		if err := connect(ctx, s); err != nil {
			return err
		}
		m, err := s.Map(ctx, "a window", s.List[0], buffer)
		if err != nil {
			return err
		}
		driver, at := s.GPU.Driver.(*cudatest.Driver), m.Addresses(64)
		driver.Bytes(at[1-s.Rank], 1)[0] = byte(10 + s.Rank)
		err = s.Group.Agree(ctx, "written", nil)
		got, own := driver.Bytes(at[s.Rank], 1)[0], uintptr(m.Addresses(0)[s.Rank])
		if got != byte(11-s.Rank) || uintptr(m.Local(s.Rank)) != own {
			err = errors.Join(err, fmt.Errorf("rank %d has %d at %#x", s.Rank, got, own))
		}
		return errors.Join(err, m.Close())
	})...))
}

// Ranks of another host have control pages of this rank's own, and no region here.
func TestRanksOfOtherHosts(t *testing.T) {
	require.NoError(t, errors.Join(eachRank(t, 3, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
		s.Topology.Places[2].HostID = "another"
		e := &endpoint{regions: []plugin.Region{hostRegion(t, 0, plugin.RegionRolePrivate)}}
		l := of("wide", plugin.MemoryKindHost, given(e, nil))
		l.Info.Features = plugin.FeatureMultiHost
		if err := openAll(ctx, s, l); err != nil {
			return err
		}
		err := connect(ctx, s)
		want := []int{2, 2, 1}[s.Rank]
		if !s.abroad.Load() || len(s.control) != 1+want || len(s.List[0].mappings) != want {
			return errors.Join(err, fmt.Errorf("rank %d has %d pages and %d regions", s.Rank, len(s.control),
				len(s.List[0].mappings)))
		}
		return err
	})...))
}
