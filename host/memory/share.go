package memory

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/host/internal/round"
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
	socket   string // of the listener
	unable   error  // why there is no listener
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

// NewShare starts this rank's server. The others learn of it, or why there is none, when the shares meet.
func NewShare(group *bootstrap.Group) *Share {
	s := &Share{
		group: group, key: group.Secret("descriptors"), slots: make(chan struct{}, maxServed),
		conns: map[net.Conn]bool{}, tagged: map[string]*published{},
		makers: map[string]func() (int, error){},
	}
	s.socket, s.unable = s.listen()
	return s
}

// Meet returns the part in which the shares of all ranks learn of each other.
func (s *Share) Meet() round.Part {
	var w wire.Writer
	w.Error(asError(s.group.Rank(), s.unable))
	w.String(s.socket)
	w.String(topology.Local().HostID)
	w.String(topology.Kernel())
	return round.Part{Mine: w.B, Hear: func(all [][]byte) (err error) {
		if s.peers, err = decodePeers(all); err == nil {
			err = s.checkHosts()
		}
		return err
	}}
}

func (s *Share) listen() (socket string, err error) {
	var name [16]byte
	rand.Read(name[:]) // never fails
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
	// A copy for peers, and those of one rank at a time; a connection to a peer and
	// some from peers. A lack of them is reported here, so that all ranks learn it together.
	err := descriptors.Need(2*len(fetched) + min(s.group.World(), 4))
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
		shut(s.listener)
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

// shut refuses further connections also where another process has the socket: one that the program has forked keeps its
// descriptors, and peers would wait for it.
func shut(l *net.UnixListener) {
	if raw, err := l.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // fails if it is shut already
	}
}
