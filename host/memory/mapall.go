package memory

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// Exchange hands the regions of every rank to every rank, in these steps: each publishes its descriptors and says what
// its regions are, all hear that in one round, each fetches and maps what it needs, from servers that run on their own
// (rule 9), and all agree that they are done. Exchanges with different tags may run in any order and at the same time.
type Exchange struct {
	share     *Share // nil in a world of one
	rank      int
	tag       string
	mine      []plugin.Region
	failed    error          // to publish
	announced []announcement // by rank
}

// NewExchange publishes this rank's regions under a tag, which all ranks give alike. share is nil in a world of one.
// The regions stay the caller's.
func NewExchange(share *Share, tag string, mine []plugin.Region) *Exchange {
	x := &Exchange{share: share, tag: tag, mine: mine}
	if share != nil {
		x.rank = share.group.Rank()
		x.failed = share.publish(tag, mine)
	}
	return x
}

// Round returns the part in which all ranks say what they share, or why they cannot.
func (x *Exchange) Round() round.Part {
	a := announcement{Err: asError(x.rank, x.failed)}
	if a.Err == nil {
		a.Regions = x.mine
	}
	return round.Part{Mine: a.encode(), Hear: x.hear}
}

// hear keeps what the ranks share. Every rank looks at the same bytes in the same order, so all see the same first
// error and none goes on alone.
func (x *Exchange) hear(all [][]byte) error {
	announced := make([]announcement, len(all))
	for rank, b := range all {
		a, err := decodeAnnouncement(b)
		if err != nil {
			return &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
				Message: fmt.Sprintf("exchange %q: rank %d sent a malformed announcement: %v", x.tag, rank, err)}
		}
		if a.Err != nil {
			return a.Err
		}
		announced[rank] = a
	}
	x.announced = announced
	return nil
}

// Map fetches and maps the regions of all ranks, rank by rank, this rank's last, so that not all ask the same rank at
// once. enter maps region i of a rank, whose descriptor is closed afterwards, and is -1 where the rank is on another
// host; it returns nil where the region needs no mapping here. Map returns the mappings by region, in rank order, also
// on error, for the caller to close. The ranks are to agree on the error.
func (x *Exchange) Map(ctx context.Context, enter func(i int, region plugin.Region, rank int) (io.Closer, error)) (
	[][]io.Closer, error) {
	mappings := make([][]io.Closer, len(x.mine))
	for i := range mappings {
		mappings[i] = make([]io.Closer, len(x.announced))
	}
	err := x.mapAll(ctx, func(rank int, regions []plugin.Region) error {
		if err := x.alike(rank, regions); err != nil {
			return err
		}
		for i, r := range regions {
			m, err := enter(i, r, rank)
			if err != nil {
				return fmt.Errorf("mapping region %d of rank %d: %w", r.ID, rank, err)
			}
			mappings[i][rank] = m
		}
		return nil
	})
	for i := range mappings {
		mappings[i] = slices.DeleteFunc(mappings[i], func(m io.Closer) bool { return m == nil })
	}
	return mappings, err
}

// mapAll has use take the regions of every rank, with descriptors that are closed when it returns.
func (x *Exchange) mapAll(ctx context.Context, use func(rank int, regions []plugin.Region) error) error {
	if x.share == nil {
		return use(0, x.mine)
	}
	if x.share.beforeFetch != nil {
		x.share.beforeFetch(x.tag)
	}
	if x.share.afterFetch != nil {
		defer x.share.afterFetch(x.tag)
	}
	// Leave time to agree on a failure before the caller's deadline.
	limit := x.share.group.Timeout()
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	ctx, cancel := context.WithTimeout(ctx, limit/4*3)
	defer cancel()
	ctx, stop := x.share.group.WhileAlive(ctx)
	defer stop()
	world := x.share.group.World()
	for i := range world {
		rank := (x.rank + 1 + i) % world
		regions, err := x.share.fetchRegions(ctx, rank, x.tag, x.announced[rank].Regions, x.mine)
		if err != nil {
			return err
		}
		err = use(rank, regions)
		CloseAll([][]plugin.Region{regions})
		if err != nil {
			return err
		}
	}
	return nil
}

// alike checks that a rank shares the same regions as this one.
func (x *Exchange) alike(rank int, theirs []plugin.Region) error {
	if len(theirs) != len(x.mine) {
		return plugin.Errorf(plugin.Mismatch, "rank %d shares %d regions, rank %d %d", x.rank, len(x.mine), rank, len(theirs))
	}
	for i, mine := range x.mine {
		if r := theirs[i]; r.ID != mine.ID || r.Bytes != mine.Bytes || r.Role != mine.Role || r.Memory != mine.Memory {
			return plugin.Errorf(plugin.Mismatch, "region %d: rank %d has id %d, role %s and %d bytes of %s memory, rank %d id %d, role %s and %d bytes of %s memory",
				i, x.rank, mine.ID, mine.Role, mine.Bytes, mine.Memory, rank, r.ID, r.Role, r.Bytes, r.Memory)
		}
	}
	return nil
}

// fetchRegions returns a rank's regions with descriptors of the caller's own; those of this rank's, which are mine, are
// copied and never fetched.
func (s *Share) fetchRegions(ctx context.Context, rank int, tag string, regions, mine []plugin.Region) ([]plugin.Region,
	error) {
	me, wanted := s.group.Rank(), len(descriptorsOf(regions))
	var fds []int
	var err error
	switch {
	case wanted == 0:
	case rank == me:
		fds, err = duplicate(descriptorsOf(mine))
	case s.peers[rank].hostID != s.peers[me].hostID:
		regions = slices.Clone(regions)
		for i := range regions {
			regions[i].Handle.FD = -1
		}
	default:
		if fds, err = s.fetch(ctx, rank, tag, wanted); err != nil {
			who := s.group.Member(rank)
			err = plugin.Errorf(plugin.CodeOf(err), "fetching the descriptors %q of rank %d (pid %d on host %s): %w", tag, rank,
				who.PID, who.Host, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return withDescriptors(regions, fds), nil
}

// Close withdraws what this rank has published. Peers fetch from its server until all have agreed that they are done.
func (x *Exchange) Close() {
	if x.share != nil && x.failed == nil {
		x.share.withdraw(x.tag)
	}
}

// MapAll is a whole exchange, which maps the regions of all ranks, and agrees that all could. It returns the mappings
// also on error, for the caller to close.
func MapAll(ctx context.Context, group Group, share *Share, tag string, mine []plugin.Region,
	enter func(region plugin.Region, rank int) (io.Closer, error)) ([]io.Closer, error) {
	x := NewExchange(share, tag, mine)
	defer x.Close()
	if err := round.Exchange(ctx, group, tag+" exchanged", x.Round()); err != nil {
		return nil, err
	}
	mappings, err := x.Map(ctx, func(_ int, r plugin.Region, rank int) (io.Closer, error) { return enter(r, rank) })
	err = group.Agree(ctx, tag+" mapped", err)
	return slices.Concat(mappings...), err
}

// Group lets ranks exchange bytes, and return the same error: nil, or one rank's.
type Group interface {
	round.Group
	Agree(ctx context.Context, tag string, err error) error
}
