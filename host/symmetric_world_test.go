package host_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// byCopy forces the algorithm that needs symmetric memory, where there is any.
func byCopy(t *testing.T, world int) {
	clauses := "all_gather=cudaipc/ce,*;all_to_all=cudaipc/ce,*;scatter=cudaipc/ce,*"
	if world == 2 {
		clauses += ";broadcast=cudaipc/ce,*"
	}
	t.Setenv("SHUNT_ALGO", clauses)
}

// copied runs f, which calls one collective on every rank, and says how many
// ranks of this process ran it by copies.
func copied(r *rank, f func() error) (n int64, err error) {
	if err := r.meet(); err != nil {
		return 0, err
	}
	before := cudaipctest.Copied.Load()
	if err := errors.Join(r.Barrier(r), r.sync(), f(), r.Barrier(r), r.sync()); err != nil {
		return 0, err
	}
	n = cudaipctest.Copied.Load() - before
	return n, r.meet() // no rank counts the next call's
}

// symmetric makes memory and registers it as symmetric; done undoes both.
func (r *rank) symmetric(floats int) (p cuda.Ptr, done func(error) error, err error) {
	m, err := r.driver.CreateMemory(r.ctx, r.Rank(), int64(4*floats))
	if err != nil {
		return 0, nil, err
	}
	done = func(err error) error {
		return errors.Join(err, r.Deregister(pointer(m.Address)), r.sync(), r.driver.Unmap(r.ctx, m))
	}
	return m.Address, done, r.RegisterSymmetric(pointer(m.Address), int64(4*floats))
}

// inGuards makes memory whose middle is registered as symmetric. guards says
// whether what is around it is as it was.
func (r *rank) inGuards(floats, guard int) (p cuda.Ptr, guards func() error, done func() error, err error) {
	m, err := r.driver.CreateMemory(r.ctx, r.Rank(), int64(4*(floats+2*guard)))
	if err != nil {
		return 0, nil, nil, err
	}
	p = m.Address + cuda.Ptr(4*guard)
	fill := r.fill(m.Address, floats+2*guard, 77)
	guards = func() error {
		before, err1 := r.read(m.Address, guard)
		after, err2 := r.read(p+cuda.Ptr(4*floats), guard)
		return errors.Join(err1, err2, equal(before, repeated(77, guard)), equal(after, repeated(77, guard)))
	}
	done = func() error { return r.driver.Unmap(r.ctx, m) }
	return p, guards, done, errors.Join(fill, r.RegisterSymmetric(pointer(p), int64(4*floats)))
}

// verdict returns the error of a stream's operations, once they have ended.
func (r *rank) verdict(err error) error {
	if err == nil {
		err = r.sync()
	}
	if err == nil {
		return errors.New("nobody noticed")
	}
	return err
}

// meeting returns a barrier for ranks whose communicator is aborted: a call returns when
// all have called.
func meeting(n int) func() error {
	var all sync.WaitGroup
	all.Add(n)
	met := make(chan struct{})
	go func() {
		all.Wait()
		close(met)
	}()
	return func() error {
		all.Done()
		select {
		case <-met:
			return nil
		case <-time.After(20 * time.Second):
			return errors.New("not all ranks came")
		}
	}
}

// block returns a rank's send data: count elements of its ramp, from an index on.
func block(rank, from, count int) []float32 { return ramp(rank, from+count)[from:] }

func repeated(v float32, n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = v
	}
	return list
}
