package endpoints

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

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

// What a rank sends of its window has one length; another is its sender's fault, on all ranks that receive it.
func TestMalformedSizesOfWindowsNameTheirRank(t *testing.T) {
	for _, length := range []int{0, 7, 8, 8 + MaxWindows/8 - 1, 8 + MaxWindows/8 + 1} {
		errs := eachRank(t, 3, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
			if s.Rank == 1 {
				_, err := s.Group.AllGather(ctx, "make a window", make([]byte, length))
				return err
			}
			_, err := s.agreeOnWindow(ctx, "make a window", 0)
			return err
		})
		require.NoError(t, errs[1])
		for _, rank := range []int{0, 2} {
			require.ErrorIs(t, errs[rank], plugin.Protocol, "%d bytes", length)
			require.EqualError(t, errs[rank], "rank 1 sent a malformed size of its window")
			var malformed *plugin.Error
			require.ErrorAs(t, errs[rank], &malformed)
			require.Equal(t, 1, malformed.Rank)
		}
	}
}
