package host_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
)

// firstRecord is a log handler that says when there is a record.
type firstRecord struct {
	slog.Handler
	once *sync.Once
	at   chan struct{}
}

func (h firstRecord) Enabled(context.Context, slog.Level) bool { return true }
func (h firstRecord) Handle(context.Context, slog.Record) error {
	h.once.Do(func() { close(h.at) })
	return nil
}

// Calls are compared on all ranks where SHUNT_CHECK is on for one: a rank that compares waits for all others.
func TestCheckOnOneRankIsEveryRanks(t *testing.T) {
	drivers := gpus(t, 2)
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	all := &company{ranks: 2}
	all.here.L = &all.mu
	t.Setenv("SHUNT_CHECK", "on")
	t.Setenv("SHUNT_CHEKC", "on") // of which rank 0 warns once it has read its options
	read, errs := firstRecord{slog.DiscardHandler, &sync.Once{}, make(chan struct{})}, make([]error, 2)
	var ranks sync.WaitGroup
	start := func(i int) {
		ranks.Go(func() {
			defer all.leave()
			errs[i] = deviceRank(id, i, drivers, all, func(i int, o *host.Options) {
				if o.Timeout = 5 * time.Second; i == 0 {
					o.Logger = slog.New(read)
				}
			}, func(r *rank) error { return errors.Join(deviceSum(r, 100), deviceSum(r, 100)) })
		})
	}
	start(0)
	<-read.at
	require.NoError(t, errors.Join(os.Unsetenv("SHUNT_CHECK"), os.Unsetenv("SHUNT_CHEKC")))
	start(1)
	ranks.Wait()
	require.NoError(t, errors.Join(errs...))
}
