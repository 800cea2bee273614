package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// Communicators may be made of each other without end: what names them stays short, and equal on all ranks.
func TestGenerationsOfCommunicators(t *testing.T) {
	const generations = 70
	for name, next := range map[string]func(c *host.Communicator) (*host.Communicator, error){
		"split":  func(c *host.Communicator) (*host.Communicator, error) { return c.Split(t.Context(), 0, c.Rank()) },
		"subset": func(c *host.Communicator) (*host.Communicator, error) { return c.Subset(t.Context(), []int{0, 1}) },
		"shrink": func(c *host.Communicator) (*host.Communicator, error) { return c.Shrink(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			for rank, err := range worldErrors(t, 2, nil, func(c *host.Communicator) error {
				old := c
				labels := map[string]bool{}
				for range generations {
					made, err := next(old)
					if err != nil {
						return err
					}
					if old != c {
						err = old.Close()
					}
					if labels[made.Label()] || len(made.Label()) > 120 {
						err = errors.Join(err, fmt.Errorf("label %q", made.Label()))
					}
					labels[made.Label()] = true
					x := []float32{1}
					if err = errors.Join(err, made.AllReduce(at(x), at(x), 1, plugin.Float32, plugin.OpSum, nil)); err != nil {
						return err
					}
					old = made
				}
				return old.Close()
			}) {
				require.NoError(t, err, "rank %d", rank)
			}
		})
	}
}

// What keeps a communicator from being made numbers ranks as they would be in it, and says whose numbers those are.
func TestWhoStaysAwayFromASubsetIsNamed(t *testing.T) {
	for rank, err := range worldErrors(t, 4, nil, func(c *host.Communicator) error {
		if c.Rank() == 0 { // takes no part
			return c.Barrier(nil)
		}
		ctx := t.Context()
		if c.Rank() != 1 {
			limited, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			ctx = limited
		} else { // late
			time.Sleep(time.Second / 2)
		}
		_, err := c.Subset(ctx, []int{3, 2, 1})
		if barrier := c.Barrier(nil); barrier != nil {
			return barrier
		}
		return err
	}) {
		if rank == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.Regexp(t, `still without rank 2 \(pid \d+ on host .+\) \(its ranks, from 0 on, are ranks 3, 2, 1 of world\)`,
			err.Error(), "rank %d", rank)
	}
}
