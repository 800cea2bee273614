package bootstrap

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// names has a name mean addresses.
func names(t *testing.T, name string, addresses ...string) {
	old := lookupAddresses
	lookupAddresses = func(ctx context.Context, network, host string) (list []netip.Addr, err error) {
		if host != name {
			return old(ctx, network, host)
		}
		for _, a := range addresses {
			list = append(list, netip.MustParseAddr(a))
		}
		return list, nil
	}
	t.Cleanup(func() { lookupAddresses = old })
}

// A name of several addresses leads to the one at which the store is, also where another replies nothing.
func TestNameOfSeveralAddresses(t *testing.T) {
	dialing(t)
	silent := netip.MustParseAddrPort(silentAddress(t))
	key := secret{1}
	root, err := newRoot(key, storeID{}, []place{{"tcp", fmt.Sprintf("127.0.0.2:%d", silent.Port())}}, quiet)
	require.NoError(t, err)
	defer root.Close()
	for _, addresses := range [][]string{{"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "127.0.0.1"},
		{"127.0.0.3", "127.0.0.2"}} {
		names(t, "trainer", addresses...)
		j := &joiner{meeting: meeting{secret: key, places: []place{{"tcp", fmt.Sprintf("trainer:%d", silent.Port())}}}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		places, err := resolved(ctx, j.meeting.places)
		require.NoError(t, err)
		f, _, err := j.knock(ctx, places)
		require.NoError(t, err, "%v", addresses)
		require.Equal(t, "127.0.0.2", f.RemoteAddr().(*net.TCPAddr).IP.String())
		f.Close()
		cancel()
	}
}

// slowly stands before a server and has it reply late, as on a network of long delay.
func slowly(t *testing.T, to string, delay time.Duration) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				<-time.After(delay)
				if far, err := net.Dial("tcp", to); err == nil {
					go relay(near, far)
					relay(far, near)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// relay carries what comes from one end of a connection to another.
func relay(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// A store that is slow to reply is found beside places that do not reply at all, and a port that another program has
// delays no rank.
func TestSlowStoreBesideSilentPlaces(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	require.NoError(t, err)
	defer mute.Close()
	key := secret{2}
	root, err := newRoot(key, storeID{}, []place{{"tcp", "127.0.0.1:0"}}, quiet)
	require.NoError(t, err)
	defer root.Close()
	j := &joiner{meeting: meeting{secret: key, places: []place{{"tcp", mute.Addr().String()}, {"tcp", silentAddress(t)},
		{"tcp", slowly(t, root.hub.listener.Addr().String(), time.Second)}}}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	f, at, err := j.knock(ctx, j.meeting.places)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, 2, at)
	require.Less(t, time.Since(began), handshakeTimeout)
}

// Rank 0 listens where others may connect: at each of the addresses of its name.
func TestWhereRankZeroListens(t *testing.T) {
	port := strconv.Itoa(freePort(t))
	for _, c := range []struct {
		addresses []string
		want      string
	}{
		{[]string{"10.1.2.3"}, "10.1.2.3"},
		{[]string{"10.1.2.3", "fd00::1"}, ""},
		{[]string{"127.0.1.1", "10.1.2.3"}, ""},
		{[]string{"127.0.0.1", "::1"}, "trainer"},
	} {
		names(t, "trainer", c.addresses...)
		places, err := listening(t.Context(), []place{{"tcp", net.JoinHostPort("trainer", port)}})
		require.NoError(t, err)
		require.Equal(t, []place{{"tcp", net.JoinHostPort(c.want, port)}}, places, "%v", c.addresses)
	}
}

// A link-local address is one of an interface: it keeps its zone, and is refused without.
func TestLinkLocalPlaces(t *testing.T) {
	m, err := parseMeeting("tcp://[fe80::1%eth0]:29500", "")
	require.NoError(t, err)
	places, err := resolved(t.Context(), m.places)
	require.NoError(t, err)
	require.Equal(t, []place{{"tcp", "[fe80::1%eth0]:29500"}}, places)
	places, err = listening(t.Context(), m.places)
	require.NoError(t, err)
	require.Equal(t, m.places, places)
	_, err = parseMeeting("tcp://[fe80::1]:29500", "")
	require.ErrorContains(t, err, "want the interface too, as in [fe80::1%eth0]")
	require.Equal(t, plugin.InvalidArgument, plugin.CodeOf(err))
}

// A name service that says nothing holds rank 0 up for its time at most, and the error names the rank and the place.
func TestNameServiceThatSaysNothing(t *testing.T) {
	old := lookupAddresses
	lookupAddresses = func(ctx context.Context, _, host string) ([]netip.Addr, error) {
		<-ctx.Done()
		return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
	}
	t.Cleanup(func() { lookupAddresses = old })
	began := time.Now()
	errs := joinErrors(t, Config{Rank: 0, World: 2, URL: "tcp://trainer:29500", Timeout: 200 * time.Millisecond},
		Config{Rank: 1, World: 2, URL: "tcp://trainer:29500", Timeout: 200 * time.Millisecond})
	for rank, want := range []string{"cannot serve the other ranks at tcp://trainer:29500: cannot listen: lookup trainer",
		"did not find the job's store at tcp://trainer:29500 in time"} {
		require.ErrorContains(t, errs[rank], want)
		require.Equal(t, plugin.Timeout, plugin.CodeOf(errs[rank]))
		require.Equal(t, rank, errs[rank].(*plugin.Error).Rank)
	}
	require.Less(t, time.Since(began), 10*time.Second)
}

// The error of a rank that finds no store says how its attempts failed, not that its time ran out, or that its context
// was canceled, during the last one.
func TestLastAttemptThatTimeCutShort(t *testing.T) {
	old, asked, stop := lookupAddresses, 0, func() {}
	lookupAddresses = func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		if asked++; asked == 1 {
			return old(ctx, network, "127.0.0.1")
		}
		stop()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	t.Cleanup(func() { lookupAddresses = old })
	c := Config{Rank: 1, World: 2, URL: fmt.Sprintf("tcp://trainer:%d", freePort(t)), Timeout: 500 * time.Millisecond,
		Logger: quiet}
	_, err := Join(t.Context(), c)
	require.ErrorContains(t, err, "connection refused")

	asked, c.Timeout = 0, time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	stop = cancel
	_, err = Join(ctx, c)
	require.ErrorContains(t, err, "told to stop joining")
	require.ErrorContains(t, err, "connection refused")
}

// Where ranks stay away, the error says what rank 0 knows of that: that its host does not have the address, and that
// ranks with another secret came.
func TestWhyRanksStayAway(t *testing.T) {
	url := fmt.Sprintf("tcp://192.0.2.1:%d", freePort(t))
	errs := joinErrors(t, Config{Rank: 0, World: 2, URL: url, Timeout: 50 * time.Millisecond})
	require.ErrorContains(t, errs[0], "1 of 2 ranks have not joined")
	require.ErrorContains(t, errs[0], "; rank 0 is on host ")
	require.ErrorContains(t, errs[0], ", which has no address 192.0.2.1")

	port := freePort(t)
	url = fmt.Sprintf("tcp://127.0.0.1:%d-%d", port, port+9)
	dialing(t)
	first := make(chan error, 1)
	go func() {
		first <- joinErrors(t, Config{Rank: 0, World: 2, URL: url, Secret: "one", Timeout: time.Minute})[0]
	}()
	other := joinErrors(t, Config{Rank: 1, World: 2, URL: url, Secret: "two", Timeout: time.Minute})[0]
	require.ErrorContains(t, other, "another secret")
	timeIsOver(t, url)
	require.ErrorContains(t, <-first,
		"; a rank came from 127.0.0.1 with another secret: SHUNT_SECRET or secret= is not the same on all ranks")
}

// A rank of another version is told so, and rank 0's error says so too.
func TestARankOfAnotherVersion(t *testing.T) {
	port := freePort(t)
	url := fmt.Sprintf("tcp://127.0.0.1:%d", port)
	dialing(t)
	first := make(chan error, 1)
	go func() {
		first <- joinErrors(t, Config{Rank: 0, World: 2, URL: url, Secret: "one", Timeout: time.Minute})[0]
	}()
	m, err := parseMeeting(url, "one")
	require.NoError(t, err)
	var conn net.Conn
	require.Eventually(t, func() bool {
		if lookup(m.secret.id()) == nil {
			return false
		}
		conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err == nil
	}, 30*time.Second, time.Millisecond)
	defer conn.Close()
	greeting := encodeGreeting(m.secret.id(), m.name, nonce{1})
	binary.LittleEndian.PutUint16(greeting[len(wireMagic):], wireVersion+1)
	_, err = conn.Write(greeting)
	require.NoError(t, err)
	reply, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, encodeVerdict(otherVersion), reply)
	timeIsOver(t, url)
	require.ErrorContains(t, <-first, fmt.Sprintf(
		"; a rank came from 127.0.0.1 with version %d of the rendezvous: all ranks must run the same version of Shunt",
		wireVersion+1))

	binary.LittleEndian.PutUint16(reply[len(wireMagic):], wireVersion+1)
	_, err = decodeReply(reply, m.secret, nonce{1})
	require.Equal(t, plugin.Mismatch, plugin.CodeOf(err))
	require.ErrorContains(t, err, fmt.Sprintf("the job's store speaks version %d of the rendezvous, this rank version %d",
		wireVersion+1, wireVersion))
}

// timeIsOver ends the time to join of the store of two ranks that meet with the secret "one", once rank 0 waits.
func timeIsOver(t *testing.T, url string) {
	t.Helper()
	m, err := parseMeeting(url, "one")
	require.NoError(t, err)
	st, waits := lookup(m.secret.id()), false
	for ctx := short(t, 30*time.Second); !waits; pause(ctx, time.Millisecond) {
		require.NoError(t, ctx.Err(), "rank 0 has not come")
		st.mu.Lock()
		if waits = st.arrived == 1; waits {
			st.expect(time.Now()) // the time to join is over
		}
		st.mu.Unlock()
	}
}

// The kernel sends what a network has lost ten times within a rank's silence, so that an outage that ends in time is
// none.
func TestWhatIsLostIsSentAgainInTime(t *testing.T) {
	resend := func(f *frameConn) (wait int) {
		raw, err := f.Conn.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			wait, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS)
		}))
		if err != nil {
			t.Skip("TCP_RTO_MAX_MS, of Linux 6.15: ", err)
		}
		return wait
	}
	dialing(t)
	old := resends
	t.Cleanup(func() { resends = old })
	for _, c := range []struct {
		attempts int // of the kernel
		silence  time.Duration
		want     int
	}{{15, 2 * time.Second, 1000}, {15, 30 * time.Second, 3000}, {15, time.Hour, 120000}, {8, 30 * time.Second, 120000}} {
		resends = func() int { return c.attempts }
		sessions := joinAll(t, 2, func(config *Config) { config.Heartbeat, config.Silence = time.Second, c.silence })
		require.Equal(t, c.want, resend(sessions[1].link.Load()))
		st := lookup(sessions[0].secret.id())
		st.mu.Lock()
		f := st.members[1].conn
		st.mu.Unlock()
		require.Equal(t, c.want, resend(f))
	}
}

// Ranks that try several addresses of one host leave no warning there, also where one of their connections has a reply
// that they did not read, and strangers do.
func TestUnusedConnectionsAreNoStrangers(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	key := secret{3}
	greeting := encodeGreeting(key.id(), storeID{}, nonce{})
	for _, c := range []struct {
		says   []byte
		unread bool
		want   string
	}{{nil, false, ""}, {greeting, true, ""}, {greeting[:9], false, "no greeting: unexpected EOF"}} {
		log.Reset()
		root, err := newRoot(key, storeID{}, []place{{"tcp", "127.0.0.1:0"}}, logger)
		require.NoError(t, err)
		conn, err := net.Dial("tcp", root.hub.listener.Addr().String())
		require.NoError(t, err)
		_, err = conn.Write(c.says)
		require.NoError(t, err)
		if c.unread {
			_, err = conn.Read(make([]byte, 1))
			require.NoError(t, err)
		} else {
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			_, _ = io.Copy(io.Discard, conn) // until the hub has closed it
		}
		conn.Close()
		for waiting := true; waiting; runtime.Gosched() {
			root.hub.mu.Lock()
			waiting = len(root.hub.unverified) > 0
			root.hub.mu.Unlock()
		}
		root.Close() // waits for the hub
		require.Contains(t, log.String(), c.want)
		require.Equal(t, c.want == "", log.Len() == 0, "%s", log.String())
	}
}

// Where every place is a rank's own host and nobody is there, the error says so: localhost is another host on each.
func TestNobodyAtTheOwnHost(t *testing.T) {
	const own = "own host can listen"
	port := freePort(t)
	for places, want := range map[string]bool{
		fmt.Sprintf("tcp://127.0.0.1:%d", port):                      true,
		fmt.Sprintf("tcp://localhost:%d", port):                      true,
		fmt.Sprintf("tcp://127.0.0.1:%d,203.0.113.1:%d", port, port): false,
	} {
		_, err := Join(t.Context(), Config{Rank: 1, World: 2, URL: places, Timeout: 2 * time.Second, Logger: quiet})
		require.Error(t, err)
		require.Equal(t, want, strings.Contains(err.Error(), own), "%s: %v", places, err)
	}
}
