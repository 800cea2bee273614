package nccl_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

const mostCount = 20000 // several pieces of staging memory

// Whenever a rank aborts, all ranks return its reason soon, and what they free then is read by no other rank.
func TestAbortsAtAnyTime(t *testing.T) {
	fakeNCCL(t)
	for _, spec := range []string{"builtin:nccl", "builtin:staged"} {
		t.Run(spec, func(t *testing.T) {
			const world = 3
			require.NoError(t, errors.Join(onStaged(t, world, over(spec), func(g *gpu) error {
				p, err := g.driver.Alloc(g.ctx, 4*mostCount)
				if err != nil {
					return err
				}
				for round := range uint64(40) {
					if err := g.aborted(t, round, func(h *gpu, count int64) error {
						return errors.Join(h.AllReduce(pointer(p), pointer(p), count, plugin.Int32, plugin.OpSum, h), h.Synchronize(h))
					}); err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
				}
				return g.driver.Free(g.ctx, p)
			})...))
		})
	}
}

// aborted calls on a communicator of its own until a rank aborts it.
func (g *gpu) aborted(t *testing.T, round uint64, call func(h *gpu, count int64) error) error {
	random := rand.New(rand.NewPCG(7, round)) // alike on all ranks
	rank, wait, count := random.IntN(g.World()), time.Duration(random.IntN(2e7)), []int64{0, 10, mostCount}[random.IntN(3)]
	comm, err := g.Split(t.Context(), 0, g.Rank())
	if err != nil {
		return err
	}
	h := *g
	h.Communicator = comm
	if g.Rank() == rank {
		time.AfterFunc(wait, func() { comm.Abort("enough") })
	}
	began := time.Now()
	for err == nil {
		err = call(&h, count)
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("rank %d aborted: enough", rank)) || time.Since(began) > 20*time.Second {
		return fmt.Errorf("rank %d aborts after %v: after %v: %w", rank, wait, time.Since(began), err)
	}
	return comm.Close()
}
