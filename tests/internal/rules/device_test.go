package rules

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
)

// synchronizing is a driver whose calls that give memory back wait for
// everything on the device first, as CUDA's may.
type synchronizing struct {
	cuda.Driver
	armed   atomic.Bool
	once    sync.Once
	waiting chan struct{} // closed when the first such call has begun, once armed
}

func (d *synchronizing) wait(c cuda.Context) error {
	if d.armed.Load() {
		d.once.Do(func() { close(d.waiting) })
	}
	return d.Synchronize(c)
}

func (d *synchronizing) Unmap(c cuda.Context, m cuda.Mapping) error {
	return errors.Join(d.wait(c), d.Driver.Unmap(c, m))
}

func (d *synchronizing) UnmapRange(c cuda.Context, r cuda.Range) error {
	return errors.Join(d.wait(c), d.Driver.UnmapRange(c, r))
}

func (d *synchronizing) FreeHost(c cuda.Context, m cuda.HostMemory) error {
	return errors.Join(d.wait(c), d.Driver.FreeHost(c, m))
}

// Rank 0 closes a communicator while a receive of another one waits on the
// device, so giving memory back waits too. What the receive waits for comes only
// after a third communicator was used: no lock that its launch needs may be held
// by the one that frees.
func TestRule08FreeingHoldsUpNoLaunch(t *testing.T) {
	if machine.Real() {
		t.Skip("needs GPUs in memory: there, what frees can be made to wait")
	}
	defer machine.Close()
	const world = 2
	id := "file://" + filepath.Join(t.TempDir(), "meet")
	errs := make([]error, world)
	var all sync.WaitGroup
	for rank := range world {
		all.Go(func() { errs[rank] = freeBesideLaunch(t, id, rank, world) })
	}
	all.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
}

func freeBesideLaunch(t *testing.T, id string, rank, world int) (err error) {
	d, err := device.Open(rank)
	if err != nil {
		return err
	}
	driver := &synchronizing{Driver: d.Driver, waiting: make(chan struct{})}
	image, err := d.NewImage(64)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer func() { err = errors.Join(err, image.Free(), d.Close()) }()
	first, err := host.Init(t.Context(), host.Options{
		Rank: rank, World: world, ID: id, Transports: []string{machine.Builtin}, Timeout: 20 * time.Second,
		Memory: plugin.MemoryKindCuda, Device: rank, Driver: driver,
	})
	if err != nil {
		return err
	}
	var others [2]*host.Communicator
	for i := range others {
		if others[i], err = first.Split(t.Context(), 0, rank); err != nil {
			return errors.Join(err, first.Close())
		}
	}
	closing, used := others[0], others[1]
	waits, works := device.Stream(d.Streams[0]), device.Stream(d.Streams[1])
	sum := func(c *host.Communicator) error {
		return c.AllReduce(image.Pointer(0), image.Pointer(8), 1, plugin.Int32, plugin.OpSum, works)
	}
	// Plans are prepared before.
	err = errors.Join(sum(used), sum(closing), used.Synchronize(works))
	closed := make(chan error, 1)
	if rank == 0 {
		err = errors.Join(err, first.Recv(image.Pointer(16), 1, plugin.Int32, 1, waits))
		driver.armed.Store(true)
		go func() { closed <- closing.Close() }()
		select {
		case <-driver.waiting:
		case closeErr := <-closed:
			err = errors.Join(err, fmt.Errorf("closing waited for nothing: %w", closeErr))
			closed <- nil
		}
	} else {
		closed <- closing.Close()
	}
	err = errors.Join(err, sum(used), used.Synchronize(works))
	if rank == 1 {
		err = errors.Join(err, first.Send(image.Pointer(16), 1, plugin.Int32, 0, waits))
	}
	return errors.Join(err, first.Synchronize(waits), <-closed, used.Close(), first.Close())
}
