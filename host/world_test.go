package host_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

func TestMain(m *testing.M) {
	host.Register(shm.Transport{})
	host.Register(plain{})
	host.Register(onMachine)
	host.Register(anywhere{onMachine})
	host.Register(budgets)
	host.Register(small{})
	goleak.VerifyTestMain(m)
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// options returns the options of one rank of a world in this process.
func options(id bootstrap.UniqueID, rank, world int) host.Options {
	return host.Options{
		Rank: rank, World: world, ID: id.String(), Transports: []string{"builtin:shm"},
		Timeout: 20 * time.Second, Logger: silent,
	}
}

// world runs body on every rank of a new communicator, ranks being goroutines,
// and fails the test with what any of them returns.
func world(t *testing.T, n int, body func(c *host.Communicator) error) {
	t.Helper()
	require.NoError(t, errors.Join(worldErrors(t, n, nil, body)...))
}

// worldErrors is world for bodies that are meant to fail: it returns each rank's error.
// adjust may change a rank's options.
func worldErrors(t *testing.T, n int, adjust func(rank int, o *host.Options),
	body func(c *host.Communicator) error) []error {
	t.Helper()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			o := options(id, rank, n)
			if adjust != nil {
				adjust(rank, &o)
			}
			c, err := host.Init(context.Background(), o)
			if err != nil {
				errs[rank] = err
				return
			}
			errs[rank] = errors.Join(body(c), c.Close())
		}()
	}
	wg.Wait()
	return errs
}

func at[T any](s []T) unsafe.Pointer {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Pointer(&s[0])
}

// ramp returns n float32 values that tell ranks and places apart.
func ramp(rank, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(rank*1000 + i%997)
	}
	return s
}

var errWrong = errors.New("wrong result")

func equal[T comparable](got, want []T) error {
	if len(got) != len(want) {
		return errWrong
	}
	for i := range got {
		if got[i] != want[i] {
			return plugin.Errorf(plugin.Internal, "element %d is %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}
