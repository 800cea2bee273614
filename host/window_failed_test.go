package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// strict is shm as a carrier that begins no call whose context has ended.
type strict struct {
	shm.Transport
	*strictness
}

// strictness holds the hooks of a test.
type strictness struct {
	allocated func(rank int)
	keeps     atomic.Int32 // 1 + the rank whose next Free fails
}

type strictEndpoint struct {
	plugin.Endpoint
	*strictness
	rank int
}

var strictly = strict{strictness: &strictness{}}

func init() { host.Register(strictly) }

func (s strict) Info() plugin.Info {
	i := s.Transport.Info()
	i.Name = "strict"
	return i
}

func (s strict) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := s.Transport.Open(ctx, c)
	return strictEndpoint{e, s.strictness, c.Rank}, err
}

func (e strictEndpoint) Allocate(ctx context.Context, id uint32, bytes int64) (plugin.Region, error) {
	r, err := e.Endpoint.Allocate(ctx, id, bytes)
	e.allocated(e.rank)
	return r, err
}

func (e strictEndpoint) Free(ctx context.Context, id uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.keeps.CompareAndSwap(int32(e.rank+1), 0) {
		return plugin.Errorf(plugin.System, "it sticks")
	}
	return e.Endpoint.Free(ctx, id)
}

// The memory of a window that a transport could not free keeps its place: later windows take others, on all ranks.
func TestWindowThatCannotBeFreedBlocksNoOther(t *testing.T) {
	strictly.allocated = func(int) {}
	strictly.keeps.Store(2)
	require.NoError(t, errors.Join(worldErrors(t, 2, func(_ int, o *host.Options) {
		o.Transports = []string{"builtin:strict"}
	}, func(c *host.Communicator) error {
		stuck, err := c.NewWindow(t.Context(), 64)
		if err != nil {
			return err
		}
		if err := stuck.Close(); (err != nil) != (c.Rank() == 1) {
			return fmt.Errorf("closing the window that sticks on rank 1: %w", err)
		}
		for range 3 {
			w, err := c.NewWindow(t.Context(), 64)
			if err != nil {
				return err
			}
			if err := w.Close(); err != nil {
				return err
			}
		}
		return nil
	})...))
}

// A window that a rank gives up, as its context ends, keeps no memory: its place is free for the next one.
func TestGivenUpWindowKeepsNoMemory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	made, over := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	strictly.allocated = func(rank int) {
		switch {
		case calls.Add(1) > 2:
		case rank == 0:
			close(made)
		default: // rank 0 waits for this rank until it gives up
			<-made
			cancel()
			<-over
		}
	}
	require.NoError(t, errors.Join(worldErrors(t, 2, func(_ int, o *host.Options) {
		o.Transports = []string{"builtin:strict"}
	}, func(c *host.Communicator) error {
		with := ctx
		if c.Rank() == 1 {
			with = t.Context()
		}
		_, err := c.NewWindow(with, 64)
		if c.Rank() == 0 {
			close(over)
		}
		if plugin.CodeOf(err) != plugin.Aborted {
			return fmt.Errorf("a window that rank 0 gave up: %w", err)
		}
		w, err := c.NewWindow(t.Context(), 64)
		if err != nil {
			return err
		}
		return errors.Join(c.Barrier(nil), w.Close())
	})...))
}

// A transport that does not return from allocate is named on every rank, before all time is over.
func TestWindowsWhoseMemoryDoesNotCome(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	strictly.allocated = func(rank int) {
		if rank == 1 {
			<-end
		}
	}
	errs := worldErrors(t, 2, func(_ int, o *host.Options) {
		o.Transports, o.Timeout = []string{"builtin:strict"}, 2*time.Second
	}, func(c *host.Communicator) error {
		_, err := c.NewWindow(t.Context(), 64)
		return err
	})
	for rank, err := range errs {
		require.Equal(t, plugin.Timeout, plugin.CodeOf(err), "rank %d", rank)
		require.ErrorContains(t, err, "rank 1: transport strict", "rank %d", rank)
		require.ErrorContains(t, err, "did not return from allocate", "rank %d", rank)
	}
}

// A window whose plans one rank could not prepare can be made later: no rank has kept any of them.
func TestWindowAfterOneWhosePlansFailedOnOneRank(t *testing.T) {
	var failed atomic.Bool
	errs := exchanged(t, manner{connect: func(_ context.Context, rank int, x plugin.Exchange) error {
		if rank == 1 && x.Request.Collective == plugin.Put && x.Algorithm != "" && !failed.Swap(true) {
			return plugin.Errorf(plugin.OutOfMemory, "not now")
		}
		return nil
	}}, func(c *host.Communicator) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.NewWindow(ctx, 64)
		if plugin.CodeOf(err) != plugin.OutOfMemory || !contains(err, "not now") {
			return fmt.Errorf("a window whose plans failed: %w", err)
		}
		w, err := c.NewWindow(ctx, 64)
		if err != nil {
			return err
		}
		return errors.Join(w.Signal((c.Rank()+1)%3), w.Wait((c.Rank()+2)%3, 1), c.Barrier(nil), w.Close())
	})
	require.NoError(t, errors.Join(errs...))
}
