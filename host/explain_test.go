package host_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// Every rank returns the plans of all, which are those of the algorithm that the call would run.
func TestPlanTexts(t *testing.T) {
	const n = 3
	all := make([][]string, n)
	check := func(rank int, explain func(plugin.Collective, int64) (string, error),
		texts func(plugin.Collective, int64) ([]string, error), must string) error {
		for _, bytes := range []int64{8, 16 << 20} {
			chosen, err := explain(plugin.AllReduce, bytes)
			if err != nil {
				return err
			}
			plans, err := texts(plugin.AllReduce, bytes)
			if err != nil {
				return err
			}
			_, algorithm, _ := strings.Cut(chosen, "/")
			for of, text := range plans {
				if want := fmt.Sprintf("plan %s: all_reduce of float32, op max, rank %d of %d: ", algorithm, of,
					n); !strings.HasPrefix(text, want) || !strings.Contains(text, must) {
					return fmt.Errorf("want %q and %q: %s", want, must, text)
				}
			}
			all[rank] = append(all[rank], plans...)
		}
		return nil
	}
	of := func(c *host.Communicator) (func(plugin.Collective, int64) (string, error),
		func(plugin.Collective, int64) ([]string, error)) {
		return func(collective plugin.Collective, bytes int64) (string, error) {
				e, err := c.Explain(collective, plugin.Float32, plugin.OpMax, bytes)
				return e.Chosen, err
			}, func(collective plugin.Collective, bytes int64) ([]string, error) {
				return c.PlanTexts(collective, plugin.Float32, plugin.OpMax, bytes)
			}
	}
	same := func() {
		require.Len(t, all[0], 2*n)
		for rank := range all {
			require.True(t, slices.Equal(all[0], all[rank]), "rank %d has other texts than rank 0", rank)
		}
		clear(all)
	}
	for _, err := range worldErrors(t, n, nil, func(c *host.Communicator) error {
		explain, texts := of(c)
		if err := check(c.Rank(), explain, texts, "  wait    "); err != nil {
			return err
		}
		return c.Barrier(nil) // nothing of it is in the way of calls
	}) {
		require.NoError(t, err)
	}
	same()
	for _, err := range deviceErrors(t, gpus(t, n), nil, func(r *rank) error {
		explain, texts := of(r.Communicator)
		return check(r.Rank(), explain, texts, "  launch  ")
	}) {
		require.NoError(t, err)
	}
	same()
}

// Ranks that ask for different plans get that error, and continue.
func TestPlanTextsOfDifferentCalls(t *testing.T) {
	for _, err := range worldErrors(t, 2, nil, func(c *host.Communicator) error {
		_, err := c.PlanTexts(plugin.AllGather, plugin.Int32, 0, int64(64*c.Rank()))
		if err == nil {
			return fmt.Errorf("rank %d was not told", c.Rank())
		}
		if want := "rank 0 for all_gather of int32, 0 bytes, rank 1 for all_gather of int32, 64 bytes"; plugin.CodeOf(err) != plugin.Mismatch || !strings.Contains(err.Error(), want) {
			return err
		}
		return c.Barrier(nil)
	}) {
		require.NoError(t, err)
	}
}

// An explanation names the type that it was asked for, though collectives that only move do not tell types apart.
func TestExplainNamesTheTypeOfTheCall(t *testing.T) {
	for _, err := range worldErrors(t, 1, nil, func(c *host.Communicator) error {
		for _, collective := range []plugin.Collective{plugin.AllReduce, plugin.Broadcast, plugin.Send} {
			for _, d := range plugin.DTypes() {
				e, err := c.Explain(collective, d, plugin.OpSum, 64)
				if err != nil || e.DType != d.String() {
					return fmt.Errorf("%s of %s: explained as %s, %w", collective, d, e.DType, err)
				}
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
}

// What cannot be explained is named with what would be right, not by numbers alone.
func TestExplainNamesBadArguments(t *testing.T) {
	for _, err := range worldErrors(t, 1, nil, func(c *host.Communicator) error {
		for want, call := range map[string]func() (any, error){
			"explain: collective 99 is unknown": func() (any, error) { return c.Explain(99, plugin.Float32, plugin.OpSum, 1) },
			"explain all_reduce: dtype 77 is unknown": func() (any, error) {
				return c.PlanTexts(plugin.AllReduce, 77, plugin.OpSum, 1)
			},
			"explain all_reduce: reduction op 55 is unknown": func() (any,
				error) {
				return c.Explain(plugin.AllReduce, plugin.Float32, 55, 1)
			},
			"explain barrier: a message has -1 bytes, want 0 or more": func() (any, error) {
				return c.ExplainSymmetric(plugin.Barrier, plugin.Float32, plugin.OpSum, -1)
			},
		} {
			if _, err := call(); plugin.CodeOf(err) != plugin.InvalidArgument || err.Error() != want {
				return fmt.Errorf("want %q, got %w", want, err)
			}
		}
		return nil
	}) {
		require.NoError(t, err)
	}
}
