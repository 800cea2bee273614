package bootstrap

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// lateConn says of its next reads and writes that their deadline has passed. Writes get on by a byte until then.
type lateConn struct {
	net.Conn
	late    int
	waits   []time.Duration // of all deadlines
	written []byte
}

func (c *lateConn) SetReadDeadline(t time.Time) error {
	c.waits = append(c.waits, time.Until(t))
	return nil
}

func (c *lateConn) SetWriteDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *lateConn) Read(b []byte) (int, error) {
	if c.late > 0 {
		c.late--
		return 0, os.ErrDeadlineExceeded
	}
	return len(b), nil
}

func (c *lateConn) Write(b []byte) (int, error) {
	n := len(b)
	var err error
	if c.late > 0 {
		c.late--
		n, err = 1, os.ErrDeadlineExceeded
	}
	c.written = append(c.written, b[:n]...)
	return n, err
}

// A deadline that has passed while this process was stopped is one part of the wait.
func TestAPauseIsNoSilence(t *testing.T) {
	message := []byte("more bytes than parts of a wait")
	for name, wait := range map[string]func(*frameConn) error{
		"read": func(f *frameConn) error {
			require.NoError(t, f.limitReads(time.Hour))
			_, err := io.ReadFull(f, make([]byte, 100))
			return err
		},
		"write": func(f *frameConn) error {
			f.setSilence(time.Hour)
			return f.writeAll(message)
		},
	} {
		for late := range waitParts + 1 {
			c := &lateConn{late: late}
			err := wait(&frameConn{Conn: c, r: bufio.NewReader(c)})
			require.Equal(t, late == waitParts, errors.Is(err, os.ErrDeadlineExceeded), "%s, late %d times: %v", name, late, err)
			if name == "write" && err == nil {
				require.Equal(t, message, c.written)
			}
			var all time.Duration
			for _, wait := range c.waits {
				all += wait
			}
			require.InDelta(t, time.Hour*time.Duration(len(c.waits))/waitParts, all, float64(time.Minute))
		}
	}
	c := &lateConn{late: 1}
	f := &frameConn{Conn: c, r: bufio.NewReader(c)}
	require.NoError(t, f.limitReads(-time.Hour))
	_, err := io.ReadFull(f, make([]byte, 100))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// stoppedConn belongs to a process that is stopped again and again, just when it has set a deadline.
type stoppedConn struct {
	net.Conn
	deadlines atomic.Int64
}

func (c *stoppedConn) at(t time.Time) time.Time {
	if c.deadlines.Add(1)%2 == 0 && !t.IsZero() {
		return time.Now()
	}
	return t
}

func (c *stoppedConn) SetReadDeadline(t time.Time) error  { return c.Conn.SetReadDeadline(c.at(t)) }
func (c *stoppedConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.at(t)) }

// Frames arrive, whole and in order, over connections of processes that are stopped at every second deadline.
func TestStopsAtDeadlines(t *testing.T) {
	here, there := net.Pipe()
	conn := func(c net.Conn) *frameConn {
		s := &stoppedConn{Conn: c}
		f := newFrameConn(s, bufio.NewReader(s), secret{}, nonce{}, nonce{})
		f.setSilence(time.Minute)
		return f
	}
	from, to := conn(here), conn(there)
	from.sends, to.receives = from.toStore, to.toStore
	const frames = 100
	payload := bytes.Repeat([]byte("payload"), 10000)
	var work sync.WaitGroup
	work.Go(func() {
		defer from.Close()
		for i := range frames {
			if err := from.write(frame{kind: msgBeat, head: []byte{byte(i)}, payload: payload}); err != nil {
				t.Errorf("frame %d: %v", i, err)
				return
			}
		}
	})
	for i := range frames {
		require.NoError(t, to.limitReads(time.Minute))
		_, body, err := to.read()
		require.NoError(t, err, "frame %d", i)
		require.Equal(t, byte(i), body[0])
		require.True(t, bytes.Equal(payload, body[1:]), "frame %d", i)
	}
	_, _, err := to.read()
	require.ErrorIs(t, err, io.EOF)
	work.Wait()
	require.NoError(t, to.Close())
}

// A shorter silence also ends a write that runs.
func TestASilenceEndsAWriteThatRuns(t *testing.T) {
	here, there := net.Pipe()
	f := newFrameConn(here, bufio.NewReader(here), secret{}, nonce{}, nonce{})
	f.sends = f.toStore
	f.setSilence(time.Hour)
	written := make(chan error, 2)
	for range cap(written) {
		go func() { written <- f.write(frame{kind: msgBeat}) }()
	}
	_, err := there.Read(make([]byte, 1))
	require.NoError(t, err)
	f.setSilence(time.Millisecond)
	for range cap(written) {
		require.ErrorIs(t, <-written, os.ErrDeadlineExceeded)
	}
	require.NoError(t, there.Close())
	require.NoError(t, f.Close())
}

// What ends a connection is named also where the part of a wait ends at the same time.
func TestClosedWhileAPartPasses(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	c := &closingConn{here}
	f := &frameConn{Conn: c, r: bufio.NewReader(c)}
	require.NoError(t, f.limitReads(time.Minute))
	_, err := f.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// closingConn is closed by another goroutine when a deadline has passed.
type closingConn struct{ net.Conn }

func (c *closingConn) Read([]byte) (int, error) {
	return 0, errors.Join(os.ErrDeadlineExceeded, c.Close())
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
			require.NoError(t, f.limitReads(want))
			if sooner > 0 {
				want = 5 * time.Second
				time.AfterFunc(want-sooner, func() { require.NoError(t, f.limitReads(sooner)) })
			}
			_, err := f.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.InDelta(t, want, time.Since(begin), float64(time.Millisecond))
		}
	})
}

// eavesdrop relays one connection to a store, once it has the store's address, and keeps what goes over it: a stream
// from the rank and one from the store.
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

// An eavesdropper learns nothing of what ranks send to the store, nor that they send the same again.
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

// A rank can make the store keep so much in all its groups and no more, and gets an error beyond that; what is
// complete does not count.
func TestRankCannotFillTheStore(t *testing.T) {
	s := joinAll(t, 2, nil)
	var groups [2][2]*Group // of each rank
	noErrors(t, each(2, func(rank int) (err error) {
		groups[rank][0] = s[rank].All()
		groups[rank][1], err = s[rank].Group("half", []int{0, 1})
		return err
	}))
	ctx := short(t, 20*time.Second)
	data := make([]byte, maxFrame/2-100)
	fits := maxHeld / len(data)
	errs := make(chan error, fits+1)
	for i := range fits + 1 {
		go func() {
			_, err := groups[1][i%2].Broadcast(ctx, fmt.Sprint("t", i), 1, data)
			errs <- err
		}()
	}
	err := <-errs
	if plugin.CodeOf(err) != plugin.OutOfMemory || !strings.Contains(err.Error(), "rank 1 has") {
		t.Fatal(err)
	}
	failed := 0
	for i := range fits + 1 {
		if _, err := groups[0][i%2].Broadcast(ctx, fmt.Sprint("t", i), 1, nil); err != nil {
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

// A rank that waits in very many exchanges, which need have no data, is refused; those that have ended do not count.
func TestRankCannotFillTheStoreWithEmptyExchanges(t *testing.T) {
	s := joinAll(t, 2, nil)
	st := s[0].root.store
	waiting := func() (n int) {
		st.mu.Lock()
		defer st.mu.Unlock()
		for _, groups := range st.groups {
			for _, g := range groups {
				n += len(g.pending)
			}
		}
		require.Equal(t, st.open, n)
		return n
	}
	for i := range 3 {
		noErrors(t, each(2, func(rank int) error {
			g, err := s[rank].Group(fmt.Sprint("ended ", i), []int{0, 1})
			if err != nil {
				return err
			}
			_, err = g.Broadcast(t.Context(), "an exchange", 0, nil)
			return errors.Join(err, g.Close())
		}))
	}
	require.Zero(t, waiting())
	ctx, cancel := context.WithCancel(short(t, time.Minute))
	defer cancel()
	errs := make(chan error, maxWaiting+1)
	for i := range maxWaiting/maxPending + 1 {
		g, err := s[1].Group(fmt.Sprint("group ", i), []int{0, 1})
		require.NoError(t, err)
		for tag := range min(maxPending, maxWaiting+1-i*maxPending) {
			go func() {
				_, err := g.Broadcast(ctx, fmt.Sprint("exchange ", tag), 0, nil)
				errs <- err
			}()
		}
	}
	err := <-errs
	require.ErrorIs(t, err, plugin.OutOfMemory)
	require.ErrorContains(t, err, fmt.Sprintf("at most %d exchanges of all its groups", maxWaiting))
	require.LessOrEqual(t, waiting(), maxWaiting)
}

// What ranks exchange together may be more than the store passes on at once, where they gather it in parts.
func TestGatherInParts(t *testing.T) {
	require.Equal(t, maxFrame/2, round.Most)
	s := joinAll(t, 2, nil)
	payloads := [][]byte{bytes.Repeat([]byte("long"), round.Most/4), []byte("short")}
	noErrors(t, each(2, func(rank int) error {
		group := s[rank].All()
		if _, err := group.AllGather(t.Context(), "at once", payloads[rank]); plugin.CodeOf(err) != plugin.InvalidArgument {
			return fmt.Errorf("in one exchange: %w", err)
		}
		all, err := round.Gather(t.Context(), group, 2, "in parts", payloads[rank])
		if err == nil && !slices.EqualFunc(all, payloads, bytes.Equal) {
			err = fmt.Errorf("%d and %d bytes are not those of the ranks", len(all[0]), len(all[1]))
		}
		return err
	}))
}

// However the end of a process reaches a connection, its report is the same.
func TestWhatAnEndedProcessLeavesIsToldAlike(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
		&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)},
		&net.OpError{Op: "read", Err: net.ErrClosed}} {
		require.Equal(t, "its process has ended, or its connection was closed without a goodbye",
			new(frameConn).lossReason(err, 0), "%v", err)
	}
	require.Equal(t, "its connection was lost: no route to host", new(frameConn).lossReason(syscall.EHOSTUNREACH, 0))
}

// addressed is a connection between two addresses.
type addressed struct {
	net.Conn
	here, there net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.here }
func (a addressed) RemoteAddr() net.Addr { return a.there }

// A host out of sight may be silent because of the network alone.
func TestSilenceBetweenHostsMayBeTheNetworks(t *testing.T) {
	at := func(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }
	const silent, network = "it gave no sign of life for 10s, ten times SHUNT_HEARTBEAT",
		", or the network between the hosts loses packets"
	for _, c := range []struct {
		here, there net.Addr
		want        string
	}{
		{at("10.0.0.1:5"), at("10.0.0.2:6"), silent + network}, {at("[fd00::1]:5"), at("[fd00::2]:6"), silent + network},
		{at("10.0.0.1:5"), at("10.0.0.1:6"), silent}, {at("127.0.0.1:5"), at("127.0.0.1:6"), silent},
		{&net.UnixAddr{}, &net.UnixAddr{}, silent},
	} {
		f := &frameConn{Conn: addressed{nil, c.here, c.there}}
		require.Equal(t, c.want, f.lossReason(os.ErrDeadlineExceeded, 10*time.Second))
		f.exited.Store(true)
		require.Equal(t, "its process has ended", f.lossReason(os.ErrDeadlineExceeded, 10*time.Second))
	}
}
