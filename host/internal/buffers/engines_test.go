package buffers

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// registrar counts the ends of registrations by their keys, and fails with an error of its own.
type registrar struct {
	ended map[uint64]int
	err   error
}

func (r *registrar) Register(context.Context, plugin.Memory) (uint64, error) { return 0, nil }

func (r *registrar) Deregister(_ context.Context, key uint64) error {
	r.ended[key]++
	return r.err
}

// engineWith returns an engine whose registrations, with keys from 0 on, were last used by these operations.
func engineWith(used ...uint64) (*Engines, *engine, *registrar) {
	r := &registrar{ended: map[uint64]int{}}
	o := &diagnosis.Observer{World: 2, Logger: slog.New(slog.DiscardHandler)}
	t := NewEngines(o, GPU{}, nil, []Engine{{Name: "engine", Registrar: r}})
	for key, operation := range used {
		t.list[0].known = append(t.list[0].known, &registration{key: uint64(key), used: operation})
	}
	return t, t.list[0], r
}

// A registration that is to go ends when the last operation that used it has: not before, and not with a later one.
func TestRegistrationsEndWithTheirOperations(t *testing.T) {
	engines, e, r := engineWith(0, 4, 5, 6, 5)
	for _, known := range e.known[:4] {
		known.leaving = true
	}
	engines.idle = 5
	engines.thin(e)
	require.Equal(t, map[uint64]int{0: 1, 1: 1, 2: 1}, r.ended)
	require.True(t, engines.crowded, "one waits for operation 6")
	require.Len(t, e.known, 2)
	engines.idle, engines.crowded = 6, false
	engines.thin(e)
	require.Equal(t, map[uint64]int{0: 1, 1: 1, 2: 1, 3: 1}, r.ended)
	require.False(t, engines.crowded)
	require.Len(t, e.known, 1, "the one that stays")
}

// An end that has run out of time is tried again; after another error the registration is forgotten.
func TestEndsOfRegistrationsThatFail(t *testing.T) {
	for code, again := range map[plugin.Code]bool{plugin.Timeout: true, plugin.Internal: false, plugin.PluginDied: false} {
		engines, e, r := engineWith(1)
		e.known[0].leaving, engines.idle = true, 1
		r.err = plugin.Errorf(code, "no")
		engines.thin(e)
		require.Equal(t, again, engines.crowded, code)
		r.err, engines.crowded = nil, false
		engines.thin(e)
		require.Equal(t, again, r.ended[0] == 2, code)
		require.Empty(t, e.known, code)
		require.False(t, engines.crowded, code)
	}
}

// Over the limit those give way that were not used for longest; those that graphs have captured count, and stay.
func TestTheLeastRecentlyUsedRegistrationsGiveWay(t *testing.T) {
	for _, over := range []int{0, 1, 3} {
		used := make([]uint64, registrationLimit+over)
		for i := range used {
			used[i] = uint64(len(used) - i) // the last one is the least recent
		}
		engines, e, r := engineWith(used...)
		engines.idle = uint64(len(used))
		e.known[len(used)-1].graphs = []inUse{{}}
		engines.thin(e)
		want := map[uint64]int{}
		for i := range over {
			want[uint64(len(used)-2-i)] = 1
		}
		require.Equal(t, want, r.ended, "%d over the limit", over)
	}
}
