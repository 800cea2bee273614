package host_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// One goroutine is inside a call that never ends by itself, a second reads Err and the
// records all the time, a third aborts: the reads return throughout.
func TestQuestionsAreAnsweredDuringACall(t *testing.T) {
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 1000)
		if err := c.AllReduce(at(x), at(x), 1000, plugin.Float32, plugin.OpSum, nil); err != nil {
			return err
		}
		inside := make(chan struct{})
		var asked error
		var others sync.WaitGroup
		others.Go(func() { // asks until it gets the abort
			seen := false
			defer func() {
				if !seen {
					close(inside)
				}
			}()
			for deadline := time.Now().Add(20 * time.Second); asked == nil; {
				failure := c.Err()
				var out bytes.Buffer
				var report report.Report
				if asked = errors.Join(c.WriteRecords(&out), json.Unmarshal(out.Bytes(), &report)); asked != nil {
					return
				}
				last := report.Operations[len(report.Operations)-1]
				if !seen && last.Collective == "recv" && last.State == "running" {
					seen = true
					close(inside)
				}
				if failure != nil {
					if report.Failure != failure.Error() {
						asked = fmt.Errorf("failed with %q, reported %q", failure, report.Failure)
					}
					return
				}
				if time.Now().After(deadline) {
					asked = errors.New("nothing has happened")
				}
			}
		})
		if c.Rank() == 0 {
			others.Go(func() {
				<-inside
				c.Abort("seen enough")
			})
		}
		err := c.Recv(at(x), 1000, plugin.Float32, 1-c.Rank(), nil) // no rank sends
		others.Wait()
		return errors.Join(asked, err)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Aborted, "rank %d", rank)
		require.ErrorContains(t, err, "rank 0 aborted: seen enough", "rank %d", rank)
	}
}
