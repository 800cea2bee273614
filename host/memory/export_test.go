package memory

import (
	"context"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// newShare makes the share of a rank, which meets those of the others.
func newShare(ctx context.Context, group *bootstrap.Group) (*Share, error) {
	s := NewShare(group)
	if err := round.Exchange(ctx, group, "share sockets", s.Meet()); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// Exchange returns the regions of all ranks, with descriptors that CloseAll closes.
func (s *Share) Exchange(ctx context.Context, tag string, mine []plugin.Region) ([][]plugin.Region, error) {
	all := make([][]plugin.Region, s.group.World())
	x := NewExchange(s, tag, mine)
	defer x.Close()
	err := round.Exchange(ctx, s.group, tag, x.Round())
	if err != nil {
		return nil, err
	}
	return all, s.group.Agree(ctx, tag+" fetched", x.mapAll(ctx, func(rank int, regions []plugin.Region) error {
		fds, err := duplicate(descriptorsOf(regions))
		if err == nil {
			all[rank] = withDescriptors(regions, fds)
		}
		return err
	}))
}
