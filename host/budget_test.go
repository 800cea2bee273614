package host_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// budgeted notes the budgets that its endpoints are opened with.
type budgeted struct {
	shm.Transport
	notes *budgetNotes
}

type budgetNotes struct {
	sync.Mutex
	given []string // "rank of world: budget"
}

var budgets = budgeted{notes: &budgetNotes{}}

func (b budgeted) Info() plugin.Info {
	info := b.Transport.Info()
	info.Name = "budgeted"
	return info
}

func (b budgeted) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	b.notes.Lock()
	b.notes.given = append(b.notes.given, fmt.Sprintf("%d of %d: %d", c.Rank, c.World, c.MaxSMs))
	b.notes.Unlock()
	return b.Transport.Open(ctx, c)
}

// Kernels of ranks wait for each other block by block, so all must have the same budget:
// the smallest, whatever each rank was given, also in communicators made from this one.
func TestTheSmallestBudgetOfMultiprocessorsCounts(t *testing.T) {
	for _, test := range []struct {
		given [3]int
		want  int
	}{
		{[3]int{0, 0, 0}, 0}, {[3]int{24, 24, 24}, 24}, {[3]int{0, 24, 8}, 8}, {[3]int{16, 0, 0}, 16},
	} {
		budgets.notes.given = nil
		for _, err := range worldErrors(t, 3, func(rank int, o *host.Options) {
			o.MaxSMs, o.Transports = test.given[rank], []string{"builtin:budgeted"}
		}, func(c *host.Communicator) error {
			part, err := c.Split(context.Background(), 0, 0)
			if err != nil {
				return err
			}
			return part.Close()
		}) {
			require.NoError(t, err)
		}
		var want []string
		for rank := range 3 {
			for range 2 {
				want = append(want, fmt.Sprintf("%d of 3: %d", rank, test.want))
			}
		}
		require.ElementsMatch(t, want, budgets.notes.given, "%v", test.given)
	}
	_, err := host.Init(context.Background(), host.Options{Rank: 0, World: 1, MaxSMs: -1, Logger: silent})
	require.Equal(t, plugin.InvalidArgument, plugin.CodeOf(err))
	require.ErrorContains(t, err, "-1 multiprocessors")
}

func TestTheEnvironmentHasABudget(t *testing.T) {
	t.Setenv("SHUNT_MAX_SMS", "12")
	budgets.notes.given = nil
	for _, o := range []host.Options{{}, {MaxSMs: 5}} {
		o.World, o.Transports, o.Logger = 1, []string{"builtin:budgeted"}, silent
		c, err := host.Init(context.Background(), o)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	require.Equal(t, []string{"0 of 1: 12", "0 of 1: 5"}, budgets.notes.given)
}
