package bootstrap

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A store that takes nothing, as that of a process which is stopped, holds up no call of another rank for longer than
// the call's own time: what a rank says waits in its own process.
func TestNothingWaitsForAStoreThatTakesNothing(t *testing.T) {
	t.Parallel()
	s := joinAll(t, 2, func(c *Config) { c.Heartbeat, c.Silence = 50*time.Millisecond, time.Hour })
	g, err := s[1].Group("g", []int{0, 1})
	require.NoError(t, err)
	noErrors(t, each(2, func(rank int) error { return s[rank].All().Barrier(t.Context(), "all are here") }))
	st := lookup(s[0].secret.id())
	st.mu.Lock() // its readers wait for it, and read no more
	defer st.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"the first call", func() error { return s[1].All().Barrier(ctx, "x") }},
		{"a long message", func() error { _, err := g.AllGather(ctx, "y", make([]byte, maxFrame/4)); return err }},
		{"Tell", func() error { return g.Tell([]byte("news")) }},
		{"Group.Fail", func() error { g.Fail(nil); return nil }},
		{"Group", func() error { _, err := s[1].Group("h", []int{0, 1}); return err }},
		{"Group.Close", g.Close},
		{"Fail", func() error { s[1].Fail(nil); return nil }},
		{"Close", s[1].Close},
	} {
		returned := make(chan error, 1)
		go func() { returned <- call.do() }()
		select {
		case err := <-returned:
			if err != nil {
				require.ErrorIs(t, err, plugin.Timeout, call.name)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s has not returned", call.name)
		}
	}
}

// The process of the store closes where a rank takes nothing of what it was sent.
func TestTheStoreClosesWhereARankTakesNothing(t *testing.T) {
	s, root := lingering(t, 100*time.Millisecond)
	began := time.Now()
	s.mu.Lock() // its reader waits for it
	result := (&message{Kind: msgResult, Tag: "x", Data: make([]byte, maxFrame/2)}).frame()
	for range maxBacklog/result.size() - 1 {
		root.store.members[1].send(result)
	}
	err := root.Close()
	took := time.Since(began)
	s.mu.Unlock()
	require.NoError(t, err)
	require.Less(t, took, s.silence/2)
}
