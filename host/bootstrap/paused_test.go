package bootstrap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ranks that end because the process of the store was stopped are not blamed for it: the error says what came first.
func TestAStoreThatWasStoppedSaysSo(t *testing.T) {
	for name, of := range map[string]struct {
		ago   time.Duration // when a rank of the store's process was heard last
		first func(*Session)
		says  bool
	}{
		"the end comes first":       {time.Hour, func(*Session) {}, true},
		"the store's rank is first": {time.Hour, func(s *Session) { s.send(&message{Kind: msgBeat}) }, true},
		"nothing was stopped":       {time.Second, func(*Session) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := joinAll(t, 3, func(c *Config) { c.Heartbeat, c.Silence = time.Minute, 10*time.Minute })
			st := lookup(s[0].secret.id())
			st.mu.Lock()
			st.ran = time.Now().Add(-of.ago)
			st.mu.Unlock()
			of.first(s[0])
			require.NoError(t, s[2].link.Load().Close())
			err := (<-s[0].Failures()).Err
			require.ErrorContains(t, err, "rank 2 (pid ")
			if of.says {
				require.ErrorContains(t, err, "which runs the job's store, was stopped or did not run for 1h0m0s before that")
			} else {
				require.NotContains(t, err.Error(), "stopped")
			}
		})
	}
}

// A process whose own ranks have left, which beat no longer, was not stopped.
func TestAStoreWhoseRanksHaveLeftWasNotStopped(t *testing.T) {
	st := newStore(secret{}, quiet)
	st.phase, st.silence, st.ran = running, time.Minute, time.Now().Add(-time.Hour)
	st.members = []*member{{inProcess: true, gone: true}, {}}
	require.Empty(t, st.afterPause())
	st.members[0].gone = false
	require.Contains(t, st.afterPause(), "did not run for 1h0m0s before that")
	st.goes = st.goes.Add(-time.Hour)
	require.Empty(t, st.afterPause(), "long ago")
}
