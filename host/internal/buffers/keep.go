package buffers

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// Keep runs until the context ends: it takes up what kernels missed, maps what
// peers export and tells kernels what peers have mapped.
func (t *Registry) Keep(ctx context.Context) {
	t.pace(ctx, func() bool { return t.Failure.Reason() != nil || t.look(ctx) }, func() {
		if t.Failure.Reason() == nil {
			t.audit()
		}
	})
}

// pace calls look until it returns false or the context ends: each keepPeriod, when it is woken, and each busyPeriod
// for a while after there was a hurry. It calls audit each keepPeriod.
func (t *Registry) pace(ctx context.Context, look func() bool, audit func()) {
	looks, audits := time.NewTimer(keepPeriod), time.NewTicker(keepPeriod)
	defer looks.Stop()
	defer audits.Stop()
	var busy time.Time // until then
	for {
		select {
		case <-ctx.Done():
			return
		case <-audits.C:
			audit()
			continue
		case <-t.wake:
		case <-looks.C:
		}
		if !look() {
			return
		}
		now := time.Now()
		if t.changed.Swap(false) {
			busy = now.Add(busyTime)
		}
		if now.Before(busy) {
			looks.Reset(busyPeriod)
		} else {
			looks.Reset(keepPeriod)
		}
	}
}

// look does what there is to do. It returns false where nothing can be done any more.
func (t *Registry) look(ctx context.Context) bool {
	err := errors.Join(t.step(ctx), t.exec.Tend())
	if err == nil {
		return true
	}
	if result := cuda.ResultOf(err); result.Sticky() || result == cuda.Deinitialized {
		return false // the process ends, or its context is broken: nothing can be withdrawn any more
	}
	if text := err.Error(); text != t.told { // it comes again with every look
		t.told = text
		t.Logger.Warn("a buffer could not be withdrawn from peers", "communicator", t.Label, "rank", t.Rank, "reason", err)
	}
	return true
}

// keepPeriod is the time between two looks of a directory at its pages: a few hundred
// loads from shared memory where nothing has changed. New memory takes three looks of its
// exporter and one of each peer, and until then long messages go another way, at a third
// of the speed: so it looks every busyPeriod for busyTime after something has changed (hurry).
// Each keepPeriod it also asks the driver whether some of its exports are still there:
// all of them within auditTicks.
const (
	keepPeriod  = 20 * time.Millisecond
	busyPeriod  = time.Millisecond
	busyTime    = 2 * keepPeriod
	auditTicks  = 10
	auditPieces = 64
)

// What a peer exports and this rank cannot map is tried again after leastPause, then
// after twice as long each time, and whenever something else was unmapped. The exporter
// keeps descriptors for fetchTime.
const (
	leastPause   = 250 * time.Millisecond
	longestPause = 30 * time.Second
	fetchTime    = time.Minute
)

// A peer that is stopped gives no descriptors, and what other peers free has to be unmapped meanwhile: so the keeper
// waits for leastPatience, and then fetches nothing from that peer for a growing pause. A peer that is only slow gets
// more time with each try, up to longestPatience.
const (
	leastPatience   = 250 * time.Millisecond
	longestPatience = 750 * time.Millisecond
)

// audit withdraws what the user has freed, which peers' mappings keep alive. It continues where it stopped the last
// time. The lock is not held while the driver is asked, which may take a while: calls wait for it.
func (t *Registry) audit() {
	if t.count.Load() == 0 {
		return
	}
	t.mu.Lock()
	budget := 0
	for i := range t.exports[:t.high] {
		budget += len(t.exports[i].pieces)
	}
	high := t.high
	t.mu.Unlock()
	budget = min(budget, max(auditPieces, (budget+auditTicks-1)/auditTicks))
	for seen := 0; budget > 0 && seen <= high; {
		t.mu.Lock()
		if t.audited.export >= t.high {
			t.audited = position{}
		}
		e, at := t.exports[t.audited.export], t.audited
		to := min(at.piece+budget, len(e.pieces))
		if t.audited.piece = to; to >= len(e.pieces) {
			t.audited, seen = position{export: at.export + 1}, seen+1
		}
		t.mu.Unlock()
		if e.bytes == 0 || e.window || e.leaving != staying || at.piece >= to {
			continue
		}
		budget -= to - at.piece
		if t.gpu.freed(e.pieces[at.piece:to], e.ids[at.piece:to]) {
			t.lose(at.export, e.generation)
		}
	}
}

// position is the progress of the audit.
type position struct{ export, piece int }

// step follows peers and withdraws what has to go. Its error is that of the withdrawal.
func (t *Registry) step(ctx context.Context) error {
	for p, bytes := t.exec.Missed(); p != 0; p, bytes = 0, 0 {
		if err := t.note(span{p, bytes}); err != nil {
			t.Logger.Debug("a buffer is staged", "communicator", t.Label, "rank", t.Rank, "address", uint64(p), "bytes", bytes,
				"reason", err)
		}
	}
	t.adoptCandidates()
	again := t.unmapped // so there is more room
	t.unmapped = false
	for rank := range t.pages {
		if rank != t.Rank {
			t.followPeer(ctx, rank, again)
		}
	}
	t.tellKernels()
	return errors.Join(t.evict(), t.depart())
}

// tellKernels sets the bits of peers that have mapped an export.
func (t *Registry) tellKernels() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.exports {
		e := &t.exports[i]
		if e.bytes == 0 || e.leaving != staying || e.known == t.everyone() {
			continue
		}
		known := uint64(0)
		for rank := range t.pages {
			if rank != t.Rank && atomic.LoadUint64(t.pages[rank].mapped(t.Rank, i)) == e.generation {
				known |= 1 << rank
			}
		}
		if known == t.everyone() {
			t.unshare(i, e)
		} else if e.shared && e.settling == 0 && time.Since(e.entered) > fetchTime {
			// Its descriptors are given back. When it is missed again it is exported anew.
			if err := t.withdraw(i); err != nil {
				t.Logger.Warn("a buffer that peers cannot map could not be withdrawn", "communicator", t.Label, "rank", t.Rank,
					"reason", err)
			}
			continue
		}
		if known == e.known {
			continue
		}
		if err := t.copies.Put(t.table+cuda.Ptr(plugin.DirectoryEntry(i))+16,
			binary.LittleEndian.AppendUint64(nil, known)); err != nil {
			t.Logger.Warn("the directory of buffers cannot be written", "communicator", t.Label, "rank", t.Rank, "reason", err)
			return
		}
		e.known = known
		t.hurry()
		if known == t.everyone() {
			t.supersede(i)
		}
		t.Logger.Debug("a buffer is mapped by peers", "communicator", t.Label, "rank", t.Rank, "address", uint64(e.base),
			"bytes", e.bytes, "peers", bits.OnesCount64(known))
	}
}

// followPeer maps what a peer exports and unmaps what it has withdrawn.
// With again, what could not be mapped is tried again at once, unless the peer is silent.
func (t *Registry) followPeer(ctx context.Context, rank int, again bool) {
	mine := t.pages[t.Rank]
	for i := range plugin.DirectoryExports {
		have := &t.imports[rank][i]
		s, ok := t.pages[rank].read(i)
		if !ok {
			s = pageEntry{}
		}
		now := time.Now()
		if s.generation == have.generation && (have.pause == 0 || !again && now.Before(have.retry)) {
			continue
		}
		silent := s.kind == plugin.HandleKindCudaVmm && now.Before(t.silent[rank].until)
		if silent && have.mapping == nil {
			continue
		}
		place := t.table + cuda.Ptr(plugin.DirectoryImport(rank, i))
		if mapping := have.mapping; mapping != nil {
			// The exporter has taken its word back and seen its kernels end, which wait for this rank's part: nothing reaches
			// the memory any more. It is forgotten before it is closed: no symmetric range may come to hold it (see hold).
			t.unmapped = true
			atomic.StoreUint64(mine.mapped(rank, i), 0)
			t.noteImport(have, imported{})
			err := errors.Join(t.copies.Put(place, make([]byte, 8)), mapping.Close())
			if err != nil {
				t.Logger.Warn("a peer's buffer cannot be unmapped", "communicator", t.Label, "rank", t.Rank, "peer", rank, "reason",
					err)
			}
		}
		if silent || s.kind == kindWindow && !t.hasWindow(s.ordinal) { // not open here yet, or no longer
			s = pageEntry{} // it is looked at again
		}
		pause := time.Duration(0)
		if s.generation == have.generation {
			pause = have.pause
		}
		t.noteImport(have, imported{generation: s.generation})
		if pause == 0 { // not for what is tried again and again
			t.hurry()
		}
		if s.generation == 0 {
			continue
		}
		mapping, address, err := t.open(ctx, rank, i, s)
		if err == nil {
			if err = t.copies.Put(place, binary.LittleEndian.AppendUint64(nil, uint64(address))); err != nil {
				err = errors.Join(err, mapping.Close()) // the exporter does not see it as mapped, so no kernel uses it
			}
		}
		if err != nil && s.kind == plugin.HandleKindCudaVmm && plugin.CodeOf(err) == plugin.Timeout {
			t.noteImport(have, imported{})
			t.noteSilence(rank, s.bytes, err)
			return
		}
		if s.kind == plugin.HandleKindCudaVmm && time.Since(now) < leastPatience { // else its next one is as slow
			t.silent[rank] = silence{}
		}
		if err != nil {
			level := slog.LevelInfo
			if pause > 0 { // not for what passes, as a connection that was lost while the machine was busy
				atomic.StoreUint64(mine.mapped(rank, i), s.generation|cannotMap)
				level = slog.LevelDebug
			}
			pause = min(max(2*pause, leastPause), longestPause)
			t.noteImport(have, imported{generation: s.generation, retry: now.Add(pause), pause: pause})
			t.Logger.Log(ctx, level, "a peer's buffer cannot be mapped and is staged until it can", "communicator", t.Label,
				"rank", t.Rank, "peer", rank, "bytes", s.bytes, "reason", err)
			continue
		}
		shared := &sharedMapping{Closer: mapping}
		shared.hold()
		t.noteImport(have, imported{generation: s.generation, mapping: shared, address: address, bytes: s.bytes})
		atomic.StoreUint64(mine.mapped(rank, i), s.generation)
	}
}

// noteSilence notes that a peer did not give the descriptors of a buffer in time.
func (t *Registry) noteSilence(rank int, bytes int64, reason error) {
	level := slog.LevelInfo
	if t.silent[rank].pause > 0 {
		level = slog.LevelDebug
	}
	pause := min(max(2*t.silent[rank].pause, leastPause), longestPause)
	t.silent[rank] = silence{time.Now().Add(pause), pause}
	t.Logger.Log(context.Background(), level, "a peer's buffer is staged, as the peer does not respond", "communicator",
		t.Label, "rank", t.Rank, "peer", rank, "bytes", bytes, "pause", pause, "reason", reason)
}

// noteImport replaces what is known of an import.
func (t *Registry) noteImport(have *imported, now imported) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*have = now
}

// hasWindow says whether a window is open on this rank.
func (t *Registry) hasWindow(region int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.windows[uint32(region)] != nil
}

// open maps a peer's export.
func (t *Registry) open(ctx context.Context, rank, at int, s pageEntry) (io.Closer, cuda.Ptr, error) {
	if s.kind == kindWindow {
		t.mu.Lock()
		addresses := t.windows[uint32(s.ordinal)]
		t.mu.Unlock()
		if addresses == nil {
			return nil, 0, plugin.Errorf(plugin.Closed, "window %d is closed here", s.ordinal)
		}
		return closer(func() error { return nil }), addresses[rank], nil
	}
	if s.kind == plugin.HandleKindCudaIpc && t.Topology.SameProcess(t.Rank, rank) {
		return t.reach(s) // a handle cannot be opened where it was made
	}
	if s.kind == plugin.HandleKindCudaVmm {
		return t.openPieces(ctx, rank, at, s)
	}
	m, err := memory.MapDevice(t.gpu.Driver, t.gpu.Context, t.gpu.Ordinal, plugin.Region{
		Memory: plugin.MemoryKindCuda, Role: plugin.RegionRoleBuffer, Bytes: s.bytes,
		Handle: plugin.Handle{Kind: s.kind, Generation: s.generation, Bytes: s.bytes, FD: -1, Data: s.ipc[:]},
	})
	if err != nil {
		return nil, 0, err
	}
	return m, m.Address(), nil
}

// reach makes memory of another device of this process accessible at its own
// address.
func (t *Registry) reach(s pageEntry) (io.Closer, cuda.Ptr, error) {
	if s.ordinal == t.gpu.Ordinal {
		return closer(func() error { return nil }), s.base, nil
	}
	peer, err := t.gpu.Driver.Retain(s.ordinal)
	if err != nil {
		return nil, 0, err
	}
	release := func() error { return t.gpu.Driver.Release(s.ordinal) }
	if err := t.gpu.Driver.EnablePeer(t.gpu.Context, peer); err != nil {
		return nil, 0, errors.Join(err, release())
	}
	return closer(release), s.base, nil
}
