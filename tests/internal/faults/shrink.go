package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults shrink", shrinkHandler) }

// lateness is the delay of the rank Late. A rank that dies then dies after half of it.
const lateness = 400 * time.Millisecond

// shrunk is a survivor's report once as many ranks as expected are left.
type shrunk struct {
	Failures []reply // of the communicators on the way
	World    int     // of the last one
	Took     []time.Duration
	Leaks    []string
}

// shrinkHandler runs collectives and, whenever they fail, continues with the ranks that are left, until there are as
// few as asked for.
func shrinkHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	if r.Late == w.Rank {
		restore, err := failpoint.Arm("communicator.agreed=delay(" + lateness.String() + ")")
		if err != nil {
			return nil, err
		}
		defer restore()
	}
	var s shrunk
	for number := 0; j.Comm.World() > r.Left && ctx.Err() == nil; number++ {
		err := j.operation(number, r.Bytes)
		if err == nil {
			continue
		}
		if errors.Is(err, errWrong) {
			return nil, err
		}
		var a reply
		a.fail(err)
		s.Failures = append(s.Failures, a)
		began := time.Now()
		next, err := j.Comm.Shrink(ctx)
		if err != nil {
			return nil, fmt.Errorf("after %q: shrink: %w", a.Message, err)
		}
		s.Took = append(s.Took, time.Since(began))
		if err := j.Leave(); err != nil {
			return nil, fmt.Errorf("closing the old communicator: %w", err)
		}
		j.Comm = next
		number = -1 // the ranks had not come equally far
	}
	s.World = j.Comm.World()
	if err := j.Sum(j.Comm); err != nil {
		return nil, fmt.Errorf("all_reduce of %d survivors: %w", s.World, err)
	}
	if err := j.Leave(); err != nil {
		return nil, fmt.Errorf("close: %w", err)
	}
	s.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}
