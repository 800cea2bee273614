package ucx_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// The first call of a kind begins with an agreement. A rank that stays away from it is reported, on whichever host it
// is, and ranks that have come are not, though the others learn of their calls later than of the warning's time.
func TestWhoStaysAwayOnAnotherHostIsReportedAlone(t *testing.T) {
	run := newWorld(t, 3, "SHUNT_STALL_WARNING=100ms")
	for rank, a := range run("late") {
		if a.Code != plugin.OK {
			t.Errorf("rank %d: %s", rank, a.Text)
		}
	}
}

func init() {
	logs := &bytes.Buffer{}
	adjust["late"] = func(o *host.Options) { o.Logger = slog.New(slog.NewTextHandler(logs, nil)) }
	bodies["late"] = func(_ context.Context, c *host.Communicator, _ []string) error {
		if c.Rank() == 2 {
			time.Sleep(3 * time.Second)
		}
		x := []float32{1}
		err := c.AllReduce(unsafe.Pointer(&x[0]), unsafe.Pointer(&x[0]), 1, plugin.Float32, plugin.OpSum, nil)
		if err := errors.Join(err, c.Close()); err != nil {
			return err
		}
		waiting := strings.Count(logs.String(), "operation is waiting")
		if c.Rank() != 2 && (waiting != 1 || !strings.Contains(logs.String(), `for="peer rank 2 (pid`)) {
			return errors.New("want one warning, of rank 2, and found:\n" + logs.String())
		}
		return nil
	}
}
