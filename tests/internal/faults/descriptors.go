package faults

import (
	"context"
	"encoding/json"
	"time"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults splits", splitsHandler) }

// splitsReply is a rank's report on splits until its descriptors ran out.
type splitsReply struct {
	Made   int // before one failed
	Failed reply
	Took   time.Duration // of the one that failed
	After  reply         // of a split once the others are closed
	Leaks  []string
}

// splitsHandler splits until a split fails, with few descriptors on the rank
// Limited (or on every one, if that is -1), closes what it has made and splits
// again: a lack of descriptors is the error of one call.
func splitsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	j, err := newRank(w, r)
	if err != nil {
		return nil, err
	}
	restore, err := r.limit(w.Rank)
	if err != nil {
		return nil, err
	}
	defer func() { _ = restore() }() // of a way out on which another error counts
	if err := j.Join(ctx, r.Request); err != nil {
		return nil, err
	}
	var s splitsReply
	var made []*host.Communicator
	for s.Made < r.Rounds {
		began := time.Now()
		c, err := j.Comm.Split(ctx, 0, w.Rank)
		if err != nil {
			s.Took = time.Since(began)
			s.Failed.fail(err)
			break
		}
		s.Made++
		made = append(made, c)
	}
	for _, c := range made {
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	if s.Failed.Code != plugin.OK {
		c, err := j.Comm.Split(ctx, 0, w.Rank)
		if err == nil {
			err = j.Sum(c)
			_ = c.Close() // the sum is what counts
		}
		if err != nil {
			s.After.fail(err)
		}
	}
	if err := j.Leave(); err != nil {
		return nil, err
	}
	if err := restore(); err != nil {
		return nil, err
	}
	s.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(s)
}
