package bootstrap

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A launcher that says which rank will not join fails the job of that rank, and no smaller one that some of its ranks
// make. The ranks that join say how large it is, whether the launcher comes before them or after.
func TestAbsentRanks(t *testing.T) {
	claims(t, 0)
	gone := rankError(plugin.PeerDied, 2, "rank 2 exited")
	says := func(t *testing.T, r *Root, rank, world int) *message {
		f, err := greet(r.store.connect(), r.store.secret, storeID{}, time.Now().Add(30*time.Second))
		require.NoError(t, err)
		defer f.Close()
		hello := message{Kind: msgHello, Err: gone, Member: Member{rank, 0, "launcher"}, World: world, Left: time.Second,
			Heartbeat: time.Second, Silence: time.Hour}
		require.NoError(t, f.write(hello.frame()))
		require.NoError(t, f.limitReads(30*time.Second))
		m, err := f.receive()
		require.NoError(t, err)
		require.Equal(t, msgRefuse, m.Kind)
		return m
	}
	for name, c := range map[string]struct {
		rank, world int // of a launcher, for a job of two
		meets       bool
	}{"one beyond a smaller job": {2, 4, true}, "one of a smaller job": {1, 4, false}, "one of the job": {1, 2, false}} {
		t.Run(name, func(t *testing.T) {
			r := openRoot(t)
			early := says(t, r, c.rank, c.world)
			require.True(t, early.Retry)
			require.NotEqual(t, gone.Message, early.Err.Message, "it would take that for told")
			zero := comes(t, r, 0, 1, parentOf(1), false)
			reply := says(t, r, c.rank, c.world)
			require.False(t, reply.Retry)
			require.Equal(t, c.meets, r.store.gathering())
			if c.meets {
				comes(t, r, 1, 2, parentOf(1), false)
			}
			zero.until(t, msgWelcome)
			require.Equal(t, c.meets, zero.reply.Kind == msgWelcome)
			require.Equal(t, gone, reply.Err)
			if !c.meets {
				require.Equal(t, gone, zero.reply.Err)
			}
		})
	}
}

// Absent goes on until a rank has come, and ends when the ranks know.
func TestAbsentBeforeAnyRank(t *testing.T) {
	url, reason := fmt.Sprintf("unix://@shunt-absent-%d", os.Getpid()), rankError(plugin.PeerDied, 1, "rank 1 exited")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	told := make(chan error, 1)
	go func() { told <- Absent(ctx, url, 1, 2, reason) }()
	_, err := Join(ctx, Config{Rank: 0, World: 2, URL: url, Timeout: 25 * time.Second, Logger: quiet})
	require.EqualError(t, err, reason.Error())
	require.NoError(t, <-told)
	require.NoError(t, ctx.Err())
}
