package sockets_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/transports/shm"
)

func init() { host.Register(shm.Transport{}) }

// Where one rank names the transports that the others take because they are there, all use the same.
func TestTransportsThatOneRankNames(t *testing.T) {
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	errs := make([]error, 2)
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			o := host.Options{Rank: rank, World: 2, ID: id.String(), Timeout: 5 * time.Second,
				Logger: slog.New(slog.DiscardHandler)}
			if rank == 1 {
				for _, name := range carrier.Registered() {
					o.Transports = append(o.Transports, "builtin:"+name)
				}
			}
			c, err := host.Init(context.Background(), o)
			if err == nil {
				err = errors.Join(c.Barrier(nil), c.Close())
			}
			errs[rank] = err
		})
	}
	ranks.Wait()
	require.NoError(t, errors.Join(errs...))
}
