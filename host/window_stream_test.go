package host_test

import (
	"context"
	"errors"
	"testing"

	"github.com/shunt-ccl/shunt/cuda"
)

// What a window does in a stream that is captured becomes a graph, and nothing
// happens before that is launched: so it is in that stream.
func TestAWindowsOperationsRunInTheStreamGiven(t *testing.T) {
	const n, count = 2, 64
	deviceWorld(t, n, func(r *rank) error {
		w, err := r.NewWindow(context.Background(), count*4)
		if err != nil {
			return err
		}
		b, done := r.buffers(count, count)
		peer := 1 - r.Rank()
		in, local := w.On(r), cuda.Ptr(uintptr(w.Local()))
		err = errors.Join(r.Barrier(r), r.sync(), r.driver.BeginCapture(r.ctx, r.stream))
		err = errors.Join(err, in.Put(peer, 0, pointer(b[0]), count*4), in.Signal(peer), in.Wait(peer, 1),
			in.Get(peer, 0, pointer(b[1]), count*4))
		graph, ended := r.driver.EndCapture(r.ctx, r.stream)
		if err = errors.Join(err, ended); err != nil {
			return err
		}
		exec, err := r.driver.Instantiate(r.ctx, graph)
		if err != nil {
			return err
		}
		err = r.expect(local, make([]float32, count)) // nothing has run
		err = errors.Join(err, r.Barrier(r), r.driver.LaunchGraph(r.ctx, exec, r.stream), r.sync())
		err = errors.Join(err, r.expect(local, ramp(peer, count)), r.expect(b[1], ramp(r.Rank(), count)))
		return done(errors.Join(err, r.Barrier(r), r.sync(), r.driver.DestroyGraph(graph), r.driver.DestroyGraphExec(exec),
			w.Close()))
	})
}
