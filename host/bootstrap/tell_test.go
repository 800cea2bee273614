package bootstrap

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// What a rank tells reaches the other members of the group, and no others; only the latest counts.
func TestTell(t *testing.T) {
	sessions := joinAll(t, 4, nil)
	groups := make([]*Group, 4)
	noErrors(t, each(4, func(rank int) (err error) {
		if rank < 3 {
			groups[rank], err = sessions[rank].Group("three", []int{2, 0, 1})
		} else {
			groups[rank], err = sessions[rank].Group("alone", []int{3})
		}
		return err
	}))
	meet := func() { // a rank that has met the others has what was told before
		noErrors(t, each(4, func(rank int) error { return sessions[rank].All().Barrier(t.Context(), "told") }))
	}
	meet()
	require.NoError(t, groups[1].Tell([]byte("one")))
	require.NoError(t, groups[1].Tell([]byte("another")))
	require.NoError(t, groups[0].Tell(nil))
	require.NoError(t, groups[3].Tell([]byte("nobody hears")))
	meet()
	assert.Equal(t, map[int][]byte{2: []byte("another")}, groups[0].Told())
	assert.Equal(t, map[int][]byte{1: {}}, groups[1].Told())
	assert.Equal(t, map[int][]byte{1: {}, 2: []byte("another")}, groups[2].Told())
	assert.Empty(t, groups[2].Told(), "news is told once")
	assert.Empty(t, groups[3].Told())
	assert.Empty(t, sessions[0].All().Told(), "another group's")

	err := groups[0].Tell(make([]byte, MaxTold+1))
	assert.Equal(t, plugin.InvalidArgument, plugin.CodeOf(err), "%v", err)
	assert.ErrorContains(t, err, "want at most 4096")
	require.NoError(t, groups[2].Close())
	require.NoError(t, groups[1].Tell([]byte("and one has gone")))
	require.NoError(t, groups[2].Tell([]byte("from outside")))
	meet()
	assert.Equal(t, map[int][]byte{2: []byte("and one has gone")}, groups[0].Told())
	assert.Empty(t, groups[2].Told())
}

// A rank that reads slowly misses news; it is not cut off for that, as it is for messages that it must read.
func TestTellingARankThatReadsSlowly(t *testing.T) {
	sessions := joinAll(t, 2, func(c *Config) { c.Silence = time.Hour }) // as it says nothing meanwhile
	noErrors(t, each(2, func(rank int) error { return sessions[rank].All().Barrier(t.Context(), "before") }))
	// Its reader hands news on under this lock.
	sessions[1].mu.Lock()
	news := bytes.Repeat([]byte("x"), MaxTold)
	for range 2 * maxBacklog / MaxTold {
		if err := sessions[0].All().Tell(news); err != nil {
			t.Error(err)
			break
		}
	}
	store := sessions[0].root.store
	full := func() bool { store.mu.Lock(); defer store.mu.Unlock(); return !store.members[1].hasRoom() }
	for !full() && t.Context().Err() == nil {
		runtime.Gosched()
	}
	sessions[1].mu.Unlock()
	noErrors(t, each(2, func(rank int) error { return sessions[rank].All().Barrier(t.Context(), "after") }))
	assert.Equal(t, map[int][]byte{0: news}, sessions[1].All().Told())
}
