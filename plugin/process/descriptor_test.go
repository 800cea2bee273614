package process

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// unserved returns what takes the frames of a descriptor socket, and its other end.
func unserved(t *testing.T) (a *arrivals, host, other *net.UnixConn) {
	t.Helper()
	host, file, err := descriptorPair()
	require.NoError(t, err)
	fd, err := unix.Dup(int(file.Fd()))
	require.NoError(t, err)
	file.Close()
	require.NoError(t, unix.SetNonblock(fd, true))
	other, err = wrapDescriptorSocket(fd)
	require.NoError(t, err)
	return newArrivals(host), host, other
}

// pair returns both ends of a descriptor socket, served by arrivals; served gets what
// serve returns.
func pair(t *testing.T) (a *arrivals, other *net.UnixConn, served chan error) {
	t.Helper()
	a, host, other := unserved(t)
	served = make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := a.serve()
		host.Close()
		served <- err
	}()
	t.Cleanup(func() {
		other.Close()
		<-ended
	})
	return a, other, served
}

func TestDescriptorsArriveByEndpointAndRegion(t *testing.T) {
	a, other, served := pair(t)
	a.expect(1)
	a.expect(2)
	file, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer file.Close()
	before := descriptors(t, os.Getpid())
	for _, k := range [][2]int{{2, 5}, {1, 5}, {1, 6}, {1, 6}, {9, 9}} { // one twice, one for no call
		require.NoError(t, sendDescriptor(other, uint64(k[0]), uint32(k[1]), int(file.Fd())))
	}
	for _, k := range [][2]int{{1, 5}, {2, 5}} {
		fd, err := a.take(context.Background(), uint64(k[0]), uint32(k[1]))
		require.NoError(t, err)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC, "no child may inherit it")
		require.NoError(t, unix.Close(fd))
	}
	other.Close()
	require.NoError(t, <-served)
	_, err = a.take(context.Background(), 1, 6)
	require.ErrorIs(t, err, plugin.PluginDied)
	require.Equal(t, before-2, descriptors(t, os.Getpid()), "everything not taken is closed, and both ends")
}

func TestDescriptorWaitEndsWithItsContext(t *testing.T) {
	a, _, _ := pair(t)
	a.expect(1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := a.take(ctx, 1, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, plugin.Aborted, plugin.CodeOf(err))
}

func TestMisbehavingDescriptorSocketIsAnError(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer zero.Close()
	fd := int(zero.Fd())
	good := encodeFrame(1, 0)
	for name, send := range map[string]func(*net.UnixConn) error{
		"no descriptor": func(c *net.UnixConn) error { _, err := c.Write(good[:]); return err },
		"two descriptors": func(c *net.UnixConn) error {
			_, _, err := c.WriteMsgUnix(good[:], unix.UnixRights(fd, fd), nil)
			return err
		},
		"very many descriptors": func(c *net.UnixConn) error {
			many := make([]int, 200)
			for i := range many {
				many[i] = fd
			}
			_, _, err := c.WriteMsgUnix(good[:], unix.UnixRights(many...), nil)
			return err
		},
		"wrong magic": func(c *net.UnixConn) error {
			_, _, err := c.WriteMsgUnix(make([]byte, frameBytes), unix.UnixRights(fd), nil)
			return err
		},
		"too long": func(c *net.UnixConn) error {
			_, _, err := c.WriteMsgUnix(append(good[:], 0), unix.UnixRights(fd), nil)
			return err
		},
		"flood": func(c *net.UnixConn) error {
			for i := range maxPending + 1 {
				if err := sendDescriptor(c, 1, uint32(i), fd); err != nil {
					return nil // the other end hung up, as it should
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t, os.Getpid())
			a, other, served := pair(t)
			a.expect(1)
			require.NoError(t, send(other))
			require.ErrorIs(t, <-served, plugin.Protocol)
			other.Close()
			require.Equal(t, before, descriptors(t, os.Getpid()), "every descriptor is closed")
		})
	}
}

// Only descriptors that nobody has taken count against the limit: not those that another of their region has replaced,
// nor those that were taken, discarded or forgotten, however many there were.
func TestDescriptorsThatAreGoneDoNotCount(t *testing.T) {
	zero, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer zero.Close()
	for name, end := range map[string]func(a *arrivals){
		"replaced":  func(*arrivals) {},
		"discarded": func(a *arrivals) { a.discard(1, 20) },
		"forgotten": func(a *arrivals) { a.forget(1); a.expect(1) },
		"taken": func(a *arrivals) {
			fd, err := a.take(t.Context(), 1, 20)
			require.NoError(t, err)
			require.NoError(t, unix.Close(fd))
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t, os.Getpid())
			a, host, other := unserved(t)
			a.expect(1)
			for range maxPending + 1 {
				require.NoError(t, sendDescriptor(other, 1, 20, int(zero.Fd())))
				a.mu.Lock()
				a.drain()
				a.mu.Unlock()
				end(a)
			}
			require.NoError(t, sendDescriptor(other, 1, 20, int(zero.Fd())))
			fd, err := a.take(t.Context(), 1, 20)
			require.NoError(t, err)
			require.NoError(t, unix.Close(fd))
			require.Zero(t, a.count)
			host.Close()
			other.Close()
			require.Equal(t, before, descriptors(t, os.Getpid()), "every descriptor is closed")
		})
	}
}

// A reply comes another way than its descriptor, and is read whenever its goroutine runs: the descriptor is there by
// then, though nobody has served the socket yet, and what a reply that was given up has left is gone.
func TestDescriptorsThatNobodyHasServedYet(t *testing.T) {
	a, host, other := unserved(t)
	defer host.Close()
	defer other.Close()
	a.expect(1)
	send := func() uint64 {
		fd, inode := aMemfd(t)
		defer unix.Close(fd)
		require.NoError(t, sendDescriptor(other, 1, 20, fd))
		return inode
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	take := func() uint64 {
		fd, err := a.take(over, 1, 20)
		require.NoError(t, err)
		defer unix.Close(fd)
		return inodeOf(t, fd)
	}
	want := send()
	require.Equal(t, want, take())
	send()
	a.discard(1, 20)
	want = send()
	require.Equal(t, want, take(), "another buffer's memory")

	_, err := other.Write([]byte("no frame"))
	require.NoError(t, err)
	_, err = a.take(t.Context(), 1, 20)
	require.ErrorIs(t, err, plugin.PluginDied)
	require.ErrorIs(t, a.serve(), plugin.Protocol)
}

// A frame whose descriptor this process has no number for is no fault of the plugin's.
func TestDescriptorThatThisProcessCannotHave(t *testing.T) {
	a, other, served := pair(t)
	a.expect(1)
	zero, err := os.Open("/dev/zero")
	require.NoError(t, err)
	defer zero.Close()
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	err = sendDescriptor(other, 1, 0, int(zero.Fd()))
	got := <-served
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, err)
	require.ErrorIs(t, got, plugin.OutOfMemory)
	require.ErrorIs(t, got, unix.EMFILE)
}

func FuzzDecodeFrame(f *testing.F) {
	frame := encodeFrame(7, 3)
	f.Add(frame[:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		endpoint, region, err := decodeFrame(b)
		if err != nil {
			return
		}
		if again := encodeFrame(endpoint, region); string(again[:]) != string(b) {
			t.Fatalf("% x became % x", b, again)
		}
	})
}
