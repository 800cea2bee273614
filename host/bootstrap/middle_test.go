package bootstrap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// middle stands between ranks and a store. It changes one byte of each connection, and keeps what ranks say.
type middle struct {
	listener net.Listener
	to       string
	towards  bool // change what ranks say; else what the store says
	at       int  // which byte; none if negative
	carrying sync.WaitGroup

	mu        sync.Mutex
	said      bytes.Buffer // by ranks
	connected []net.Conn
}

func inTheMiddle(t *testing.T, to string, towards bool, at int) *middle {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &middle{listener: l, to: to, towards: towards, at: at}
	m.carrying.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			m.mu.Lock()
			m.connected = append(m.connected, near, far)
			m.mu.Unlock()
			m.carrying.Go(func() { m.carry(far, near, towards, true) })
			m.carrying.Go(func() { m.carry(near, far, !towards, false) })
		}
	})
	t.Cleanup(m.end)
	return m
}

func (m *middle) end() {
	m.listener.Close()
	m.mu.Lock()
	for _, c := range m.connected {
		c.Close()
	}
	m.mu.Unlock()
	m.carrying.Wait()
}

func (m *middle) carry(to, from net.Conn, changes, keeps bool) {
	defer to.Close()
	defer from.Close()
	b, passed := make([]byte, 4096), 0
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if i := m.at - passed; changes && i >= 0 && i < n {
			b[i] ^= 1
		}
		passed += n
		if keeps {
			m.mu.Lock()
			m.said.Write(b[:n])
			m.mu.Unlock()
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// through returns an id with the secret of another and an address of the middle's.
func (m *middle) through(id UniqueID) UniqueID {
	other := UniqueID{secret: id.secret}
	other.addresses[0] = m.listener.Addr().(*net.TCPAddr).AddrPort()
	return other
}

// A man in the middle can end a connection, and change nothing: no byte of the handshake and of the first
// frames may differ, but for those of a greeting that say nothing to a store that knows the job.
func TestChangedBytes(t *testing.T) {
	dialing(t)
	idle := func(towards bool, at int) bool {
		const name = 4 + 2 + 2 + 16
		return towards && ((at >= 6 && at < 8) || (at >= name && at < name+16))
	}
	join := func(id UniqueID, rank int, timeout time.Duration) (*Session, error) {
		return Join(context.Background(), Config{Rank: rank, World: 2, ID: id, HaveID: true, Timeout: timeout, Logger: quiet})
	}
	for _, towards := range []bool{true, false} {
		last := greetingBytes + proofBytes + lengthBytes + 1 + tagBytes // and of a frame more than its length
		if !towards {
			last = replyBytes + 2*(lengthBytes+1+tagBytes)
		}
		for first := -1; first < last; first += 30 {
			noErrors(t, each(30, func(i int) error {
				at := first + i
				id, root, err := NewID("127.0.0.1:0")
				if err != nil {
					return err
				}
				defer root.Close()
				m := inTheMiddle(t, id.Addresses()[0].String(), towards, at)
				defer m.end()
				limit := 400 * time.Millisecond
				if at < 0 || idle(towards, at) {
					limit = 20 * time.Second
				}
				joined := make([]*Session, 2)
				errs := each(2, func(rank int) (err error) {
					joined[rank], err = join([]UniqueID{id, m.through(id)}[rank], rank, limit)
					return err
				})
				for _, s := range joined {
					if s != nil {
						defer s.Close()
					}
				}
				if at < 0 || idle(towards, at) {
					if errs[1] != nil {
						return fmt.Errorf("byte %d, towards the store %v: %w", at, towards, errs[1])
					}
				} else if errs[1] == nil {
					return fmt.Errorf("byte %d, towards the store %v: it was changed and nobody saw it", at, towards)
				}
				return nil
			}))
		}
	}
}

// No process joins by replaying what a rank sent when it joined, to the same store or another with the secret.
func TestReplayedHandshake(t *testing.T) {
	dialing(t)
	id := newID(t)
	m := inTheMiddle(t, id.Addresses()[0].String(), true, -1)
	var sessions [2]*Session
	noErrors(t, each(2, func(rank int) (err error) {
		sessions[rank], err = Join(t.Context(), Config{Rank: rank, World: 3, ID: []UniqueID{id, m.through(id)}[rank],
			HaveID: true, Timeout: time.Second, Logger: quiet})
		if plugin.CodeOf(err) != plugin.Timeout {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		return nil
	}))
	m.end()
	require.Greater(t, m.said.Len(), greetingBytes+proofBytes)

	root, err := newRoot(id.secret, storeID{}, []place{{"tcp", "127.0.0.1:0"}}, quiet)
	require.NoError(t, err)
	defer root.Close()
	conn, err := net.Dial("tcp", root.hub.listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(m.said.Bytes())
	require.NoError(t, err)
	reply, _ := io.ReadAll(conn)
	require.Len(t, reply, replyBytes) // and then it closes the connection
	root.store.mu.Lock()
	defer root.store.mu.Unlock()
	require.Zero(t, root.store.arrived)
}
