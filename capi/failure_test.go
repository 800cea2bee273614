package main

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
)

// A test has no names for the types of C, but those of the exports.
func ask[N ~uint64, S ~int32](export func(N, *S) S, h handle) (result, failed plugin.Code) {
	var s S
	return plugin.Code(export(N(h), &s)), plugin.Code(s)
}

func records[N ~uint64, B ~int8 | ~uint8, S ~int32](export func(N, *B, N, *N) S, h handle, room []byte) (
	result plugin.Code, needed int) { // C's char is signed on x86-64 only
	var n N
	s := export(N(h), (*B)(unsafe.Pointer(unsafe.SliceData(room))), N(len(room)), &n)
	return plugin.Code(s), int(n)
}

// told is a call with a text.
func told[N ~uint64, B ~int8 | ~uint8, S ~int32](export func(N, *B) S, h handle, text string) plugin.Code {
	return plugin.Code(export(N(h), (*B)(unsafe.Pointer(unsafe.StringData(text+"\x00")))))
}

// plain is a call with a handle alone.
func plain[N ~uint64, S ~int32](export func(N) S, h handle) plugin.Code {
	return plugin.Code(export(N(h)))
}

// pair returns two ranks of this process behind handles.
func pair(t *testing.T) (ranks [2]handle) {
	t.Helper()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	var making sync.WaitGroup
	var errs [2]error
	for rank := range ranks {
		making.Go(func() {
			c, err := host.Init(context.Background(), host.Options{ID: id.String(), Rank: rank, World: 2,
				Transports: []string{"builtin:shm"}, Timeout: time.Minute})
			if err == nil {
				ranks[rank], err = communicators.add(&communicator{host: c, rank: rank, world: 2})
			}
			errs[rank] = err
		})
	}
	making.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	return ranks
}

// One thread of each rank is inside a call that never ends by itself, others ask
// all the time, and one aborts; under the race detector.
func TestQuestionsDuringACall(t *testing.T) {
	ranks := pair(t)
	var inside [2]sync.Once
	var entered, all sync.WaitGroup
	entered.Add(2)
	for rank, h := range ranks {
		c := communicators.get(h)
		all.Go(func() { // inside
			x := make([]float32, 4)
			err := c.host.Recv(unsafe.Pointer(&x[0]), 4, plugin.Float32, 1-rank, nil) // no rank sends
			if plugin.Code(status(c, err)) != plugin.Aborted {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
		for range 2 {
			all.Go(func() { // asks
				defer inside[rank].Do(entered.Done)
				for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
					result, failed := ask(go_get_async_error, h)
					code, needed := records(go_records, h, nil)
					if result != plugin.OK || code != plugin.OK {
						t.Errorf("rank %d: returned %v and %v", rank, result, code)
						return
					}
					room := make([]byte, needed+100)
					if code, needed = records(go_records, h, room); code != plugin.OK {
						continue // grown
					}
					var report report.Report
					if err := json.Unmarshal(room[:needed-1], &report); err != nil || report.Rank != rank ||
						(failed != plugin.OK && report.Failure == "") {
						t.Errorf("rank %d: %s, %v", rank, room, err)
						return
					}
					if len(report.Operations) == 1 {
						inside[rank].Do(entered.Done)
					}
					if failed != plugin.OK {
						if failed != plugin.Aborted {
							t.Errorf("rank %d: failed with %v", rank, failed)
						}
						return
					}
				}
				t.Errorf("rank %d: nothing has happened", rank)
			})
		}
	}
	entered.Wait()
	communicators.get(ranks[0]).host.Abort("seen enough")
	all.Wait()
	for _, h := range ranks {
		c, err := communicators.remove(h)
		require.NoError(t, err)
		require.ErrorIs(t, c.last.returned(), c.host.Err())
		require.Contains(t, c.last.get(), "rank 0 aborted: seen enough")
		require.NoError(t, c.host.Close())
	}
	result, _ := ask(go_get_async_error, ranks[0])
	require.Equal(t, plugin.InvalidArgument, result)
	result, needed := records(go_records, ranks[0], nil)
	require.Equal(t, plugin.InvalidArgument, result)
	require.Zero(t, needed)
}

// One thread is inside a call that never ends by itself, another closes the communicator, which waits for that: a third
// one finds out, and ends both. Other calls are refused from then on.
func TestQuestionsDuringAClose(t *testing.T) {
	ranks := pair(t)
	h, c := ranks[0], communicators.get(ranks[0])
	received, closed := make(chan error, 1), make(chan plugin.Code, 1)
	go func() {
		x := make([]float32, 4)
		received <- c.host.Recv(unsafe.Pointer(&x[0]), 4, plugin.Float32, 1, nil) // rank 1 sends nothing
	}()
	require.Eventually(t, func() bool { return len(c.host.Records()) == 1 }, 30*time.Second, time.Millisecond)
	go func() { closed <- plain(go_close, h) }()
	require.Eventually(t, func() bool {
		refused, _ := ask(go_rank, h)
		return refused == plugin.InvalidArgument
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, plugin.InvalidArgument, plain(go_close, h), "of two that close it one does")
	result, failed := ask(go_get_async_error, h)
	require.Equal(t, plugin.OK, result)
	require.Equal(t, plugin.OK, failed)
	result, needed := records(go_records, h, nil)
	require.Equal(t, plugin.OK, result)
	require.NotZero(t, needed)
	require.Equal(t, plugin.OK, told(go_abort, h, "seen enough"))
	require.ErrorContains(t, <-received, "rank 0 aborted: seen enough")
	require.Equal(t, plugin.OK, <-closed)
	require.Equal(t, plugin.InvalidArgument, told(go_abort, h, "too late"))
	require.Equal(t, plugin.OK, plain(go_close, ranks[1]))
}

func TestClosingTellsOnlyWhatIsNew(t *testing.T) {
	dead := plugin.Errorf(plugin.PluginDied, "the plugin exited with signal 9")
	failure := &plugin.Error{Code: plugin.PluginDied, Rank: 1, Message: "rank 1 lost its transport", Cause: dead}
	again := plugin.Errorf(plugin.PluginDied, "close: %w", dead)
	another := plugin.Errorf(plugin.PluginDied, "another plugin exited with signal 11")
	unmap := plugin.Errorf(plugin.System, "munmap: no")
	closing := errors.Join(errors.Join(nil, again), unmap, errors.Join(another, again))

	require.NoError(t, news(nil, failure))
	require.Equal(t, closing, news(closing, nil), "nobody was told")
	require.NoError(t, news(errors.Join(again, errors.Join(again)), failure))
	require.NoError(t, news(again, failure))
	require.EqualError(t, news(closing, failure), "munmap: no\nanother plugin exited with signal 11")
	require.Equal(t, plugin.System, plugin.CodeOf(news(closing, failure)))

	// A failure without a cause stands for itself alone.
	timeout := &plugin.Error{Code: plugin.Timeout, Rank: 2, Message: "no reply from rank 2"}
	require.EqualError(t, news(errors.Join(unmap, timeout), timeout), "munmap: no")
	require.EqualError(t, news(closing, timeout), closing.Error())
}

// The death of a plugin is returned once, by the first call that meets it.
func TestDeathOfAPluginIsToldOnce(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no Go toolchain to build a plugin with: the command go is not installed")
	}
	path := filepath.Join(t.TempDir(), "shunt-transport-shm")
	output, err := builttest.Command("go", "build", "-o", path, "../transports/shm/process").CombinedOutput()
	require.NoError(t, err, string(output))
	t.Setenv("SHUNT_TRANSPORTS", "process:"+path)
	binary := program(t, "test/plugin_death.c")
	for _, told := range []string{"by a call", "by asking", "by closing"} {
		t.Run(told, func(t *testing.T) { succeed(t, 1, binary, told) })
	}
}
