package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// recordsDir sets SHUNT_RECORDS_DIR for the test to a directory that does not exist
// yet, and returns it. A file is waited for as long as it takes.
func recordsDir(t *testing.T) string {
	t.Cleanup(host.ReplaceFiling(nil, time.Minute))
	dir := filepath.Join(t.TempDir(), "records")
	t.Setenv("SHUNT_RECORDS_DIR", dir)
	return dir
}

// filed reads the records file of a rank in the communicator that files are named after.
func filed(dir, communicator string, rank int) (report.Head, error) {
	names, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s.????????.%d.json", communicator, rank)))
	if err != nil || len(names) != 1 {
		return report.Head{}, fmt.Errorf("files %q: %w", names, errors.Join(err, os.ErrNotExist))
	}
	file, err := os.Open(names[0])
	if err != nil {
		return report.Head{}, err
	}
	defer file.Close()
	return report.ReadHead(file)
}

func TestFailedCommunicatorsLeaveTheirRecords(t *testing.T) {
	dir := recordsDir(t)
	errs := worldErrors(t, 3, func(_ int, o *host.Options) { o.Timeout = 2 * time.Second },
		func(c *host.Communicator) error {
			if err := c.Barrier(nil); err != nil {
				return err
			}
			if c.Rank() == 2 { // calls nothing, and learns of it all the same
				for c.Err() == nil {
					runtime.Gosched()
				}
				return nil
			}
			err := c.Barrier(nil)
			if _, missing := filed(dir, "world", c.Rank()); missing != nil { // a program may end now
				return missing
			}
			return err
		})
	job := ""
	for rank := range 3 {
		h, err := filed(dir, "world", rank)
		require.NoError(t, err)
		job = max(job, h.Job)
		want := report.Head{
			Communicator: "world", Job: job, Rank: rank, World: 3, PID: os.Getpid(), Host: h.Host, Code: "timeout",
			Failure: h.Failure,
			Last:    &report.Call{Number: 2, Collective: "barrier", State: report.Called},
		}
		if rank == 2 {
			require.NoError(t, errs[rank])
			want.Last.Number, want.Last.State = 1, report.Ended
		} else {
			require.ErrorIs(t, errs[rank], plugin.Timeout)
			require.ErrorContains(t, errs[rank], h.Failure)
		}
		require.Equal(t, want, h)
		require.Contains(t, h.Failure, "got no response from peer rank ")
	}
	require.Regexp(t, "^[0-9a-f]{32}$", job)
}

// Of what works nothing is written; a communicator that fails has a name of its own.
func TestOnlyWhatFailsIsWritten(t *testing.T) {
	dir := recordsDir(t)
	world(t, 2, func(c *host.Communicator) error {
		if err := c.Barrier(nil); err != nil {
			return err
		}
		half, err := c.Split(context.Background(), 5, 0)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			half.Abort("for a reason")
			if _, err := filed(dir, "world_1.5", 0); err != nil { // the rank that aborts may end now
				return err
			}
		}
		if err := half.Barrier(nil); !errors.Is(err, plugin.Aborted) {
			return fmt.Errorf("a barrier after an abort: %w", err)
		}
		small, err := half.Shrink(context.Background())
		if err != nil {
			return err
		}
		small.Abort("for another")
		return errors.Join(half.Close(), small.Close(), c.Barrier(nil))
	})
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, names, 4)
	for rank := range 2 {
		h, err := filed(dir, "world_1.5", rank)
		require.NoError(t, err)
		require.Equal(t, "world/1.5", h.Communicator)
		require.Equal(t, "aborted", h.Code)
		require.Contains(t, h.Failure, "rank 0 aborted: for a reason")
		h, err = filed(dir, "world_1.5-1", rank)
		require.NoError(t, err)
		require.Contains(t, h.Failure, "aborted: for another")
	}
}

// Each job keeps its records beside those of others, whose communicators have the same names: a program of torch has a
// job for each of its groups.
func TestJobsKeepTheirRecords(t *testing.T) {
	dir := recordsDir(t)
	for range 2 {
		world(t, 2, func(c *host.Communicator) error {
			c.Abort("for a reason")
			return nil
		})
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 4)
}

// A call whose first of its kind is compared has not begun to run, but was made.
func TestRecordsTellOfCallsThatNeverBegan(t *testing.T) {
	dir := recordsDir(t)
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 8)
		if c.Rank() == 0 {
			return c.AllReduce(at(x), at(x), 8, plugin.Float32, plugin.OpSum, nil)
		}
		return c.Broadcast(at(x), at(x), 8, plugin.Float32, 1, nil)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch)
		h, err := filed(dir, "world", rank)
		require.NoError(t, err)
		require.Equal(t, "mismatch", h.Code)
		require.Equal(t, &report.Call{Number: 1, Collective: [2]string{"all_reduce", "broadcast"}[rank],
			State: report.Called}, h.Last)
	}
}

// A rank that learns of a failure between two calls was in neither; its next call, which fails, says where it was. What
// it calls then, as to clean up, does not; nor does the call of a rank that others waited for until they gave up.
func TestRecordsTellOfTheCallThatMeetsTheFailure(t *testing.T) {
	for name, test := range map[string]struct {
		fail  func(c *host.Communicator) error // of rank 0
		calls uint64                           // of rank 1
	}{
		"abort":   {func(c *host.Communicator) error { c.Abort("had enough"); return nil }, 2},
		"timeout": {func(c *host.Communicator) error { _ = c.Barrier(nil); return nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := recordsDir(t)
			errs := worldErrors(t, 2, func(_ int, o *host.Options) { o.Timeout = time.Second },
				func(c *host.Communicator) error {
					if err := c.Barrier(nil); err != nil {
						return err
					}
					if c.Rank() == 0 {
						return test.fail(c)
					}
					if err := eventually("the file", func() bool { _, err := filed(dir, "world", 1); return err == nil }); err != nil {
						return err
					}
					return errors.Join(c.Barrier(nil), c.Barrier(nil))
				})
			require.NoError(t, errs[0])
			require.ErrorContains(t, errs[1], "barrier #2 on rank 1: ")
			h, err := filed(dir, "world", 1)
			require.NoError(t, err)
			require.Equal(t, test.calls, h.Last.Number)
		})
	}
}

// A disk that never returns keeps neither the error nor Close.
func TestSlowDisksDelayNobody(t *testing.T) {
	dir := recordsDir(t)
	begun, answered := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, make(chan struct{})
	var writing sync.WaitGroup
	writing.Add(2)
	defer host.ReplaceFiling(func(r report.Report, _ string) error {
		defer writing.Done()
		close(begun[r.Rank])
		<-answered
		return nil
	}, time.Millisecond)()
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		if c.Rank() == 0 {
			c.Abort("had enough")
		}
		<-begun[c.Rank()]
		return c.Barrier(nil)
	})
	close(answered)
	writing.Wait()
	for _, err := range errs {
		require.ErrorIs(t, err, plugin.Aborted)
	}
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What cannot be written is a warning.
func TestUnwritableRecordsChangeNoError(t *testing.T) {
	recordsDir(t)
	t.Setenv("SHUNT_RECORDS_DIR", "/dev/null/records")
	var log [2]bytes.Buffer
	errs := worldErrors(t, 2, func(rank int, o *host.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log[rank],
			nil))
	}, func(c *host.Communicator) error {
		if c.Rank() == 0 {
			c.Abort("had enough")
		}
		return c.Barrier(nil)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Aborted)
		require.Contains(t, err.Error(), "rank 0 aborted: had enough")
		require.Regexp(t, fmt.Sprintf(`level=WARN msg="the records were not written" communicator=world rank=%d directory=/dev/null/records reason=.*not a directory`, rank), log[rank].String())
	}
}

func TestRecordsOfGPUs(t *testing.T) {
	dir := recordsDir(t)
	errs := deviceErrors(t, gpus(t, 2), nil, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		sum := func() error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		}
		if err := errors.Join(sum(), r.sync()); err != nil {
			return err
		}
		if r.Rank() == 0 { // the other rank does not come
			if err := sum(); err != nil {
				return err
			}
			r.Abort("nobody comes")
		}
		return errors.Join(eventually("the abort", func() bool { return r.Err() != nil }), r.Err())
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Aborted)
		h, err := filed(dir, "world", rank)
		require.NoError(t, err)
		assert.Equal(t, &report.Call{Number: uint64(2 - rank), Collective: "all_reduce", State: report.Enqueued}, h.Last)
	}
}
