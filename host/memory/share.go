package memory

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// Share exchanges the regions of the ranks of one communicator. Each rank has
// one: a server on an abstract Unix socket that gives this rank's descriptors
// to the others, and the other ranks' addresses.
type Share struct {
	group    *bootstrap.Group
	key      []byte
	listener *net.UnixListener
	peers    []peer
	work     sync.WaitGroup
	slots    chan struct{} // bounds the connections that are served at once

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
	tagged map[string]*published // what peers may fetch, by tag
	makers map[string]func() (fd int, err error)
	served int // requests served

	// Tests watch the order of things through these; nil otherwise.
	beforeFetch, afterFetch func(tag string)
	beforeRequest           func(*net.UnixConn)
}

// published holds the descriptors that peers may fetch under a tag.
type published struct{ fds []int }

// peer is a rank's description of itself when the shares meet.
type peer struct {
	socket string // of its server
	hostID string // topology's; descriptors only travel within a host
	kernel string // topology's; ranks of one host must have it in common
}

// NewShare starts this rank's server and learns where those of the group's
// other ranks are. It is collective: a failure on one rank is every rank's.
func NewShare(ctx context.Context, group *bootstrap.Group) (*Share, error) {
	s := &Share{
		group: group, key: group.Secret("descriptors"), slots: make(chan struct{}, maxServed),
		conns: map[net.Conn]bool{}, tagged: map[string]*published{},
		makers: map[string]func() (int, error){},
	}
	socket, err := s.listen()
	var w wire.Writer
	w.Error(asError(group.Rank(), err))
	w.String(socket)
	w.String(topology.Local().HostID)
	w.String(topology.Kernel())
	var all [][]byte
	if all, err = group.AllGather(ctx, "share sockets", w.B); err == nil {
		s.peers, err = decodePeers(all)
	}
	if err == nil {
		err = s.checkHosts()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Share) listen() (socket string, err error) {
	var name [16]byte
	if _, err := rand.Read(name[:]); err != nil {
		return "", plugin.Errorf(plugin.System, "share: random numbers: %w", err)
	}
	socket = "@shunt-share-" + hex.EncodeToString(name[:])
	s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if descriptors.Lacking(err) {
		err = descriptors.Error(err, 1)
	} else if err != nil {
		err = plugin.Errorf(plugin.System, "share: %w", err)
	}
	if err != nil {
		return "", err
	}
	s.work.Add(1)
	go s.serve()
	return socket, nil
}

// asError returns err in the form that other ranks get; nil if err is nil.
func asError(rank int, err error) *plugin.Error {
	if err == nil {
		return nil
	}
	return &plugin.Error{Code: plugin.CodeOf(err), Rank: rank, Message: fmt.Sprintf("rank %d: %v", rank, err)}
}

// checkHosts checks that ranks of one host, which SHUNT_HOST_ID may have named, can share memory.
func (s *Share) checkHosts() error {
	first := map[string]int{}
	for rank, p := range s.peers {
		other, is := first[p.hostID]
		if !is {
			first[p.hostID] = rank
			continue
		}
		if p.kernel != s.peers[other].kernel {
			a, b := s.group.Member(other), s.group.Member(rank)
			return &plugin.Error{Code: plugin.Mismatch, Rank: rank, Message: fmt.Sprintf(
				"rank %d (pid %d on host %s) and rank %d (pid %d on host %s) have the same SHUNT_HOST_ID and cannot share memory: want another one on each machine, and in each container with a network of its own",
				other, a.PID, a.Host, rank, b.PID, b.Host)}
		}
	}
	return nil
}

func decodePeers(all [][]byte) ([]peer, error) {
	peers := make([]peer, len(all))
	for rank, b := range all {
		r := wire.NewReader(b)
		failure := r.Error()
		peers[rank] = peer{socket: r.String(maxSocketName), hostID: r.String(maxHostID), kernel: r.String(maxHostID)}
		if err := r.End(); err != nil {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
				Message: fmt.Sprintf("share: rank %d sent a malformed description of itself: %v", rank, err)}
		}
		if failure != nil {
			return nil, failure
		}
	}
	return peers, nil
}

// Exchange gives this rank's regions to every rank and returns those of all
// ranks, by rank. Every rank calls it with the same tag; exchanges with
// different tags may run in any order and at the same time, because each
// publishes first, then agrees, and only then fetches, from servers that run
// on their own (rule 9).
//
// The descriptors in the result belong to the caller (see CloseAll), those of
// this rank's own regions included, which are copied and never fetched; mine
// stays the caller's. Where a rank is on another host its descriptors are -1.
// If anything fails on any rank, all ranks get the same error and no
// descriptor.
func (s *Share) Exchange(ctx context.Context, tag string, mine []plugin.Region) ([][]plugin.Region, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.group.Session().Timeout())
		defer cancel()
	}
	var local announcement
	err := s.publish(tag, mine)
	if err == nil {
		defer s.withdraw(tag)
		local.Regions = mine
	}
	local.Err = asError(s.group.Rank(), err)
	published, err := s.group.AllGather(ctx, tag+" exchanged", local.encode())
	if err != nil {
		return nil, err
	}
	// Every rank looks at the same bytes in the same order, so all see the same first error and none continues alone.
	announced := make([]announcement, len(published))
	for rank, b := range published {
		a, err := decodeAnnouncement(b)
		if err != nil {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
				Message: fmt.Sprintf("exchange %q: rank %d sent a malformed announcement: %v", tag, rank, err)}
		}
		if a.Err != nil {
			return nil, a.Err
		}
		announced[rank] = a
	}
	if s.beforeFetch != nil {
		s.beforeFetch(tag)
	}
	all, err := s.fetchAll(ctx, tag, announced, mine)
	if s.afterFetch != nil {
		s.afterFetch(tag)
	}
	// Peers fetch from this rank's server until all have agreed that they are
	// done; only then are the descriptors withdrawn.
	if err := s.group.Agree(ctx, tag+" fetched", err); err != nil {
		CloseAll(all)
		return nil, err
	}
	return all, nil
}

// publish keeps copies of the descriptors for peers to fetch.
func (s *Share) publish(tag string, mine []plugin.Region) error {
	if len(mine) > MaxShared {
		return plugin.Errorf(plugin.InvalidArgument, "exchange %q: a rank shares %d regions, want at most %d", tag, len(mine),
			MaxShared)
	}
	if len(tag) > maxFetchTag {
		return plugin.Errorf(plugin.InvalidArgument, "exchange: a tag has %d characters, want at most %d", len(tag),
			maxFetchTag)
	}
	for _, r := range mine {
		if err := checkShared(r); err != nil {
			return plugin.Errorf(plugin.InvalidArgument, "exchange %q: %w", tag, err)
		}
	}
	fetched := descriptorsOf(mine)
	// A copy for peers, and those of all ranks at once; a connection to a peer and
	// some from peers. A lack of them is reported here, so that all ranks learn it together.
	err := descriptors.Need(len(fetched)*(1+s.group.World()) + min(s.group.World(), 4))
	var fds []int
	if err == nil {
		fds, err = duplicate(fetched)
	}
	if err != nil {
		return plugin.Errorf(plugin.CodeOf(err), "exchange %q: %w", tag, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		err = plugin.Errorf(plugin.Closed, "exchange %q: the share is closed", tag)
	case s.tagged[tag] != nil:
		err = plugin.Errorf(plugin.InvalidArgument, "exchange %q: called twice at once", tag)
	default:
		s.tagged[tag] = &published{fds: fds}
		return nil
	}
	closeAll(fds)
	return err
}

func (s *Share) withdraw(tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.tagged[tag]; o != nil {
		closeAll(o.fds)
		delete(s.tagged, tag)
	}
}

// fetchAll gathers the descriptors of all ranks, starting with the next one,
// so that not all ask the same rank at once.
func (s *Share) fetchAll(ctx context.Context, tag string, announced []announcement,
	mine []plugin.Region) ([][]plugin.Region, error) {
	// Leave time to agree on a failure before the caller's deadline.
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, time.Now().Add(time.Until(deadline)*3/4))
		defer cancel()
	}
	ctx, cancel := s.group.WhileAlive(ctx)
	defer cancel()
	me, world := s.group.Rank(), s.group.World()
	all := make([][]plugin.Region, world)
	for i := range world {
		rank := (me + 1 + i) % world
		regions := announced[rank].Regions
		wanted := len(descriptorsOf(regions))
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
			CloseAll(all)
			return nil, err
		}
		all[rank] = withDescriptors(regions, fds)
	}
	return all, nil
}

// Close ends the server. Exchanges in progress on other ranks fail.
func (s *Share) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	var err error
	if s.listener != nil {
		err = s.listener.Close()
	}
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for tag, o := range s.tagged {
		closeAll(o.fds)
		delete(s.tagged, tag)
	}
	if err != nil {
		return plugin.Errorf(plugin.System, "closing a share: %w", err)
	}
	return nil
}
