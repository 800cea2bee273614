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

// A job that is paused as a whole while its store changes hands goes on: the ranks that have not come to the successor
// had no time to.
func TestAPauseWhileTheStoreChangesHands(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 5, meetingPlaces(t)["file"], "SHUNT_TEST_HEARTBEAT=800ms") // the successor waits for 2s
	c.stop(3)
	c.kill(0)
	c.all(c.died(0), "failure", 1, 2, 4)
	time.Sleep(700 * time.Millisecond) // rank 1 has asked who is there, and waits for rank 3
	for _, rank := range []int{1, 2, 4} {
		c.stop(rank)
	}
	time.Sleep(4 * time.Second) // the pause
	for _, rank := range []int{1, 2, 4} {
		c.resume(rank)
	}
	time.Sleep(300 * time.Millisecond) // rank 3 is resumed last
	c.resume(3)
	c.within(10*time.Second, "[1 2 3 4]", "survivors all s", 1, 2, 3, 4)
	c.leave(1, 2, 3, 4)
}

// The time for which a process was stopped counts as one part of eight.
func TestTimeInWhichTheProcessRuns(t *testing.T) {
	t.Parallel()
	began, over := time.Now(), make(chan time.Duration, 1)
	afterRunning(80*time.Millisecond, func() { over <- time.Since(began) })
	require.GreaterOrEqual(t, <-over, 80*time.Millisecond)
	stop := afterRunning(80*time.Millisecond, func() { over <- time.Since(began) })
	stop()
	ctx, cancel := withinRunning(t.Context(), 80*time.Millisecond)
	<-ctx.Done()
	cancel()
	require.Empty(t, over, "a timer that was stopped")
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
