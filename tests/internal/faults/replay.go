package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() {
	pool.Handle("faults capture", captureHandler)
	pool.Handle("faults replay", replayHandler)
}

// replayed is a rank's report after replays without a call of the host.
type replayed struct {
	reply
	Ended time.Time // when the last replay had
}

// captureHandler makes a graph of all collectives, and replays it once. Everything is
// prepared, and checked, before the host is taken away.
func captureHandler(_ context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(j.fill(int64(w.World)*r.Bytes), j.Settle()); err != nil {
		return nil, err
	}
	for number := 1; number <= 4*kinds; number++ {
		if err := j.operation(number, r.Bytes); err != nil {
			return nil, fmt.Errorf("eager call %d: %w", number, err)
		}
	}
	if err := j.Settle(); err != nil {
		return nil, err
	}
	j.graph, err = j.Device.Capture(j.Device.Streams[0], func() error {
		for number := 1; number <= 4*kinds; number++ {
			if number%depth == depth-1 {
				continue // those wait
			}
			if err := j.operation(number, r.Bytes); err != nil {
				return err
			}
		}
		return j.gatherAll(r.Bytes / 4)
	})
	if err != nil {
		return nil, err
	}
	// Replays that are in flight when a plugin dies have host's time of grace, so the
	// test must know how long one takes.
	start, line := time.Now(), j.Device.Streams[0]
	err = errors.Join(j.graph.Launch(line), j.Device.Driver.SynchronizeStream(j.Device.Context, line))
	if err != nil {
		return nil, err
	}
	return json.Marshal(reply{Took: time.Since(start)})
}

// replayHandler replays the graph and checks the last result, whatever the
// communicator says meanwhile; then it waits for the communicator's error.
func replayHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	var a replayed
	line, world, n := j.Device.Streams[0], int64(w.World), r.Bytes/4
	for range r.Rounds {
		if err := j.graph.Launch(line); err != nil {
			return nil, fmt.Errorf("replay %d: %w", a.Operations, err)
		}
		a.Operations++
	}
	from := world * r.Bytes
	// the communicator is not asked
	err = errors.Join(j.Pull(from, from+4*n*world), j.Device.Driver.SynchronizeStream(j.Device.Context, line))
	if err == nil {
		err = j.checkResult(from, n*world, n, func(b int64) float32 { return float32(b + 1) })
	}
	a.Ended = time.Now()
	if err != nil {
		return nil, fmt.Errorf("%d replays, ended %s: %w", a.Operations, a.Ended.Format(time.StampMicro), err)
	}
	for err = j.Comm.Err(); err == nil && ctx.Err() == nil; err = j.Comm.Err() {
		runtime.Gosched()
	}
	if err == nil {
		return nil, errors.New("nobody told of a failure")
	}
	a.fail(err)
	if err := j.graph.Destroy(); err != nil {
		return nil, err
	}
	a.closed(j.Leave())
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}
