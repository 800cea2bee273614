package device_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// untouched is the byte that fills memory which no operation may write.
const untouched = 0x5A

func init() { pool.Handle("alone", handleAlone) }

// aloneRequest says how ranks join, and what one of them calls alone, with which time limit.
type aloneRequest struct {
	job.Request
	Limit time.Duration
	Sizes []int64
	Only  []plugin.Collective // nil: all
}

// lone is one rank's part of calls that one rank makes alone: memory to send, two places to receive in, and two
// communicators. The first one's calls fail; over the other one, which stays, ranks tell how their calls ended.
type lone struct {
	*elements
	other cuda.Ptr // as recv
	outer *host.Communicator
}

func handleAlone(ctx context.Context, w *pool.Worker, payload []byte) (_ []byte, err error) {
	var r aloneRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	j, err := job.New(w, plugin.MemoryKindCuda, 8)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.Join(ctx, r.Request); err != nil {
		return nil, err
	}
	a := &lone{outer: j.Comm}
	j.Comm = nil
	defer func() { err = errors.Join(err, a.outer.Close()) }()
	inner := r.Request
	inner.ID, inner.Timeout = r.ID+"-inner", r.Limit
	if err := j.Join(ctx, inner); err != nil {
		return nil, err
	}
	if a.elements, err = newElements(j, 2*slices.Max(r.Sizes)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.free()) }()
	d := j.Device
	if a.other, err = d.Driver.Alloc(d.Context, a.bytes); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Driver.Free(d.Context, a.other)) }()
	var result took
	for _, size := range r.Sizes {
		ops, first, last := a.operations(size)
		for i := range ops {
			if r.Only != nil && !slices.Contains(r.Only, ops[i].Collective) {
				continue
			}
			begin := time.Now()
			name := fmt.Sprintf("%s of %d bytes", ops[i].Collective, size)
			if err := a.call(ctx, &ops[i], first[i], last[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if elapsed := time.Since(begin); elapsed > result.Longest {
				result.Longest, result.Name = elapsed, name
			}
			result.Count++
		}
	}
	return json.Marshal(result)
}

// call runs an operation on all ranks into two places in turn, then on rank 0 alone into the first of them.
func (a *lone) call(ctx context.Context, o *host.Operation, first, last int32) error {
	d := a.Device
	places := [...]cuda.Ptr{a.recv, a.other}
	if err := d.Driver.Set(d.Context, a.send, byte(a.Comm.Rank()+1), a.bytes, d.Streams[0]); err != nil {
		return err
	}
	for _, place := range places {
		o.Recv = device.Pointer(place)
		for range 5 {
			if err := a.Comm.Do(o); err != nil {
				return err
			}
		}
	}
	if err := a.Settle(); err != nil {
		return err
	}
	for _, place := range places {
		if err := d.Driver.Set(d.Context, place, untouched, a.bytes, d.Streams[0]); err != nil {
			return err
		}
	}
	if err := a.Settle(); err != nil {
		return err
	}
	// No rank begins before all have filled their memory, nor looks at it before rank 0 has given up.
	if _, err := a.outer.Exchange(ctx, nil); err != nil {
		return err
	}
	o.Recv = device.Pointer(a.recv)
	var alone error
	failed := []byte{0}
	if a.Comm.Rank() == 0 {
		if alone = errors.Join(a.Comm.Do(o), a.Settle()); alone != nil {
			failed[0] = 1
		}
	}
	ends, err := a.outer.Exchange(ctx, failed)
	if err != nil {
		return err
	}
	if a.Comm.Rank() != 0 {
		if err := a.untouched(places[:]...); err != nil {
			return err
		}
	}
	if ends[0][0] == 0 { // rank 0 only gives: what it gave is there when the others come
		if a.Comm.Rank() != 0 {
			if err := errors.Join(a.Comm.Do(o), a.Settle(), a.check(o, first, last)); err != nil {
				return fmt.Errorf("after rank 0 ended alone: %w", err)
			}
		}
		_, err := a.outer.Exchange(ctx, nil)
		return err
	}
	return a.recover(ctx, o, first, last, alone)
}

// recover checks that rank 0 has failed by the time limit, that the others' call returns an error, or is right, as
// where all that rank 0 gives had come before, and that the ranks can make a communicator of this one.
func (a *lone) recover(ctx context.Context, o *host.Operation, first, last int32, alone error) error {
	if a.Comm.Rank() == 0 {
		if plugin.CodeOf(alone) != plugin.Timeout {
			return fmt.Errorf("a call of rank 0 alone ended with %w, want a timeout", alone)
		}
	} else {
		if late := errors.Join(a.Comm.Do(o), a.Settle()); late == nil {
			if err := a.check(o, first, last); err != nil {
				return fmt.Errorf("after rank 0 has given up: %w", err)
			}
		}
		if err := a.untouched(a.other); err != nil {
			return err
		}
	}
	next, err := a.Comm.Shrink(ctx)
	if err != nil {
		return err
	}
	if err := a.Comm.Close(); err != nil {
		return err
	}
	a.Comm = next
	return a.Sum(next)
}

// untouched returns an error if memory differs from what it was filled with.
func (a *lone) untouched(places ...cuda.Ptr) error {
	d := a.Device
	have, want := make([]byte, a.bytes), bytes.Repeat([]byte{untouched}, int(a.bytes))
	for i, place := range places {
		if err := d.Driver.Read(d.Context, have, place); err != nil {
			return err
		}
		if !bytes.Equal(have, want) {
			return fmt.Errorf("a call of rank 0 alone changed place %d of rank %d", i, a.Comm.Rank())
		}
	}
	return nil
}

// Rule 17: a rank whose peers do not come uses no address of an earlier call: it fails, its GPU stays usable, and the
// others' memory stays as it is.
func TestARankAloneTouchesNoMemoryOfItsPeers(t *testing.T) {
	beside(t, "alone", func(r job.Request) any {
		r.Timeout = 20 * time.Second
		if !machine.Real() { // slow: one whose ranks tell each other addresses and do little else
			return aloneRequest{r, 8 * time.Second, []int64{16 << 20}, []plugin.Collective{plugin.AllGather}}
		}
		return aloneRequest{r, time.Second, besideSizes, nil}
	})
}
