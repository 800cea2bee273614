package host_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// A kernel gives up on an absent rank. No rank synchronizes or calls anything, and
// the watchdog of stalls sleeps: Err still returns the failure.
func TestDeviceFaultIsKnownWithoutACall(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "1h")
	errs := deviceErrors(t, gpus(t, 3), func(_ int, o *host.Options) { o.Timeout = time.Second }, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		sum := func() error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		}
		if err := errors.Join(sum(), r.sync()); err != nil {
			return err
		}
		var err error
		if r.Rank() != 2 {
			err = sum()
		}
		if err = errors.Join(err, eventually("the fault", func() bool { return r.Err() != nil })); err != nil {
			return err
		}
		var out bytes.Buffer
		var report report.Report
		if err := errors.Join(r.WriteRecords(&out), json.Unmarshal(out.Bytes(), &report)); err != nil {
			return err
		}
		calls := 2
		if r.Rank() == 2 {
			calls = 1
		}
		if len(report.Operations) != calls || report.Operations[calls-1].State != "enqueued" ||
			report.Failure != r.Err().Error() {
			return fmt.Errorf("reported %s", out.String())
		}
		return r.Err()
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "no response from peer rank 2", "rank %d", rank)
	}
}
