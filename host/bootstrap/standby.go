package bootstrap

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// standby is the address at which a rank would run the store if the one in use were lost: it
// listens from the start, so that all ranks know the place beforehand.
type standby struct {
	id        storeID
	secret    secret
	rank      int
	heartbeat time.Duration
	replyTime time.Duration
	hub       *hub
	calls     sync.WaitGroup               // ranks of this process on their way in
	fate      func(rank int) *plugin.Error // why the session's store declared a rank dead, or nil

	mu      sync.Mutex
	refs    int
	epoch   uint32 // how many stores this rank has had
	seeking bool   // the latest of them is lost
	store   *store // the one that this rank runs
	over    bool
	changed chan struct{} // closed and replaced when any of these changes
}

func lookupStandby(id storeID) *standby {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return registry.standbies[id]
}

// successor returns the secret of the store that a rank would run. It differs from
// job to job also where the job's secret does not.
func (s secret) successor(job nonce, rank int) (of secret) {
	copy(of[:], s.derive("successor", string(job[:]), string([]byte{byte(rank), byte(rank >> 8)})))
	return of
}

// standbyPlaces returns the addresses at which a rank listens in case it must run the
// store: no more in the open than the store itself.
func standbyPlaces(store []place) []place {
	local := true
	for _, p := range store {
		if p.network == "unix" {
			var name [8]byte
			rand.Read(name[:]) // never fails
			return []place{{"unix", "@shunt-standby-" + hex.EncodeToString(name[:])}}
		}
		at, err := netip.ParseAddrPort(p.address)
		local = local && (strings.HasPrefix(p.address, "localhost:") || (err == nil && at.Addr().IsLoopback()))
	}
	if local {
		addresses, _ := addressesOfHost() // without them it is 127.0.0.1
		return []place{{"tcp", net.JoinHostPort(ofHost(addresses)[0].String(), "0")}}
	}
	return []place{{"tcp", ":0"}}
}

// listenOnStandby opens the listener and says how it is reached.
func listenOnStandby(store []place, logger *slog.Logger) (*hub, []place, error) {
	h, err := acquireHub(standbyPlaces(store), logger)
	if err != nil {
		return nil, nil, err
	}
	if h.key.network == "unix" {
		return h, []place{h.key}, nil
	}
	addresses, err := reachable(h.listener.Addr())
	if err != nil {
		h.release()
		return nil, nil, err
	}
	var places []place
	for _, a := range addresses {
		places = append(places, place{"tcp", a.String()})
	}
	return h, places, nil
}

// newStandby takes the hub over.
func newStandby(h *hub, key secret, rank int, heartbeat, replyTime time.Duration,
	fate func(rank int) *plugin.Error) *standby {
	s := &standby{id: key.id(), secret: key, rank: rank, heartbeat: heartbeat, replyTime: replyTime, fate: fate, hub: h,
		refs: 1, changed: make(chan struct{})}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	registry.standbies[s.id] = s
	return s
}

func (s *standby) key() secret     { return s.secret }
func (s *standby) awaits() msgKind { return msgResume }

// set changes the replies to ranks.
func (s *standby) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// seek says that the store is lost.
func (s *standby) seek() { s.set(func() { s.seeking = true }) }

// follow says that this rank has found another store.
func (s *standby) follow() { s.set(func() { s.epoch++; s.seeking = false }) }

// host says that this rank runs the store now. The standby lives on with it.
func (s *standby) host(st *store) {
	s.set(func() { s.store = st; s.refs++ })
	st.mu.Lock()
	defer st.mu.Unlock()
	st.onStop = append(st.onStop, s.release)
}

// release gives up the standby.
func (s *standby) release() {
	s.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.mu.Unlock()
	if !last {
		return
	}
	s.set(func() { s.over = true })
	registry.mu.Lock()
	delete(registry.standbies, s.id)
	registry.mu.Unlock()
	s.calls.Wait()
	s.hub.release()
}

// connect joins a rank of this process over a pipe.
func (s *standby) connect() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil
	}
	return connectTo(s, &s.calls)
}

// reply replies to a rank that asks whether it is still counted: that it has been
// declared dead, that there is another store, or nothing.
func (s *standby) reply(f *frameConn, msg *message, st *store, follows bool) {
	rank := msg.Member.Rank
	reason := s.fate(rank)
	if st != nil { // which may not have decided yet whether it continues; then it reports no rank as dead
		reason = nil
		st.mu.Lock()
		if st.phase == running && st.resuming == nil && rank < len(st.members) && st.members[rank].state == Dead {
			reason = st.members[rank].reason
		}
		st.mu.Unlock()
	}
	switch {
	case reason != nil && (st != nil || follows):
		turnAway(f, false, reason)
	case st != nil || follows:
		turnAway(f, true, rankError(plugin.Aborted, s.rank, "rank %d has another store", s.rank))
	default:
		_ = f.write(frame{kind: msgBeat}) // a frame without content
		f.Close()
	}
}

// enroll keeps a rank waiting, with signs of life, until it is clear what
// becomes of this one: it runs the store, and takes the rank in; or it follows
// another one, or has not lost its own at all.
func (s *standby) enroll(f *frameConn, msg *message, inProcess bool) {
	f.setSilence(s.replyTime)
	limit := time.NewTimer(s.replyTime)
	defer limit.Stop()
	tick := time.NewTicker(s.heartbeat)
	defer tick.Stop()
	late := false
	for {
		s.mu.Lock()
		st, seeking, epoch, over, changed := s.store, s.seeking, s.epoch, s.over, s.changed
		s.mu.Unlock()
		if msg.Question && !over {
			s.reply(f, msg, st, !seeking && epoch > msg.Epoch)
			return
		}
		switch {
		case st != nil:
			st.takeIn(f, msg, inProcess)
			return
		case over:
			f.Close()
			return
		case !seeking && epoch > msg.Epoch:
			turnAway(f, true, rankError(plugin.Aborted, s.rank, "rank %d follows another store", s.rank))
			return
		case !seeking && late:
			turnAway(f, false, rankError(plugin.Aborted, s.rank, "rank %d still reaches the job's store", s.rank))
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			late = true
		case <-tick.C:
			if f.write(frame{kind: msgBeat}) != nil {
				f.Close()
				return
			}
		}
	}
}
