package bootstrap

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// complete is the store of another job with this secret, whose ranks have all come.
type complete struct{ secret secret }

func (c complete) key() secret     { return c.secret }
func (c complete) awaits() msgKind { return msgHello }
func (c complete) enroll(f *frameConn, first *message, _ bool) {
	turnAway(f, true, rankError(plugin.Mismatch, first.Member.Rank, "the ranks of this job are complete"))
}

// otherJob listens as a process whose job has this secret and is complete.
func otherJob(t *testing.T, key secret) place {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				f, d, first, err := admit(conn, func(storeID) door { return complete{key} })
				if err != nil {
					conn.Close()
					return
				}
				d.enroll(f, first, false)
			}()
		}
	}()
	return place{"tcp", l.Addr().String()}
}

// The store of another job with this secret, which replies first, keeps no rank from a place that replies later,
// whichever stands first in the list.
func TestOtherJobRepliesBeforeThisOnes(t *testing.T) {
	dialing(t)
	key := secret{4}
	for _, first := range []bool{true, false} {
		root, err := newRoot(key, storeID{}, []place{{"tcp", "127.0.0.1:0"}}, quiet)
		require.NoError(t, err)
		places := []place{{"tcp", slowly(t, root.hub.listener.Addr().String(), 2*headStart)}, otherJob(t, key),
			otherJob(t, key)}
		if !first {
			places = []place{places[1], places[0], places[2]}
		}
		j := &joiner{meeting: meeting{secret: key, places: places}, config: Config{World: 1, Logger: quiet,
			Timeout: 10 * time.Second, Heartbeat: DefaultHeartbeat, Silence: 10 * DefaultHeartbeat}, restore: func() {}}
		session, err := j.attempt(short(t, 10*time.Second))
		require.NoError(t, err)
		require.NoError(t, session.Close())
		require.NoError(t, root.Close())
	}
}
