package bootstrap

import (
	"log/slog"
	"sync"
	"time"
)

// How long the process that runs the store waits for the ranks of other
// processes: to say goodbye, and to learn why joining, or a group, failed.
var (
	lingerTime     = 5 * time.Second
	lingerTimeFail = time.Second // tests shorten it
)

// Root is a store in this process.
type Root struct {
	store *store
	hub   *hub // nil if every rank is in this process

	mu       sync.Mutex
	attached int // sessions of this process, and joins in progress
	closed   bool
}

// newRoot opens a store that listens at the first free one of the places; with
// no places it serves this process alone. cleanup runs when it ends.
func newRoot(s secret, name storeID, places []place, logger *slog.Logger) (*Root, error) {
	r := &Root{store: newStore(s, logger)}
	r.store.name = name
	r.store.root = r
	if err := register(r.store, places, logger); err != nil {
		return nil, err
	}
	r.store.onStop = append(r.store.onStop, func() {
		unregister(r.store)
		if r.hub != nil {
			r.hub.release()
		}
	})
	return r, nil
}

// attach counts a session in; false if the root is closed.
func (r *Root) attach() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.attached++
	return true
}

// detach counts a session out. The last one closes the root.
func (r *Root) detach() {
	r.mu.Lock()
	r.attached--
	r.mu.Unlock()
	r.Close()
}

// Close ends the store if no session of this process uses it; otherwise the
// last of them does when it closes. It waits a few seconds at most for ranks of
// other processes that are still connected.
func (r *Root) Close() error {
	r.mu.Lock()
	if r.closed || r.attached > 0 {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	limit := lingerTime
	r.store.mu.Lock()
	if r.store.phase == failed || r.store.hasAborted() {
		limit = lingerTimeFail
	}
	r.store.mu.Unlock()
	r.store.linger(limit)
	r.store.stop()
	r.store.done.Wait()
	return nil
}

// hasAborted reports whether ranks have a group that one of them aborted: they have been told, and nobody knows when
// they are done with it. The caller holds mu.
func (st *store) hasAborted() bool {
	for g := range st.allGroups() {
		if g.aborted && len(g.ids) > 0 {
			return true
		}
	}
	return false
}
