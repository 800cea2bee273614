package host_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

var errImpatient = errors.New("the user is impatient")

// A call whose context has ended returns one code after a deadline and one after a cancellation, whatever the program
// gave as the cause, and whatever call it is. The error says that the context has ended, and errors.Is sees that and
// the cause, though not on a rank whose own context goes on.
func TestContextsThatEndHaveOneCode(t *testing.T) {
	ends := map[string]struct {
		ended func(ctx context.Context) (context.Context, context.CancelFunc)
		want  plugin.Code
	}{
		"canceled": {context.WithCancel, plugin.Aborted},
		"canceled with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(errImpatient) }
		}, plugin.Aborted},
		"late": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadline(ctx, time.Now())
		}, plugin.Timeout},
		"late with a cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithDeadlineCause(ctx, time.Now(), errImpatient)
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
	takers := reflect.TypeFor[*host.Communicator]()
	for i := range takers.NumMethod() {
		if m := takers.Method(i); m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() {
			name := strings.ToLower(strings.ReplaceAll(m.Name, "NewWindow", "new_window"))
			require.Contains(t, calls, name, "a call that takes a context")
		}
	}
	for what, end := range ends {
		ctx, cancel := end.ended(t.Context())
		cancel()
		check := func(name string, err error) {
			assert.Equal(t, end.want, plugin.CodeOf(err), "%s, %s: %v", name, what, err)
			assert.ErrorIs(t, err, ctx.Err(), "%s, %s", name, what)
			assert.ErrorIs(t, err, context.Cause(ctx), "%s, %s", name, what)
			assert.ErrorContains(t, err, "the context of this call has ended: "+context.Cause(ctx).Error(), "%s, %s", name, what)
		}
		for name, call := range calls {
			returned := make(chan struct{})
			errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
				if c.Rank() == 0 {
					defer close(returned)
					return call(ctx, c)
				}
				<-returned
				return call(t.Context(), c)
			})
			check(name, errs[0])
			assert.Error(t, errs[1], "%s, %s", name, what)
			assert.NotErrorIs(t, errs[1], ctx.Err(), "%s, %s", name, what)
			assert.NotContains(t, errs[1].Error(), "the context of this call", "%s, %s", name, what)
		}
		o := host.Options{Rank: 0, World: 2, ID: "unix://@shunt-test-nobody", Logger: silent}
		_, err := host.Init(ctx, o)
		check("init", err)
	}
}

// A call gives up also while another has the communicator, and the ranks number the calls after it alike.
func TestContextsEndWhileAnotherCallIsUnderWay(t *testing.T) {
	for name, call := range map[string]func(context.Context, *host.Communicator) error{
		"exchange": func(ctx context.Context, c *host.Communicator) error {
			_, err := c.Exchange(ctx, []byte("x"))
			return err
		},
		"split": func(ctx context.Context, c *host.Communicator) error {
			_, err := c.Split(ctx, host.NoColor, 0)
			return err
		},
		"new_window": func(ctx context.Context, c *host.Communicator) error {
			_, err := c.NewWindow(ctx, 64)
			return err
		},
	} {
		for _, queued := range []bool{false, true} { // behind a call that came before
			t.Run(fmt.Sprint(name, ", queued ", queued), func(t *testing.T) {
				gaveUp := make(chan struct{})
				require.NoError(t, errors.Join(worldErrors(t, 2, func(_ int, o *host.Options) {
					o.Timeout = 20 * time.Second
				}, func(c *host.Communicator) error {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if c.Rank() == 0 {
						waits, release := host.TakeTurn(c)
						given, earlier := make(chan error, 1), make(chan error, 1)
						if queued {
							go func() { earlier <- call(t.Context(), c) }()
							if err := eventually("an earlier call that waits", waits); err != nil {
								return err
							}
							cancel()
							given <- call(ctx, c)
						} else {
							earlier <- nil
							go func() { given <- call(ctx, c) }()
						}
						err := eventually("a call that waits", waits)
						cancel()
						if given := <-given; !errors.Is(given, context.Canceled) || plugin.CodeOf(given) != plugin.Aborted {
							err = errors.Join(err, fmt.Errorf("it gave %w", given))
						}
						close(gaveUp)
						release()
						if err = errors.Join(err, <-earlier); err != nil {
							return err
						}
					} else {
						if queued {
							if err := call(t.Context(), c); err != nil {
								return err
							}
						}
						go func() {
							<-gaveUp
							cancel()
						}()
						if err := call(ctx, c); err == nil {
							return errors.New("it has met a rank that gave up")
						}
					}
					return call(t.Context(), c)
				})...))
			})
		}
	}
}
