package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() {
	pool.Handle("faults operation", operationHandler)
	pool.Handle("faults refuse", refuseHandler)
}

// operationHandler runs one operation to its end. When every rank has replied, none is in a call.
func operationHandler(_ context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(j.operation(0, r.Bytes), j.Settle()); err != nil {
		return nil, err
	}
	return json.Marshal(reply{})
}

// refuseHandler lets one rank give wrong arguments to an operation that all others
// call, and end its process over it: by a signal, or, with Rounds, by exiting
// without closing anything. The others return their error.
func refuseHandler(_ context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, j, err := opened(w, payload)
	if err != nil {
		return nil, err
	}
	sum := func(count int64) error {
		return j.Comm.AllReduce(j.Pointer(0), j.Pointer(r.Bytes), count, plugin.Float32, plugin.OpSum, j.Stream())
	}
	if w.Rank == r.Absent {
		if err := sum(-1); plugin.CodeOf(err) != plugin.InvalidArgument {
			return nil, fmt.Errorf("a count of -1 gave %w", err)
		}
		if r.Rounds > 0 {
			os.Exit(1)
		}
		return nil, unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if err = sum(2); err == nil {
		if err = j.Settle(); err == nil {
			return nil, errors.New("an operation ended well that one rank refused")
		}
	}
	var a reply
	a.fail(err)
	a.closed(j.Leave())
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}
