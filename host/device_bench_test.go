package host_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// blind forgets what is put into streams, once it is told to.
type blind struct {
	*cudatest.Driver
	eyes atomic.Bool
}

func (d *blind) Submit(ctx cuda.Context, batch *cuda.Batch) (int, cuda.Capture, error) {
	if d.eyes.Load() {
		return len(batch.Work), cuda.Capture{}, nil
	}
	return d.Driver.Submit(ctx, batch)
}

// BenchmarkDeviceAllReduce8B is what a small operation on a GPU takes of the
// calling thread besides the driver. It must not allocate.
func BenchmarkDeviceAllReduce8B(b *testing.B) {
	drivers := gpus(b, 2)
	first := &blind{Driver: drivers[0]}
	done := make(chan struct{})
	errs := deviceErrors(b, drivers, func(rank int, o *host.Options) {
		if rank == 0 {
			o.Driver = first
		}
	}, func(r *rank) error {
		if err := errors.Join(deviceSum(r, 2), deviceSum(r, 2)); err != nil {
			return err
		}
		if r.Rank() != 0 {
			<-done
			return nil
		}
		defer close(done)
		x, err := r.floats([]float32{1, 2})
		if err != nil {
			return err
		}
		first.eyes.Store(true)
		b.ReportAllocs()
		for b.Loop() {
			if err := r.AllReduce(pointer(x), pointer(x), 2, plugin.Float32, plugin.OpSum, r); err != nil {
				return err
			}
		}
		first.eyes.Store(false)
		return r.free(x)
	})
	require.NoError(b, errors.Join(errs...), fmt.Sprint(len(errs)))
}
