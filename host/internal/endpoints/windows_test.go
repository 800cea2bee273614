package endpoints

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/plugin"
)

// The ranks take the first place that is free on all of them; windows of the caller's memory are of no account.
func TestWindowsTakeAPlaceThatIsFreeOnAllRanks(t *testing.T) {
	open := [][]uint32{{0, 2}, {1, 2, MaxWindows, MaxWindows + 3}}
	for _, err := range eachRank(t, 2, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
		s.placeOfWindows = 5 * plugin.MaxRegions
		places := map[uint32]*Window{}
		for _, place := range open[s.Rank] {
			places[s.placeOfWindows+place] = &Window{}
		}
		s.windows = places
		place, err := s.agreeOnWindow(ctx, "make a window", 100)
		if err == nil && place != 3 {
			err = fmt.Errorf("place %d", place)
		}
		s.windows = nil // which have no memory to give back
		return err
	}) {
		require.NoError(t, err)
	}
}

// Ranks that do not agree on a window all learn why.
func TestWindowsThatRanksDoNotAgreeOn(t *testing.T) {
	alike(t, eachRank(t, 2, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
		_, err := s.agreeOnWindow(ctx, "make a window", int64(100+s.Rank))
		return err
	}), "ranks disagree: rank 0 makes a window of 100 bytes, rank 1 one of 101")
	alike(t, eachRank(t, 2, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
		s.windows = map[uint32]*Window{}
		for place := range uint32(MaxWindows) {
			if int(place%2) == s.Rank {
				s.windows[place] = &Window{}
			}
		}
		_, err := s.agreeOnWindow(ctx, "make a window", 1)
		return err
	}), "1024 windows are open already, on one rank or another")
}

// Memory in which a window lies is known by where its range begins.
func TestLentWindowsAreFoundByTheirRange(t *testing.T) {
	s := aSet(0, 1, plugin.MemoryKindCuda)
	s.Symmetric = buffers.NewSymmetric(s.Observer)
	in := s.Symmetric.AddWindow([]cuda.Ptr{0x1000}, 64)
	lent := &Window{lent: true, symmetric: in}
	s.windows = map[uint32]*Window{1: {symmetric: in}, 2: lent}
	require.Same(t, lent, s.Lent(0x1000))
	require.Nil(t, s.Lent(0x1001))
}
