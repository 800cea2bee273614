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
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// blind drops what is put into streams once a test has set it.
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

// BenchmarkDeviceAllReduce8B measures the time that a small operation on a GPU takes of
// the calling thread besides the driver. It must not allocate.
func BenchmarkDeviceAllReduce8B(b *testing.B) {
	benchmarkDeviceCall(b, func(r *rank) (call, free func() error, err error) {
		x, err := r.floats([]float32{1, 2})
		call = func() error {
			return r.AllReduce(pointer(x), pointer(x), 2, plugin.Float32, plugin.OpSum, r)
		}
		return call, func() error { return r.free(x) }, err
	})
}

// BenchmarkDeviceRegistered8B measures the same where NCCL is there and knows the memory: calls of another transport
// pay a comparison; those of NCCL the search and what the driver is asked, here one in memory.
func BenchmarkDeviceRegistered8B(b *testing.B) {
	path, err := nccltest.Build(b.TempDir(), "-DFAKE_VERSION=22902")
	require.NoError(b, err)
	require.NoError(b, nccltest.Install(path))
	b.Setenv(nccl.Variable, path)
	for _, algo := range []string{"*=cudaipc", "*=nccl,*"} {
		for _, register := range []string{"off", "on"} {
			b.Run(algo+" "+register, func(b *testing.B) {
				b.Setenv(nccl.RegisterVariable, register)
				benchmarkCallWith(b, both(algo), func(r *rank) (call, free func() error, err error) {
					x, err := r.floats([]float32{1, 2})
					call = func() error {
						return r.AllReduce(pointer(x), pointer(x), 2, plugin.Float32, plugin.OpSum, r)
					}
					return call, func() error { return r.free(x) }, err
				})
			})
		}
	}
}

// BenchmarkDeviceAllToAllV measures all_to_all_v with counts on the device, which the
// host does not read, and on the host.
func BenchmarkDeviceAllToAllV(b *testing.B) {
	for _, onDevice := range []bool{true, false} {
		b.Run(fmt.Sprintf("on device %v", onDevice), func(b *testing.B) {
			benchmarkDeviceCall(b, func(r *rank) (call, free func() error, err error) {
				x, err := r.exchange(plugin.Float32, 100)
				counts, a := x.given(false), splitsOf(2, 1, 100).arrays(r.Rank(), false)
				call = func() error {
					if onDevice {
						return x.AllToAllVOnDevice(pointer(x.send), pointer(x.recv), counts, x.dtype, x)
					}
					return x.AllToAllV(pointer(x.send), a[0], nil, pointer(x.recv), a[2], nil, x.dtype, x)
				}
				return call, x.free, errors.Join(err, x.put(a))
			})
		})
	}
}

// benchmarkDeviceCall measures a call on rank 0 of two, whose GPU sees no more of it
// once the first one has prepared it.
func benchmarkDeviceCall(b *testing.B, prepare func(r *rank) (call, free func() error, err error)) {
	benchmarkCallWith(b, func(int, *host.Options) {}, prepare)
}

func benchmarkCallWith(b *testing.B, adjust func(int, *host.Options),
	prepare func(r *rank) (call, free func() error, err error)) {
	drivers := gpus(b, 2)
	first := &blind{Driver: drivers[0]}
	done := make(chan struct{})
	errs := deviceErrors(b, drivers, func(rank int, o *host.Options) {
		adjust(rank, o)
		if rank == 0 {
			o.Driver = first
		}
	}, func(r *rank) error {
		call, free, err := prepare(r)
		if err == nil {
			err = errors.Join(call(), call(), r.sync())
		}
		if r.Rank() != 0 {
			<-done
			return errors.Join(err, free())
		}
		defer close(done)
		if err != nil {
			return err
		}
		first.eyes.Store(true)
		b.ReportAllocs()
		for b.Loop() {
			if err := call(); err != nil {
				return err
			}
		}
		first.eyes.Store(false)
		return free()
	})
	require.NoError(b, errors.Join(errs...), fmt.Sprint(len(errs)))
}
