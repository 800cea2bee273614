package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Waits that come again and again are reported a few times, and longer ones anew, before a timeout in any case; what a
// rank has rejected is reported at once.
func TestRepeatedWaitsAreReportedEverMoreSeldom(t *testing.T) {
	var w Watchdog
	reported := 0
	for seq := range uint64(1000) { // each is looked at four times a second
		for since := time.Second; since <= 1500*time.Millisecond; since += 250 * time.Millisecond {
			if w.isNews(1+seq, since, time.Minute, "") {
				reported++
			}
		}
	}
	require.Equal(t, 1, reported)
	require.True(t, w.isNews(2000, time.Second, time.Minute, "rank 1 refused its broadcast"))
	require.False(t, w.isNews(2000, 2*time.Second, time.Minute, "rank 1 refused its broadcast"))
	for seq, since := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second,
		30 * time.Second, 30 * time.Second} {
		require.False(t, w.isNews(uint64(3000+seq), since-time.Second, time.Minute, ""))
		require.True(t, w.isNews(uint64(3000+seq), since, time.Minute, ""), "%v", since)
		require.False(t, w.isNews(uint64(3000+seq), time.Minute, time.Minute, ""), "%v", since)
	}
	var forever Watchdog
	require.True(t, forever.isNews(1, time.Hour, 0, ""))
	require.False(t, forever.isNews(2, time.Hour, 0, ""))
}
