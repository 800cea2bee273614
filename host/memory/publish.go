package memory

import (
	"context"

	"github.com/shunt-ccl/shunt/plugin"
)

// Publish lets peers fetch descriptors under a tag until Withdraw. It is local:
// how peers learn of the tag is the caller's business. The descriptors stay the
// caller's and may be closed afterwards.
func (s *Share) Publish(tag string, fds []int) error {
	regions := make([]plugin.Region, len(fds))
	for i, fd := range fds {
		regions[i].Handle.FD = fd
	}
	return s.publish(tag, regions)
}

// Withdraw ends what Publish began. Peers that have fetched keep what they have.
func (s *Share) Withdraw(tag string) { s.withdraw(tag) }

// OnDemand lets peers fetch under a tag the descriptor that a function returns, until the share is closed. It is called
// for each request, by goroutines of the share's own; the descriptor is closed when it is sent.
func (s *Share) OnDemand(tag string, maker func() (fd int, err error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makers[tag] = maker
}

// Fetch gets the descriptors that a rank of this host has published under a tag, or
// fails if there are not as many as wanted. They belong to the caller.
func (s *Share) Fetch(ctx context.Context, rank int, tag string, wanted int) ([]int, error) {
	if rank < 0 || rank >= len(s.peers) || wanted < 0 || wanted > MaxShared {
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"fetch %q: %d descriptors are wanted of rank %d in a world of %d, want one or more of a rank of it", tag, wanted,
			rank, len(s.peers))
	}
	if s.peers[rank].hostID != s.peers[s.group.Rank()].hostID {
		return nil, plugin.Errorf(plugin.Unsupported, "fetch %q: rank %d is on another host", tag, rank)
	}
	ctx, cancel := s.group.WhileMemberRuns(ctx, rank)
	defer cancel()
	return s.fetch(ctx, rank, tag, wanted)
}
