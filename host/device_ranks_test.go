package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestDeviceIsSharedByNoTwoRanks(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 3), func(rank int, o *host.Options) {
		if rank == 2 {
			o.Device = 0
		}
	}, nil)
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.InvalidArgument, "rank %d", rank)
		require.ErrorContains(t, err, "init: ranks 0 (pid", "rank %d", rank)
		require.ErrorContains(t, err, "both use GPU GPU-", "rank %d", rank)
	}
}

func TestDeviceIsSharedWhereAllRanksWantIt(t *testing.T) {
	t.Setenv("SHUNT_SHARE_GPU", "on")
	errs := deviceErrors(t, gpus(t, 3), func(rank int, o *host.Options) { o.Device = rank / 2 }, func(r *rank) error {
		return errors.Join(deviceSum(r, 100), deviceSum(r, 1<<20))
	})
	require.NoError(t, errors.Join(errs...))
}

// NCCL rejects such ranks: it is left out, with the reason, and another transport serves.
func TestSharedGPULeavesOutWhatNeedsItsOwn(t *testing.T) {
	withNCCL(t)
	t.Setenv("SHUNT_SHARE_GPU", "on")
	for _, c := range []struct {
		second     int // the GPU of the second rank
		reason     string
		transports []string
		fails      string
	}{
		{0, "ranks 0 and 1 share GPU 0000:01:00.0", []string{"builtin:nccl", "builtin:cudaipc"}, ""},
		{0, "", []string{"builtin:nccl"}, "no transport serves cuda memory: nccl: ranks 0 and 1 share GPU 0000:01:00.0"},
		{1, "", []string{"builtin:nccl", "builtin:cudaipc"}, ""},
	} {
		errs := deviceErrors(t, gpus(t, 2), func(rank int, o *host.Options) {
			o.Device, o.Transports = rank*c.second, c.transports
		}, func(r *rank) error {
			e, err := r.Explain(plugin.Broadcast, plugin.Float32, plugin.OpSum, 64)
			if err != nil {
				return err
			}
			reason := ""
			for _, rejected := range e.Rejected {
				if rejected.Name == "nccl" {
					reason = rejected.Reason
				}
			}
			if reason != c.reason {
				return fmt.Errorf("nccl was rejected for %q, want %q", reason, c.reason)
			}
			return deviceSum(r, 100)
		})
		for rank, err := range errs {
			if c.fails == "" {
				require.NoError(t, err, rank)
			} else {
				require.ErrorContains(t, err, c.fails, rank)
			}
		}
	}
}

func TestDeviceRanksAgreeOnTheKindOfMemory(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), func(rank int, o *host.Options) {
		if rank == 1 {
			o.Memory, o.Transports = plugin.MemoryKindHost, []string{"builtin:cudaipc"}
		}
	}, nil)
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
	}
}

func TestDeviceSplitAndShrink(t *testing.T) {
	var through atomic.Int32 // ranks whose calls before the abort have returned
	deviceWorld(t, 4, func(r *rank) error {
		half, err := r.Split(context.Background(), r.Rank()%2, r.Rank())
		if err != nil {
			return err
		}
		defer half.Close()
		part := &rank{Communicator: half, driver: r.driver, ctx: r.ctx, stream: r.stream}
		if err := errors.Join(deviceSum(part, 100), deviceSum(r, 100), deviceSum(part, 100)); err != nil {
			return err
		}
		through.Add(1)
		if r.Rank() == 0 {
			if err := eventually("the others' calls", func() bool { return through.Load() == 4 }); err != nil {
				return err
			}
			r.Abort("on purpose")
		}
		if err := eventually("the abort to arrive", func() bool { return r.Err() != nil }); err != nil {
			return err
		}
		small, err := r.Shrink(context.Background())
		if err != nil {
			return err
		}
		again := &rank{Communicator: small, driver: r.driver, ctx: r.ctx, stream: r.stream}
		return errors.Join(deviceSum(again, 100), deviceSum(part, 10), small.Close(), half.Close())
	})
}
