package bootstrap

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// headStart is the time that a place has to itself before the next one is tried beside it, as in RFC 8305.
const headStart = 250 * time.Millisecond

// Limits of one attempt to connect. It begins short, as rank 0 may be about to listen where no process replies yet, and
// grows, for networks that take seconds to reply.
const (
	shortestDial = time.Second
	longestDial  = 5 * time.Second
)

// lookupAddresses finds the addresses of a name.
var lookupAddresses = net.DefaultResolver.LookupNetIP // tests replace it

// resolved replaces the names in places by their addresses, each of which is a place of its own.
func resolved(ctx context.Context, places []place) ([]place, error) {
	var list []place
	known := map[string][]netip.Addr{}
	for _, p := range places {
		host, port, err := net.SplitHostPort(p.address)
		if p.network != "tcp" || err != nil || !isName(host) {
			list = append(list, p)
			continue
		}
		if _, is := known[host]; !is {
			if known[host], err = lookupAddresses(ctx, "ip", host); err != nil {
				return nil, err
			}
		}
		for _, a := range known[host] {
			list = append(list, place{"tcp", net.JoinHostPort(a.Unmap().String(), port)})
		}
	}
	return list, nil
}

// isName reports whether a host must be looked up.
func isName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && host != ""
}

// knock looks for the store at all places: at the first, and beside it at the next ones where it takes long to reply.
// It returns the first connection to a store that has proved the secret, and the number of its place. An error with
// another code than Protocol is final.
func (j *joiner) knock(ctx context.Context, places []place) (*frameConn, int, error) {
	type outcome struct {
		of  int
		f   *frameConn
		err error
	}
	limit := min(shortestDial*time.Duration(1+j.slow), longestDial)
	ctx, cancel := context.WithCancel(ctx)
	outcomes, begun, ended := make(chan outcome, len(places)), 0, 0
	defer func() {
		cancel()
		for ; ended < begun; ended++ {
			if o := <-outcomes; o.f != nil {
				o.f.Close()
			}
		}
	}()
	errs, slow := make(ofPlaces, len(places)), 0
	next := time.NewTimer(0)
	defer next.Stop()
	for ended < len(places) {
		select {
		case <-next.C:
			if begun == len(places) {
				continue
			}
			go func(of int) {
				f, err := j.knockAt(ctx, places[of], limit)
				outcomes <- outcome{of, f, err}
			}(begun)
			begun++
			next.Reset(headStart)
		case o := <-outcomes:
			ended++
			if o.err == nil || final(o.err) {
				return o.f, o.of, o.err
			}
			if late := net.Error(nil); errors.As(o.err, &late) && late.Timeout() {
				slow = 1
			}
			errs[o.of] = o.err
			next.Reset(0)
		}
	}
	j.slow += slow
	if !slices.ContainsFunc(errs, func(err error) bool { name, _ := refusedCall(err); return name != "socket" }) {
		return nil, 0, rankError(plugin.System, j.config.Rank, "rank %d cannot join at %s: %v", j.config.Rank, j.meeting.text,
			withFilter(errs))
	}
	return nil, 0, plugin.Errorf(plugin.Protocol, "%w%s", errs, ofOwnHost(errs))
}

// ofOwnHost adds to the errors of a rank that found nobody at addresses of loopback that no other host is there.
func ofOwnHost(errs ofPlaces) string {
	for _, err := range errs {
		var refused *net.OpError
		if !errors.As(err, &refused) || !errors.Is(refused, syscall.ECONNREFUSED) {
			return ""
		}
		if at, is := refused.Addr.(*net.TCPAddr); !is || !at.IP.IsLoopback() {
			return ""
		}
	}
	return ", where only processes of this rank's own host can listen"
}

// final reports whether no other attempt can mend an error.
func final(err error) bool {
	var worded *plugin.Error
	return errors.As(err, &worded) && worded.Code != plugin.Protocol
}

// knockAt looks for the store at one place.
func (j *joiner) knockAt(ctx context.Context, p place, limit time.Duration) (*frameConn, error) {
	dialer := net.Dialer{Timeout: limit}
	conn, err := dialer.DialContext(ctx, p.network, p.address)
	if err != nil {
		return nil, err
	}
	if err := SameUser(conn); err != nil {
		conn.Close()
		if final(err) {
			return nil, rankError(plugin.CodeOf(err), j.config.Rank, "rank %d cannot join at %s: %v", j.config.Rank,
				j.meeting.text, err)
		}
		if len(j.meeting.places) == 1 { // no other process can take this name while that process has it
			return nil, plugin.Errorf(plugin.InvalidArgument,
				"rank %d cannot join at %s: %w; all ranks of one machine belong to one user", j.config.Rank, j.meeting.text, err)
		}
		return nil, plugin.Errorf(plugin.Protocol, "%w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	f, err := j.greet(ctx, conn)
	if !stop() && err == nil { // another place has replied meanwhile
		f.Close()
		return nil, ctx.Err()
	}
	return f, err
}
