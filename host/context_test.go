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

// A call whose context has ended returns one code after a deadline and one after a cancellation, whatever the program
// gave as the cause, and whatever call it is.
func TestContextsThatEndHaveOneCode(t *testing.T) {
	ends := map[string]struct {
		ended func(ctx context.Context) (context.Context, context.CancelFunc)
		want  plugin.Code
	}{
		"canceled": {context.WithCancel, plugin.Aborted},
		"canceled with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errors.New("the user is impatient")) }
		}, plugin.Aborted},
		"late": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Now())
		}, plugin.Timeout},
		"late with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadlineCause(ctx, time.Now(), errors.New("the user is impatient"))
		}, plugin.Timeout},
	}
	calls := map[string]func(ctx context.Context, c *host.Communicator) error{
		"split": func(ctx context.Context, c *host.Communicator) error { _, err := c.Split(ctx, 0, 0); return err },
		"subset": func(ctx context.Context, c *host.Communicator) error {
			_, err := c.Subset(ctx, []int{0, 1})
			return err
		},
		"shrink":     func(ctx context.Context, c *host.Communicator) error { _, err := c.Shrink(ctx); return err },
		"exchange":   func(ctx context.Context, c *host.Communicator) error { _, err := c.Exchange(ctx, nil); return err },
		"new_window": func(ctx context.Context, c *host.Communicator) error { _, err := c.NewWindow(ctx, 64); return err },
		"wait": func(ctx context.Context, c *host.Communicator) error {
			r, err := c.Start(&host.Operation{Collective: plugin.Barrier})
			if err != nil {
				return err
			}
			err = r.Wait(ctx)
			c.Abort("enough")
			_ = r.Wait(context.Background())
			return err
		},
	}
	for what, end := range ends {
		ctx, cancel := end.ended(t.Context())
		cancel()
		for name, call := range calls {
			world(t, 2, func(c *host.Communicator) error {
				if c.Rank() == 1 { // it stays until rank 0 has its error
					return eventually("the end of rank 0", func() bool { return c.Err() != nil })
				}
				err := call(ctx, c)
				c.Abort("enough")
				if plugin.CodeOf(err) != end.want {
					return fmt.Errorf("%s, %s: code %v, want %v: %w", name, what, plugin.CodeOf(err), end.want, err)
				}
				return nil
			})
		}
		o := host.Options{Rank: 0, World: 2, ID: "unix://@shunt-test-nobody", Logger: silent}
		_, err := host.Init(ctx, o)
		require.Equal(t, end.want, plugin.CodeOf(err), "init, %s: %v", what, err)
	}
}
