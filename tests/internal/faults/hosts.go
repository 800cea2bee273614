package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults hosts", hostsHandler) }

// hostsRequest has ranks, each as on a host of its own, in a call to which rank Absent does not come.
type hostsRequest struct {
	request
	Instead string // what it does: "another", "nothing", "refused", "closed"
}

// hostsHandler makes calls of two kinds, and then one that all ranks but Absent call.
func hostsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	var r hostsRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	if err := os.Setenv("SHUNT_HOST_ID", fmt.Sprint("host", w.Rank)); err != nil {
		return nil, err
	}
	j, err := openRank(ctx, w, r.request)
	if err != nil {
		return nil, err
	}
	const count = 16
	sum := func(count int64) error {
		return j.Comm.AllReduce(j.Pointer(0), j.Pointer(64), count, plugin.Float32, plugin.OpSum, nil)
	}
	gather := func() error { return j.Comm.AllGather(j.Pointer(0), j.Pointer(64), 2, plugin.Uint8, nil) }
	if err := errors.Join(sum(count), sum(count)); err != nil {
		return nil, err
	}
	if _, err := j.Comm.Exchange(ctx, []byte{0}); err != nil { // no rank is in a call any more
		return nil, err
	}
	began := time.Now()
	switch {
	case w.Rank != r.Absent:
		err = sum(count)
	case r.Instead == "another":
		err = gather() // whose plan is not there yet
	case r.Instead == "refused":
		if err := sum(-1); plugin.CodeOf(err) != plugin.InvalidArgument {
			return nil, fmt.Errorf("a count of -1 gave %w", err)
		}
		err = j.Comm.Err()
	case r.Instead == "closed":
		err = j.Leave()
	}
	for j.Comm != nil && err == nil && ctx.Err() == nil {
		err = j.Comm.Err()
	}
	var a reply
	if err != nil {
		a.fail(err)
	}
	a.Took = time.Since(began)
	a.closed(j.Leave())
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}
