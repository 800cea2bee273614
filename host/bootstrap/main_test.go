package bootstrap

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestMain(m *testing.M) {
	if os.Getenv("SHUNT_TEST_RANK_PROCESS") != "" {
		os.Exit(rankProcess())
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	lingerTimeFail = 100 * time.Millisecond
	goleak.VerifyTestMain(m)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// dialing makes ranks of this process use sockets, as those of others do.
func dialing(t testing.TB) {
	forceDial = true
	t.Cleanup(func() { forceDial = false })
}

// each runs f for every rank at once and returns what each returned.
func each(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() { errs[rank] = f(rank) })
	}
	wg.Wait()
	return errs
}

// joinAll joins n ranks of this process by a fresh id. Cleanup closes them.
func joinAll(t testing.TB, n int, change func(*Config)) []*Session {
	t.Helper()
	id, root, err := NewID("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	sessions := make([]*Session, n)
	t.Cleanup(func() {
		each(n, func(rank int) error {
			if sessions[rank] != nil {
				return sessions[rank].Close()
			}
			return nil
		})
	})
	for rank, err := range each(n, func(rank int) (err error) {
		c := Config{Rank: rank, World: n, ID: id, HaveID: true, Timeout: 20 * time.Second, Logger: quiet}
		if change != nil {
			change(&c)
		}
		sessions[rank], err = Join(t.Context(), c)
		return err
	}) {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return sessions
}

func noErrors(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// same checks that all errors are the same one, of the given code.
func same(t testing.TB, code plugin.Code, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if plugin.CodeOf(err) != code {
			t.Errorf("rank %d: code %v, want %v: %v", rank, plugin.CodeOf(err), code, err)
		} else if err.Error() != errs[0].Error() {
			t.Errorf("rank %d: %q, but rank 0: %q", rank, err, errs[0])
		}
	}
}

func short(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func parts(all [][]byte) string { return fmt.Sprintf("%q", all) }
