package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// host opens the store of a meeting place. Where it cannot, a file says so to the other ranks, which wait for one.
func (j *joiner) host(ctx context.Context) error {
	if j.meeting.file != "" {
		if err := claimFile(j.meeting.file, j.config.Logger); err != nil {
			if m, is := storeOf(j.meeting.file); is {
				_ = j.challenge(ctx, m, m.places) // err says more
			}
			return j.cannotServe(err)
		}
	}
	var places []place
	open := func() (err error) {
		if j.meeting.file != "" {
			j.root, err = hostFile(j.meeting.file, j.config.Logger)
			return err
		}
		if places, err = j.placesToListen(ctx); err == nil {
			j.root, err = newRoot(j.meeting.secret, j.meeting.name, places, j.config.Logger)
		}
		return err
	}
	err := open()
	if descriptors.Lacking(err) && j.lacks(err) {
		err = open()
	}
	if j.meeting.file == "" {
		var h *hub
		if err == nil {
			h = j.root.hub
			j.root.store.mu.Lock()
			j.root.store.anyJob = j.config.anyJob
			j.root.store.mu.Unlock()
		}
		if clash := j.challenge(ctx, j.meeting, busyPlaces(places, h, err)); clash != nil {
			return j.giveWay(clash)
		}
	}
	if err != nil {
		failure := j.cannotServe(err)
		if j.meeting.file != "" {
			leaveFailure(j.meeting.file, failure, j.config.Logger)
		}
		return failure
	}
	j.meeting.secret = j.root.store.secret
	j.root.attach() // cannot fail, as no other process knows the address
	if j.meeting.open {
		j.warnOfStrangers()
	}
	return nil
}

// placesToListen returns where rank 0 listens. A name may become known after the start, as that of a service of
// Kubernetes does: it is looked up until the time to join is over, as by the other ranks.
func (j *joiner) placesToListen(ctx context.Context) ([]place, error) {
	var last error
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		places, err := listening(ctx, j.meeting.places)
		var lookup *net.DNSError
		if !errors.As(err, &lookup) || descriptors.Lacking(err) {
			return places, err
		}
		if last == nil && ctx.Err() == nil {
			j.config.Logger.Warn("rendezvous: rank 0 waits for the name of its address to become known", "reason", err)
		}
		if last == nil || ctx.Err() == nil { // else the lookup was cut short
			last = err
		}
		if pause(ctx, wait); ctx.Err() != nil {
			code := plugin.Timeout
			if errors.Is(ctx.Err(), context.Canceled) {
				code = plugin.Aborted
			}
			return nil, plugin.Errorf(code, "%w", last)
		}
	}
}

// cannotServe returns the error of a rank 0 that the others cannot reach.
func (j *joiner) cannotServe(err error) *plugin.Error {
	return &plugin.Error{Code: plugin.CodeOf(err), Rank: j.config.Rank, Cause: err, Message: fmt.Sprintf(
		"%v cannot serve the other ranks at %s: %v", j.self, j.meeting.text, err)}
}

// giveWay ends the store of a rank 0 whose place is another job's, and tells the ranks that look for it.
func (j *joiner) giveWay(clash *plugin.Error) *plugin.Error {
	failure := j.cannotServe(clash)
	if j.root != nil {
		st := j.root.store
		st.mu.Lock()
		if st.world == 0 {
			st.world = j.config.World
		}
		st.clash = clash
		st.failJoin(failure)
		st.mu.Unlock()
		j.root.Close()
	}
	return failure
}

// warnOfStrangers warns if other machines reach the store of a job without a secret.
func (j *joiner) warnOfStrangers() {
	at, is := j.root.hub.listener.Addr().(*net.TCPAddr)
	if !is || at.IP.IsLoopback() {
		return
	}
	j.config.Logger.Warn("any process that reaches this address can join the job, which has no secret; set SHUNT_SECRET to the "+
		"same text on all ranks, as from openssl rand -hex 16", "rank", j.config.Rank, "at", at.String())
}
