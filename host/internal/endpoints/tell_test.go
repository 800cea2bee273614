package endpoints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A rank sends calls that have stayed the same for a while once, and not again within the pause.
func TestRanksTellOfCallsThatRest(t *testing.T) {
	const pause = 3 * rest
	var told telling
	start := time.Now()
	for _, look := range []struct {
		at     time.Duration
		report string
		due    bool
	}{
		{0, "a", false},
		{rest, "a", true},
		{2 * rest, "a", false}, // they know
		{2 * rest, "b", false},
		{3 * rest, "b", false}, // it rests, in the pause
		{4 * rest, "b", true},
		{9 * rest, "c", false}, // it has just begun
		{9 * rest, "d", false},
		{10 * rest, "d", true},
	} {
		require.Equal(t, look.due, told.due([]byte(look.report), start.Add(look.at), pause), "%s at %v", look.report, look.at)
	}
	require.False(t, told.due(nil, start.Add(20*rest), pause), "the executor is closed")
}

// The larger the world, the more ranks receive each of them.
func TestThePauseBoundsWhatTheStorePassesOn(t *testing.T) {
	require.Equal(t, rest, pauseOf(2))
	require.Greater(t, pauseOf(1000), pauseOf(500))
	require.Equal(t, rest+4*time.Second, NewsTakes(2, time.Second))
}
