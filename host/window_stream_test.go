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
		if err := errors.Join(r.Barrier(r), r.sync()); err != nil {
			return err
		}
		g, err := r.graph(func() error {
			return errors.Join(in.Put(peer, 0, pointer(b[0]), count*4), in.Signal(peer), in.Wait(peer, 1),
				in.Get(peer, 0, pointer(b[1]), count*4))
		})
		if err != nil {
			return err
		}
		err = r.expect(local, make([]float32, count)) // nothing has run
		err = errors.Join(err, r.Barrier(r), g.launch(), r.sync())
		err = errors.Join(err, r.expect(local, ramp(peer, count)), r.expect(b[1], ramp(r.Rank(), count)))
		return done(errors.Join(err, r.Barrier(r), r.sync(), g.destroy(), w.Close()))
	})
}
