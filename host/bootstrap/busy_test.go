package bootstrap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A rank says goodbye and closes its connection while the store of many ranks is busy, and about to write to it: the
// goodbye is read all the same.
func TestGoodbyeToABusyStore(t *testing.T) {
	dialing(t)
	s := joinAll(t, 2, nil)
	st := lookup(s[0].secret.id())
	st.mu.Lock()
	m := st.members[1]
	s[1].send(&message{Kind: msgBeat}) // which the reader has the lock to wait for
	require.NoError(t, s[1].Close())   // which waits no longer than partingTime
	for stuck := 0; stuck < 3; {       // until a write has failed
		m.send(frame{kind: msgBeat})
		<-time.After(time.Millisecond)
		m.mu.Lock()
		if stuck++; len(m.queue) == 0 {
			stuck = 0
		}
		m.mu.Unlock()
	}
	st.mu.Unlock()
	ctx, cancel := s[0].All().WhileAlive(short(t, 10*time.Second))
	defer cancel()
	<-ctx.Done()
	require.Equal(t, Left, s[0].State(1))
}
