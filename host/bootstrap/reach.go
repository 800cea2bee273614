package bootstrap

import (
	"context"
	"errors"
	"net"
	"slices"
	"syscall"
	"time"
)

// reach connects to all the places of one rank at once, and has use take over each connection that comes within limit,
// until one is the right one. A host has addresses that others do not reach, and those that drop what they get say
// nothing for as long as one waits.
func reach(ctx context.Context, places []place, limit time.Duration,
	use func(net.Conn) (right bool, err error)) error {
	type outcome struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	made := make(chan outcome, len(places))
	for _, p := range places {
		go func() {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, p.network, p.address)
			if err == nil {
				if err = SameUser(conn); err != nil {
					conn.Close()
				}
			}
			made <- outcome{conn, err}
		}()
	}
	left := len(places)
	defer func() {
		cancel()
		for ; left > 0; left-- {
			if o := <-made; o.err == nil {
				o.conn.Close()
			}
		}
	}()
	var errs ofPlaces
	for left > 0 {
		o := <-made
		left--
		if o.err == nil {
			var right bool
			if right, o.err = use(o.conn); right {
				return o.err
			}
		}
		errs = append(errs, o.err)
	}
	return errs
}

// silentHosts are the addresses that nothing replies from, as those of a host without power. All ranks there have them,
// and each attempt to connect takes as long as one waits.
type silentHosts map[string]bool

// without returns the places that are not at such an address.
func (s silentHosts) without(places []place) []place {
	return slices.DeleteFunc(slices.Clone(places), func(p place) bool {
		host, _, err := net.SplitHostPort(p.address)
		return err == nil && s[host]
	})
}

// note takes the addresses from an error of reach.
func (s silentHosts) note(err error) {
	of, _ := errors.AsType[ofPlaces](err)
	for _, err := range of {
		dial, is := errors.AsType[*net.OpError](err)
		if !is || dial.Op != "dial" || dial.Addr == nil || !(dial.Timeout() || errors.Is(dial, syscall.EHOSTUNREACH)) {
			continue
		}
		if host, _, err := net.SplitHostPort(dial.Addr.String()); err == nil {
			s[host] = true
		}
	}
}
