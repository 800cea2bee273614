package bootstrap

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// place is the address at which a store listens or is looked for.
type place struct {
	network string // "tcp" or "unix" (abstract, the address begins with @)
	address string
}

func (p place) String() string { return p.network + " " + p.address }

// mostUnverified bounds the connections of one listener that have not proved the
// secret yet: 256, and at most a quarter of the descriptors that the process may
// open, if that is not too few for ranks that come at once. One more drops the
// oldest, so a flood costs such connections their place, and a rank, which needs a
// millisecond, gets through.
func mostUnverified() int { return min(256, max(32, descriptors.Limit()/4)) }

// fairTime is the time that a connection has to prove the secret before it may be
// dropped for lack of descriptors. Without it, many ranks that connect at once to a
// busy process would drop each other forever.
const fairTime = time.Second

// unverified is a connection that has not proved the secret yet.
type unverified struct {
	conn  net.Conn
	since time.Time
}

// hub is a listener that serves every store and standby of this process.
type hub struct {
	key      place
	listener net.Listener
	foreign  bool // key has an address that this host does not have
	logger   *slog.Logger
	refs     int // guarded by registry.mu
	done     sync.WaitGroup
	warnings throttle // of what unverified connections can cause

	mu         sync.Mutex
	unverified []unverified // oldest first
	closed     bool
	restore    []func() // of the reserve of descriptors; the accepting goroutine's
}

// registry holds what this process serves.
var registry = struct {
	mu        sync.Mutex
	stores    map[storeID][]*store
	standbies map[storeID]*standby
	hubs      map[place]*hub
}{stores: map[storeID][]*store{}, standbies: map[storeID]*standby{}, hubs: map[place]*hub{}}

// findDoor finds what a newcomer with this id should talk to.
func findDoor(id storeID) door {
	if st := lookup(id); st != nil {
		return st
	}
	if s := lookupStandby(id); s != nil {
		return s
	}
	return nil
}

// lookup finds the store that a newcomer with this id should talk to: the one
// whose ranks are still gathering, else the latest one.
func lookup(id storeID) *store {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	stores := registry.stores[id]
	for _, st := range stores {
		if st.gathering() {
			return st
		}
	}
	if len(stores) > 0 {
		return stores[len(stores)-1]
	}
	return nil
}

// lookupName finds a store of this name at which ranks gather; nil if there is none.
func lookupName(name storeID) *store {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, stores := range registry.stores {
		for _, st := range stores {
			if st.name == name && st.gathering() {
				return st
			}
		}
	}
	return nil
}

// register lists a store, and listens for it if there are places, in one step: who connects finds the store.
func register(st *store, places []place, logger *slog.Logger) (err error) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if len(places) > 0 {
		if st.root.hub, err = acquireHubLocked(places, logger); err != nil {
			return err
		}
	}
	registry.stores[st.secret.id()] = append(registry.stores[st.secret.id()], st)
	return nil
}

func unregister(st *store) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	id := st.secret.id()
	stores := slices.DeleteFunc(registry.stores[id], func(other *store) bool { return other == st })
	if len(stores) == 0 {
		delete(registry.stores, id)
	} else {
		registry.stores[id] = stores
	}
}

// acquireHub listens at the first of the places that is free. Listeners are
// shared by all stores and standbies of the process and closed with the last
// of them.
func acquireHub(places []place, logger *slog.Logger) (*hub, error) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return acquireHubLocked(places, logger)
}

func acquireHubLocked(places []place, logger *slog.Logger) (*hub, error) {
	var errs ofPlaces
	for _, p := range places {
		if h := registry.hubs[p]; h != nil {
			h.refs++
			return h, nil
		}
		listener, foreign, err := listen(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		h := &hub{key: p, listener: listener, foreign: foreign, logger: logger, refs: 1}
		registry.hubs[p] = h
		h.done.Add(1)
		go h.accept()
		return h, nil
	}
	return nil, plugin.Errorf(plugin.System, "cannot listen: %w", withFilter(errs))
}

// ofPlaces are the errors of several places, in one line that says each once.
type ofPlaces []error

func (e ofPlaces) Error() string {
	var texts []string
	for _, err := range e {
		if text := err.Error(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

func (e ofPlaces) Unwrap() []error { return e }

// listen listens at a place. Where its address is that of this host as others see it (behind NAT), it listens on every
// interface.
func listen(p place) (listener net.Listener, foreign bool, err error) {
	host, port, malformed := net.SplitHostPort(p.address)
	if p.network == "tcp" && malformed == nil && host == "" {
		listener, err = listenEverywhere(port)
		return listener, false, err
	}
	listener, err = net.Listen(p.network, p.address)
	if p.network != "tcp" || malformed != nil || !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return listener, false, err
	}
	listener, err = listenEverywhere(port)
	return listener, true, err
}

// listenEverywhere listens on every interface. Without 127.0.0.1, which package net tries, it takes a host for one that
// cannot listen for both kinds of addresses at once, and chooses IPv4.
func listenEverywhere(port string) (net.Listener, error) {
	network := "tcp"
	if found, err := addressesOfHost(); err == nil && len(found) > 0 && !slices.ContainsFunc(found, netip.Addr.Is4) {
		network = "tcp6"
	}
	return net.Listen(network, net.JoinHostPort("", port))
}

// listening returns where a host that others look for at places listens: on every interface for a name that this host
// itself takes for loopback, as Debian's 127.0.1.1, and for a name of several addresses, as others may connect by each.
func listening(ctx context.Context, places []place) ([]place, error) {
	list := make([]place, len(places))
	for i, p := range places {
		list[i] = p
		host, port, err := net.SplitHostPort(p.address)
		if p.network != "tcp" || err != nil || !isName(host) {
			continue
		}
		found, err := resolved(ctx, places[i:i+1])
		if err != nil && !ownName(host) { // whose address others may know first, as in Kubernetes
			code := plugin.System
			if ctx.Err() != nil {
				code = plugin.Timeout
			}
			return nil, plugin.Errorf(code, "cannot listen: %w", err)
		}
		local := !slices.ContainsFunc(found, func(p place) bool {
			return !netip.MustParseAddrPort(p.address).Addr().IsLoopback()
		})
		switch {
		case local && ownName(host), !local && len(found) > 1:
			list[i].address = net.JoinHostPort("", port)
		case !local:
			list[i] = found[0]
		}
	}
	return list, nil
}

// ownName tells whether a host is named by this host's name, with or without its domain.
func ownName(host string) bool {
	own, err := os.Hostname()
	short := func(name string) string { name, _, _ = strings.Cut(strings.ToLower(name), "."); return name }
	return err == nil && host != "" && short(host) == short(own) && short(own) != "localhost" &&
		net.ParseIP(host) == nil
}

// release gives up one use of the hub.
func (h *hub) release() {
	registry.mu.Lock()
	h.refs--
	last := h.refs == 0
	if last {
		delete(registry.hubs, h.key)
		h.listener.Close() // with mu held: the next listener finds the place free
	}
	registry.mu.Unlock()
	if !last {
		return
	}
	h.mu.Lock()
	h.closed = true
	for _, s := range h.unverified {
		s.conn.Close()
	}
	h.mu.Unlock()
	h.done.Wait()
}

func (h *hub) accept() {
	defer h.done.Done()
	defer func() {
		for _, restore := range h.restore {
			restore()
		}
	}()
	for refused := 0; ; {
		conn, err := h.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if _, is := refusedCall(err); is {
			if refused++; refused >= mostRefused {
				h.deafen(withFilter(err))
			}
		} else {
			refused = 0
		}
		if err != nil {
			// Out of descriptors, most likely. Unverified connections become ranks or make room soon;
			// without any, the reserve serves to tell the ranks why they cannot join.
			h.warnings.warn(h.logger, "rendezvous: cannot accept a connection", "at", h.listener.Addr().String(), "error", err)
			if !h.makeRoom() && descriptors.Lacking(err) {
				h.fail(descriptors.Error(err, 1))
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err := SameUser(conn); err != nil {
			h.warnings.warn(h.logger, "rendezvous: dropped a connection", "from", conn.RemoteAddr().String(), "reason", err)
			conn.Close()
			if _, is := refusedCall(err); is {
				h.deafen(err)
			}
			continue
		}
		if !h.enter(conn) {
			conn.Close()
			return
		}
		h.done.Add(1)
		go h.receive(conn)
	}
}

// enter counts an unverified connection, at the cost of the oldest if there are too many.
func (h *hub) enter(conn net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if len(h.unverified) >= mostUnverified() {
		h.dropOldest()
	}
	h.unverified = append(h.unverified, unverified{conn, time.Now()})
	return true
}

// dropOldest drops the oldest unverified connection. The caller holds mu.
func (h *hub) dropOldest() {
	h.unverified[0].conn.Close()
	h.unverified = slices.Delete(h.unverified, 0, 1)
}

// makeRoom drops the oldest unverified connection if it has had its time; false if there is none.
func (h *hub) makeRoom() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unverified) == 0 {
		return false
	}
	if time.Since(h.unverified[0].since) > fairTime {
		h.dropOldest()
	}
	return true
}

// stores returns the stores that others reach through this listener.
func (h *hub) stores() (of []*store) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, list := range registry.stores {
		for _, st := range list {
			if st.root != nil && st.root.hub == h {
				of = append(of, st)
			}
		}
	}
	return of
}

// fail ends the gathering at the stores of this listener, which no other rank can
// reach any more, and sends the reason to ranks that still come.
func (h *hub) fail(reason *plugin.Error) {
	for _, st := range h.stores() {
		st.mu.Lock()
		if st.phase == gathering {
			h.restore = append(h.restore, descriptors.Release())
			st.failJoin(rankError(reason.Code, 0, "%v cannot take in all %d ranks: %s", st.self.as(0), st.world,
				reason.Message))
		}
		st.mu.Unlock()
	}
}

// leave counts an unverified connection no longer; false means that it was dropped meanwhile.
func (h *hub) leave(conn net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.unverified, func(s unverified) bool { return s.conn == conn })
	if i < 0 {
		return false
	}
	h.unverified = slices.Delete(h.unverified, i, i+1)
	return !h.closed
}

// receive turns an unverified connection into a rank of one of the stores, or drops it.
func (h *hub) receive(conn net.Conn) {
	defer h.done.Done()
	f, d, first, err := admit(conn, findDoor)
	if err != nil {
		conn.Close() // before it leaves, as these connections count where room is looked for
	}
	if here := h.leave(conn); err != nil || !here {
		conn.Close()
		switch {
		case errors.Is(err, errNoSuchStore):
			h.logger.Debug("rendezvous: a rank came early, or for another job", "from", conn.RemoteAddr().String())
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET): // as a rank that tries several addresses does
			h.logger.Debug("rendezvous: a connection ended before it was used", "from", conn.RemoteAddr().String())
		case err != nil && !errors.Is(err, net.ErrClosed):
			h.warnings.warn(h.logger, "rendezvous: dropped a connection", "from", conn.RemoteAddr().String(), "reason", err)
		}
		return
	}
	h.logger.Debug("rendezvous: rank arrived", "rank", first.Member.Rank, "from", conn.RemoteAddr().String())
	d.enroll(f, first, false)
}
