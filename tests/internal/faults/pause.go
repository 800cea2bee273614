package faults

import (
	"context"
	"encoding/json"

	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults paused", pausedHandler) }

// pausedHandler runs a number of operations, all of which must succeed, and leaves.
func pausedHandler(_ context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	var a reply
	for a.Operations < r.Rounds {
		if err := j.operation(a.Operations, r.Bytes); err != nil {
			return nil, err
		}
		a.Operations++
	}
	if err := j.Leave(); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}
