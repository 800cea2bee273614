package memory

import (
	"context"
	"fmt"
	"io"

	"github.com/shunt-ccl/shunt/plugin"
)

// Group lets ranks return the same error: nil, or one rank's.
type Group interface {
	Agree(ctx context.Context, tag string, err error) error
	Rank() int
}

// MapAll hands this rank's regions to all ranks, maps everyone's, region by region in rank order, and agrees that all
// could, and that nothing failed before on any rank. share is nil in a world of one. enter maps one region; nil means
// that the region needs no mapping here. MapAll returns the mappings also on error, for the caller to close.
func MapAll(ctx context.Context, group Group, share *Share, tag string, mine []plugin.Region, failed error,
	enter func(region plugin.Region, rank int) (io.Closer, error)) ([]io.Closer, error) {
	all := [][]plugin.Region{mine}
	if share != nil {
		var err error
		if all, err = share.Exchange(ctx, tag, mine); err != nil {
			return nil, err
		}
		defer CloseAll(all)
	}
	var mappings []io.Closer
	mapAll := func() error {
		if failed != nil {
			return failed
		}
		for rank := range all {
			if len(all[rank]) != len(mine) {
				return plugin.Errorf(plugin.Mismatch, "rank %d shares %d regions, rank %d %d", group.Rank(), len(mine), rank,
					len(all[rank]))
			}
		}
		for i := range mine {
			for rank := range all {
				r := all[rank][i]
				if r.ID != mine[i].ID || r.Bytes != mine[i].Bytes || r.Role != mine[i].Role || r.Memory != mine[i].Memory {
					return plugin.Errorf(plugin.Mismatch, "region %d: rank %d has id %d, role %s and %d bytes of %s memory, rank %d id %d, role %s and %d bytes of %s memory",
						i, group.Rank(), mine[i].ID, mine[i].Role, mine[i].Bytes, mine[i].Memory, rank, r.ID, r.Role, r.Bytes, r.Memory)
				}
				m, err := enter(r, rank)
				if err != nil {
					return fmt.Errorf("mapping region %d of rank %d: %w", r.ID, rank, err)
				}
				if m != nil {
					mappings = append(mappings, m)
				}
			}
		}
		return nil
	}
	err := group.Agree(ctx, tag+" mapped", mapAll()) // fills mappings; the order of operands of a return is not fixed
	return mappings, err
}
