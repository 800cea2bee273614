package bootstrap

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// silentAddress returns an address that leaves connections without any reply: its queue is full.
func silentAddress(t *testing.T) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*unix.SockaddrInet4).Port}).String()
	for range 16 {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("no silent address: the queue of a listener takes more than 16 connections")
	return ""
}

// Addresses that drop everything do not keep a rank from the others of the same host.
func TestSilentAddressesHoldNobodyUp(t *testing.T) {
	silent := place{"tcp", silentAddress(t)}
	good, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer good.Close()
	began := time.Now()
	var reached string
	require.NoError(t, reach(context.Background(), []place{silent, silent, {"tcp", good.Addr().String()}}, time.Minute,
		func(conn net.Conn) (bool, error) {
			reached = conn.RemoteAddr().String()
			return true, conn.Close()
		}))
	require.Equal(t, good.Addr().String(), reached)
	require.Less(t, time.Since(began), 30*time.Second)
}

// Rank 0 listens under the name of its own host although that does not resolve, as the name of a pod that is not
// ready. The name of another host is an error at once.
func TestRankZeroListensUnderANameThatIsUnknownYet(t *testing.T) {
	own, err := os.Hostname()
	require.NoError(t, err)
	own, _, _ = strings.Cut(own, ".")
	if own == "" || own == "localhost" {
		t.Skip("this host has no name of its own")
	}
	places, err := listening(t.Context(), []place{{"tcp", own + ".job.invalid:29500"}})
	require.NoError(t, err)
	require.Equal(t, []place{{"tcp", ":29500"}}, places)
	_, err = listening(t.Context(), []place{{"tcp", "another.job.invalid:29500"}})
	require.ErrorContains(t, err, "another.job.invalid")
}
