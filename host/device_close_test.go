package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// Close returns while a kernel of this rank waits for a peer, which may only come when this thread goes on: a kernel of
// the communicator that is closed, or of another one on the same GPU. The kernel ends well when the peer does come.
func TestDeviceCloseBesideAKernelThatWaitsForAPeer(t *testing.T) {
	for name, another := range map[string]bool{"its own": false, "another's": true} {
		t.Run(name, func(t *testing.T) {
			drivers := gpusOf(t, []int{0, 1}, cudatest.Options{Devices: 2, HostFreesWait: true})
			adjust := func(_ int, o *host.Options) { o.Timeout = 30 * time.Second }
			errs := deviceErrors(t, drivers, adjust, func(r *rank) error { return closesBesideAKernel(r, another) })
			require.NoError(t, errors.Join(errs...))
		})
	}
}

func closesBesideAKernel(r *rank, another bool) error {
	const n = 10
	b, done := r.buffers(n, n)
	reduce := func() error {
		return r.AllReduce(pointer(b[0]), pointer(b[1]), n, plugin.Float32, plugin.OpSum, r)
	}
	err := errors.Join(r.fill(b[0], n, 1+float32(r.Rank())), reduce(), r.sync(), r.fill(b[1], n, 0))
	closed := r.Communicator
	if another {
		var failed error
		closed, failed = r.Split(context.Background(), 0, 0)
		err = errors.Join(err, failed)
	}
	if err = errors.Join(err, r.meet()); err != nil {
		return err
	}
	if r.Rank() == 0 {
		began := time.Now()
		err = errors.Join(reduce(), closed.Close())
		if took := time.Since(began); took > 15*time.Second {
			err = errors.Join(err, fmt.Errorf("Close took %v", took))
		}
	}
	r.all.meet()
	if r.Rank() == 1 {
		err = errors.Join(err, reduce())
	}
	err = errors.Join(err, r.driver.SynchronizeStream(r.ctx, r.stream))
	if got, failed := r.read(b[1], n); failed != nil || got[0] != 3 || got[n-1] != 3 {
		err = errors.Join(err, failed, fmt.Errorf("the result is %v", got))
	}
	r.all.meet()
	return done(errors.Join(err, closed.Close(), r.Close(), host.Collect()))
}
