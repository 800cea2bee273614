package bootstrap

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// lingering joins two ranks of short heartbeats, as those of other processes than the store's, which lingers for so
// long. Rank 0 has left.
func lingering(t *testing.T, limit time.Duration) (*Session, *Root) {
	dialing(t)
	old := lingerTime
	t.Cleanup(func() { lingerTime = old })
	lingerTime = limit
	// Of three heartbeats one must be sent in time, beside other work too.
	s := joinAll(t, 2, func(c *Config) { c.Heartbeat, c.Silence = 300*time.Millisecond, time.Minute })
	require.NoError(t, s[0].Close())
	return s[1], lookup(s[1].secret.id()).root
}

// The process of the store does not linger for ranks that are out of reach. They learn that it has gone when they are
// back.
func TestNobodyLingersForRanksOutOfReach(t *testing.T) {
	s, root := lingering(t, 30*time.Second)
	s.out.Lock() // it says nothing
	began := time.Now()
	err := root.Close()
	took := time.Since(began)
	s.out.Unlock()
	require.NoError(t, err)
	require.Less(t, took, 10*time.Second)
	_, err = s.All().Survivors(short(t, 10*time.Second), "s") // nobody is left to ask but itself
	require.NoError(t, err)
}

// It lingers for ranks that are there, until they have said goodbye.
func TestTheStoreLingersForRanksThatAreThere(t *testing.T) {
	s, root := lingering(t, 30*time.Second)
	closed := make(chan error, 1)
	go func() { closed <- root.Close() }()
	select {
	case <-closed:
		t.Fatal("the store has ended before rank 1 said goodbye")
	case <-time.After(10 * s.heartbeat):
	}
	require.NoError(t, s.Close())
	require.NoError(t, <-closed)
}

// It does not wait for goodbyes of ranks whose group was aborted: they may have nothing to do but to look at that
// later.
func TestTheStoreLingersBrieflyAfterAnAbort(t *testing.T) {
	dialing(t)
	old := lingerTime
	t.Cleanup(func() { lingerTime = old })
	lingerTime = time.Minute
	s := joinAll(t, 3, func(c *Config) { c.Heartbeat, c.Silence = 50*time.Millisecond, time.Minute })
	groups := make([]*Group, len(s))
	for i := range s {
		var err error
		groups[i], err = s[i].Group("world", []int{0, 1, 2})
		require.NoError(t, err)
	}
	noErrors(t, each(3, func(i int) error { return groups[i].Barrier(t.Context(), "before") }))
	groups[0].Fail(rankError(plugin.Aborted, 0, "rank 0 aborted: enough"))
	root := lookup(s[1].secret.id()).root
	require.NoError(t, groups[0].Close())
	require.NoError(t, s[0].Close())
	began := time.Now()
	require.NoError(t, root.Close())
	require.Less(t, time.Since(began), 20*time.Second)
	for _, other := range s[1:] {
		f := <-other.Failures()
		require.ErrorContains(t, f.Err, "rank 0 aborted: enough")
	}
}
