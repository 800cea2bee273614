package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults shrink", shrinkHandler) }

// shrunk is what a survivor says once as many ranks as expected are left.
type shrunk struct {
	Failures []answer // of the communicators on the way
	World    int      // of the last one
	Sum      float32  // of one from every rank of it
	Took     []time.Duration
	Leaks    []string
}

// shrinkHandler runs collectives and, whenever they fail, goes on with the
// ranks that are left, until there are as few as asked for.
func shrinkHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	j, ok := w.State.(*job)
	if !ok || j.comm == nil {
		return nil, fmt.Errorf("shrink without a communicator")
	}
	var s shrunk
	for number := 0; j.comm.World() > r.Left && ctx.Err() == nil; number++ {
		err := j.operation(number, r.Bytes)
		if err == nil {
			continue
		}
		var a answer
		a.fail(err)
		s.Failures = append(s.Failures, a)
		began := time.Now()
		next, err := j.comm.Shrink(ctx)
		if err != nil {
			return nil, fmt.Errorf("after %q: shrink: %w", a.Message, err)
		}
		s.Took = append(s.Took, time.Since(began))
		if err := j.close(); err != nil {
			return nil, fmt.Errorf("closing the old communicator: %w", err)
		}
		j.comm = next
		number = -1 // the ranks had not come equally far
	}
	s.World = j.comm.World()
	one, sum := float32(1), float32(0)
	if err := j.comm.AllReduce(unsafe.Pointer(&one), unsafe.Pointer(&sum), 1, plugin.Float32, plugin.OpSum, nil); err != nil {
		return nil, fmt.Errorf("all_reduce of %d survivors: %w", s.World, err)
	}
	s.Sum = sum
	if err := j.close(); err != nil {
		return nil, fmt.Errorf("close: %w", err)
	}
	if err := j.release(); err != nil {
		return nil, err
	}
	s.Leaks = j.leaks()
	return json.Marshal(s)
}
