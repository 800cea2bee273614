package faults

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"time"

	"github.com/shunt-ccl/shunt/tests/pool"
)

// toldReply is the error that a rank got of a call that only the GPU can refuse,
// and when the call began.
type toldReply struct {
	reply
	Began time.Time
}

// openUsed reads a request, of which embedded is a part, and makes a rank whose
// communicator has been used.
func openUsed(ctx context.Context, w *pool.Worker, payload []byte, whole any, embedded *request) (*rank, error) {
	if err := json.Unmarshal(payload, whole); err != nil {
		return nil, err
	}
	j, err := openRank(ctx, w, *embedded)
	if err != nil {
		return nil, err
	}
	return j, j.Sum(j.Comm)
}

// told makes a call that must fail on all ranks, and waits until the communicator has:
// a kernel that refuses, or a sender, may end well.
func (j *rank) told(ctx context.Context, call func() error) (a toldReply, err error) {
	a.Began = time.Now()
	failure := call()
	if failure == nil {
		failure = j.Settle()
	}
	for ; failure == nil && ctx.Err() == nil; failure = j.Comm.Err() {
		runtime.Gosched()
	}
	if failure == nil {
		return a, errors.New("nobody told of a failure")
	}
	a.fail(failure)
	return a, nil
}

// drained waits for a rank's stream, without a question to the communicator.
func (j *rank) drained() error {
	return j.Device.Driver.SynchronizeStream(j.Device.Context, j.Device.Streams[0])
}
