package bootstrap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// lateConn says of its next reads that their deadline has passed.
type lateConn struct {
	net.Conn
	late  int
	waits []time.Duration // of all deadlines
}

func (c *lateConn) SetReadDeadline(t time.Time) error {
	c.waits = append(c.waits, time.Until(t))
	return nil
}

func (c *lateConn) Read(b []byte) (int, error) {
	if c.late > 0 {
		c.late--
		return 0, os.ErrDeadlineExceeded
	}
	return len(b), nil
}

// A deadline that has passed while this process was stopped is one part of the wait.
func TestAPauseIsNoSilence(t *testing.T) {
	for late := range waitParts + 1 {
		c := &lateConn{late: late}
		f := &frameConn{Conn: c, r: bufio.NewReader(c)}
		require.NoError(t, f.SetReadDeadline(time.Now().Add(time.Hour)))
		_, err := io.ReadFull(f, make([]byte, 100))
		require.Equal(t, late == waitParts, errors.Is(err, os.ErrDeadlineExceeded), "late %d times: %v", late, err)
		var all time.Duration
		for _, wait := range c.waits {
			all += wait
		}
		require.InDelta(t, time.Hour*time.Duration(len(c.waits))/waitParts, all, float64(time.Minute))
	}
	c := &lateConn{late: 1}
	f := &frameConn{Conn: c, r: bufio.NewReader(c)}
	require.NoError(t, f.SetReadDeadline(time.Now().Add(-time.Hour)))
	_, err := io.ReadFull(f, make([]byte, 100))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// A wait lasts as long as it is to, and another goroutine ends it.
func TestReadDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		f := &frameConn{Conn: here, r: bufio.NewReader(here)}
		defer f.Close()
		for _, sooner := range []time.Duration{0, time.Second} {
			begin, want := time.Now(), 10*time.Second
			require.NoError(t, f.SetReadDeadline(begin.Add(want)))
			if sooner > 0 {
				want = 5 * time.Second
				time.AfterFunc(want-sooner, func() { require.NoError(t, f.SetReadDeadline(time.Now().Add(sooner))) })
			}
			_, err := f.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.InDelta(t, want, time.Since(begin), float64(time.Millisecond))
		}
	})
}

// eavesdrop relays one connection to a store, once it is told where that is, and
// keeps what goes over it: a stream from the rank and one from the store.
func eavesdrop(t *testing.T, to chan netip.AddrPort) (at netip.AddrPort, heard func() [][]byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var streams [2]bytes.Buffer
	var work sync.WaitGroup
	relay := func(from, to net.Conn, stream *bytes.Buffer) {
		defer from.Close()
		defer to.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			mu.Lock()
			stream.Write(b[:n])
			mu.Unlock()
			if _, failed := to.Write(b[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	work.Go(func() {
		rank, err := l.Accept()
		if err != nil {
			return
		}
		store, err := net.Dial("tcp", (<-to).String())
		if err != nil {
			t.Error(err)
			rank.Close()
			return
		}
		work.Go(func() { relay(rank, store, &streams[0]) })
		work.Go(func() { relay(store, rank, &streams[1]) })
	})
	t.Cleanup(func() {
		l.Close()
		work.Wait() // for the end of the rank's session
	})
	return l.Addr().(*net.TCPAddr).AddrPort(), func() [][]byte {
		mu.Lock()
		defer mu.Unlock()
		return [][]byte{bytes.Clone(streams[0].Bytes()), bytes.Clone(streams[1].Bytes())}
	}
}

// Whoever listens on the wire learns nothing of what ranks say to the store, nor
// that they say the same again.
func TestNothingIsReadableOnTheWire(t *testing.T) {
	dialing(t)
	store := make(chan netip.AddrPort, 1)
	at, heard := eavesdrop(t, store)
	s := joinAll(t, 2, func(c *Config) {
		if c.Rank == 1 {
			store <- c.ID.addresses[0]
			c.ID.addresses[0] = at // the only one
		}
	})
	const text = "a word that is not for others"
	for round := range 2 {
		noErrors(t, each(2, func(rank int) error {
			_, err := s[rank].All().AllGather(t.Context(), fmt.Sprint("t", round), []byte(text))
			return err
		}))
	}
	for i, b := range heard() {
		if len(b) < 2*len(text) || bytes.Contains(b, []byte(text[:8])) {
			t.Errorf("stream %d: %d bytes, want more and not %q", i, len(b), text[:8])
		}
		for i := lengthBytes; i+16 < len(b); i++ {
			if bytes.Contains(b[i+16:], b[i:i+16]) {
				t.Fatalf("16 bytes at %d come twice", i)
			}
		}
	}
}

// A rank makes the store keep so much and no more, and hears of it; what is
// complete does not count.
func TestRankCannotFillTheStore(t *testing.T) {
	s := joinAll(t, 2, nil)
	data := make([]byte, maxFrame/2-100)
	fits := maxHeld / len(data)
	errs := make(chan error, fits+1)
	for i := range fits + 1 {
		go func() {
			_, err := s[1].All().Broadcast(t.Context(), fmt.Sprint("t", i), 1, data)
			errs <- err
		}()
	}
	err := <-errs
	if plugin.CodeOf(err) != plugin.OutOfMemory || !strings.Contains(err.Error(), "rank 1 has") {
		t.Fatal(err)
	}
	failed := 0
	for i := range fits + 1 {
		if _, err := s[0].All().Broadcast(t.Context(), fmt.Sprint("t", i), 1, nil); err != nil {
			failed++
			if plugin.CodeOf(err) != plugin.OutOfMemory {
				t.Error(err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d broadcasts failed", failed)
	}
	for range fits {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i := range 2 * fits {
		noErrors(t, each(2, func(rank int) error {
			_, err := s[rank].All().Broadcast(t.Context(), fmt.Sprint("u", i), 1, data)
			return err
		}))
	}
}
