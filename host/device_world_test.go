package host_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// machine is the drivers of a job's ranks, by device: each rank has one of its
// own, as a process has, and uses another device.
var machine struct {
	sync.Mutex
	drivers map[int]*cudatest.Driver
}

// onMachine is the transport that host tests register: it opens endpoints on the
// driver of the rank's device.
var onMachine = cudaipctest.Transport{Drivers: func(device int) cuda.Driver {
	machine.Lock()
	defer machine.Unlock()
	return machine.drivers[device]
}}

// gpus makes a machine of n devices for one test, and checks at its end that
// nothing was left on any of them.
func gpus(t testing.TB, n int) []*cudatest.Driver {
	t.Helper()
	devices := make([]int, n)
	for i := range devices {
		devices[i] = i
	}
	return gpusOf(t, devices, cudatest.Options{Devices: n})
}

// gpusOf returns the drivers of ranks on the given devices of a machine.
func gpusOf(t testing.TB, devices []int, o cudatest.Options) []*cudatest.Driver {
	t.Helper()
	drivers := make([]*cudatest.Driver, len(devices))
	byDevice := map[int]*cudatest.Driver{}
	o.Kernels = cudaipctest.Kernels()
	maps.Copy(o.Kernels, nccltest.Kernels())
	for i, device := range devices {
		drivers[i] = cudatest.New(o)
		byDevice[device] = drivers[i]
	}
	machine.Lock()
	machine.drivers = byDevice
	machine.Unlock()
	t.Cleanup(func() {
		for i, d := range drivers {
			if leaks := d.Leaks(); len(leaks) > 0 {
				t.Errorf("device %d still has %v", i, leaks)
			}
			for _, hazard := range d.Hazards() {
				t.Errorf("device %d: %s", i, hazard)
			}
			d.Close()
		}
	})
	return drivers
}

// rank is one rank's communicator and its GPU.
type rank struct {
	*host.Communicator
	driver *cudatest.Driver
	ctx    cuda.Context
	stream cuda.Stream
	all    *company
}

// company is the ranks of a world in this process.
type company struct {
	mu    sync.Mutex
	here  sync.Cond
	ranks int // whose bodies run
	came  int
	round int
}

// meet returns once all have called it whose bodies run. On nil, of a part of the ranks, it returns at once.
func (c *company) meet() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	round := c.round
	c.came++
	c.settle()
	for c.round == round {
		c.here.Wait()
	}
}

func (c *company) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ranks--
	c.settle()
}

func (c *company) settle() {
	if c.came >= c.ranks {
		c.came, c.round = 0, c.round+1
		c.here.Broadcast()
	}
}

// Handle makes a rank's stream a host.Stream.
func (r *rank) Handle() unsafe.Pointer { return pointer(cuda.Ptr(r.stream)) }

func pointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// floats allocates device memory and fills it.
func (r *rank) floats(values []float32) (cuda.Ptr, error) {
	p, err := r.driver.Alloc(r.ctx, max(int64(4*len(values)), 4))
	if err != nil {
		return 0, err
	}
	return p, r.driver.Write(r.ctx, p, bytesOf(values))
}

func (r *rank) read(p cuda.Ptr, n int) ([]float32, error) {
	values := make([]float32, n)
	return values, r.driver.Read(r.ctx, bytesOf(values), p)
}

// bytesOf returns the memory of values.
func bytesOf(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}

func (r *rank) free(ps ...cuda.Ptr) (err error) {
	for _, p := range ps {
		err = errors.Join(err, r.driver.Free(r.ctx, p))
	}
	return err
}

// sync waits for the rank's stream, also when the communicator is closed.
func (r *rank) sync() error {
	if err := r.Synchronize(r); plugin.CodeOf(err) != plugin.Closed {
		return err
	}
	return r.driver.SynchronizeStream(r.ctx, r.stream)
}

// meet waits until every rank's stream has come here, and its caller: what a rank does next fails no other here.
func (r *rank) meet() error {
	err := errors.Join(r.Barrier(r), r.sync())
	r.all.meet()
	return err
}

// settle has the memory made that longer messages need, so that a test counts only what it does itself.
func (r *rank) settle() error {
	const count = 8192
	b, done := r.buffers(r.World()*count, count)
	err := r.ReduceScatter(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r)
	return done(errors.Join(err, r.sync()))
}

// deviceWorld runs body on every rank of a communicator on CUDA memory.
func deviceWorld(t *testing.T, n int, body func(r *rank) error) {
	t.Helper()
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, n), nil, body)...))
}

// deviceErrors is deviceWorld for bodies and inits that are meant to fail.
func deviceErrors(t testing.TB, drivers []*cudatest.Driver, adjust func(rank int, o *host.Options),
	body func(r *rank) error) []error {
	t.Helper()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	errs := make([]error, len(drivers))
	all := &company{ranks: len(drivers)}
	all.here.L = &all.mu
	var wg sync.WaitGroup
	for i := range drivers {
		wg.Go(func() {
			defer all.leave()
			errs[i] = deviceRank(id, i, drivers, all, adjust, body)
		})
	}
	wg.Wait()
	return errs
}

func deviceRank(id bootstrap.UniqueID, i int, drivers []*cudatest.Driver, all *company,
	adjust func(int, *host.Options), body func(*rank) error) (err error) {
	o := options(id, i, len(drivers))
	o.Transports, o.Memory, o.Device, o.Driver = []string{"builtin:cudaipc"}, plugin.MemoryKindCuda, i, drivers[i]
	if adjust != nil {
		adjust(i, &o)
	}
	c, err := host.Init(context.Background(), o)
	if err != nil {
		return err
	}
	r := &rank{Communicator: c, driver: drivers[i], all: all}
	if r.ctx, err = r.driver.Retain(i); err == nil {
		defer func() { err = errors.Join(err, r.driver.Release(i)) }()
		if r.stream, err = r.driver.NewStream(r.ctx, 0); err == nil {
			err = body(r)
			err = errors.Join(err, c.Close(), r.driver.DestroyStream(r.ctx, r.stream))
		}
	}
	return err
}

func TestDeviceAllReduce(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			deviceWorld(t, n, func(r *rank) error {
				for _, count := range []int{1, 1000, 300_000} {
					if err := deviceSum(r, count); err != nil {
						return fmt.Errorf("%d elements: %w", count, err)
					}
				}
				return nil
			})
		})
	}
}

// deviceSum runs one all_reduce, out of place, and checks it.
func deviceSum(r *rank, count int) (err error) {
	send, err := r.floats(ramp(r.Rank(), count))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.free(send)) }()
	recv, err := r.floats(make([]float32, count))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.free(recv)) }()
	if err := r.AllReduce(pointer(send), pointer(recv), int64(count), plugin.Float32, plugin.OpSum, r); err != nil {
		return err
	}
	if err := r.sync(); err != nil {
		return err
	}
	got, err := r.read(recv, count)
	if err != nil {
		return err
	}
	want := make([]float32, count)
	for p := range r.World() {
		for i, v := range ramp(p, count) {
			want[i] += v
		}
	}
	return equal(got, want)
}

// eventually calls f until it is true.
func eventually(what string, f func() bool) error {
	deadline := time.Now().Add(10 * time.Second)
	for !f() {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// buffers allocates device memory with one float for each element; done frees all of it.
func (r *rank) buffers(counts ...int) (ps []cuda.Ptr, done func(error) error) {
	var failed error
	for i, n := range counts {
		values := make([]float32, n)
		if i == 0 {
			values = ramp(r.Rank(), n)
		}
		p, err := r.floats(values)
		failed = errors.Join(failed, err)
		ps = append(ps, p)
	}
	return ps, func(err error) error { return errors.Join(failed, err, r.sync(), r.free(ps...)) }
}

// expect compares device memory with what it should be.
func (r *rank) expect(p cuda.Ptr, want []float32) error {
	if err := r.sync(); err != nil {
		return err
	}
	got, err := r.read(p, len(want))
	return errors.Join(err, equal(got, want))
}
