package diagnosis

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A program that ends as soon as it has an error, or closes, has sent the error to the others by then.
func TestAFailureIsToldBeforeTheProgramGetsIt(t *testing.T) {
	for name, end := range map[string]func(f *Failure){"error": (*Failure).Wait, "close": (*Failure).Close} {
		t.Run(name, func(t *testing.T) {
			before := FilingDelay
			FilingDelay = time.Minute
			defer func() { FilingDelay = before }()
			var f Failure
			f.SetUp("")
			var told atomic.Bool
			f.Set(&plugin.Error{Code: plugin.Aborted, Message: "enough"})
			go func() {
				time.Sleep(20 * time.Millisecond) // the race, made certain
				told.Store(true)
				f.Told()
			}()
			end(&f)
			require.True(t, told.Load())
		})
	}
}

// A connection that takes nothing delays no program for long.
func TestAFailureThatCannotBeToldEndsAllTheSame(t *testing.T) {
	before, closing := FilingDelay, ClosingDelay
	FilingDelay, ClosingDelay = time.Millisecond, time.Millisecond
	defer func() { FilingDelay, ClosingDelay = before, closing }()
	var f Failure
	f.SetUp("")
	f.Close() // nothing has failed: returns at once
	f.Set(&plugin.Error{Code: plugin.Aborted, Message: "enough"})
	f.Wait()
	f.Close()
	require.ErrorContains(t, f.Reason(), "enough")
}
