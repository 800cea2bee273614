// Package job gives a test's rank a communicator, memory to call it with, and on CUDA
// memory the device and a stream.
//
// What lives here is joining and releasing. The calls, and their expected results, are
// the tests'.
package job

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// Request says how ranks join. It is the same for all of them.
type Request struct {
	ID        string // rendezvous, as in host.Options
	Transport string
	Memory    plugin.MemoryKind
	Timeout   time.Duration // 0: the product's own
}

// Job is one rank's part.
type Job struct {
	Comm   *host.Communicator // nil before Join and after Leave
	Bytes  []byte             // memory, or on a device its image
	Device *device.Device     // nil on host memory

	image *device.Image
	rank  int
	world int
}

// New gets the rank of a worker its memory and, for CUDA memory, the device of
// its number.
func New(w *pool.Worker, memory plugin.MemoryKind, bytes int64) (_ *Job, err error) {
	j := &Job{rank: w.Rank, world: w.World}
	if memory != plugin.MemoryKindCuda {
		if bytes > 0 {
			j.Bytes, err = unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		}
		return j, err
	}
	if j.Device, err = device.Open(w.Rank); err != nil {
		return nil, err
	}
	if bytes > 0 {
		if j.image, err = j.Device.NewImage(bytes); err != nil {
			return nil, errors.Join(err, j.Device.Close())
		}
		j.Bytes = j.image.Bytes
	}
	return j, nil
}

// Join makes the communicator.
func (j *Job) Join(ctx context.Context, r Request) error { return j.JoinWithin(ctx, r, 0) }

// JoinWithin is like Join, with a budget of multiprocessors.
func (j *Job) JoinWithin(ctx context.Context, r Request, maxSMs int) (err error) {
	o := host.Options{Rank: j.rank, World: j.world, ID: r.ID, Transports: []string{r.Transport}, Timeout: r.Timeout,
		Memory: r.Memory, MaxSMs: maxSMs}
	if j.Device != nil {
		o.Device, o.Driver = j.Device.Ordinal, j.Device.Driver
	}
	j.Comm, err = host.Init(ctx, o)
	return err
}

// Leave closes the communicator.
func (j *Job) Leave() error {
	if j.Comm == nil {
		return nil
	}
	err := j.Comm.Close()
	j.Comm = nil
	return err
}

// Close leaves and gives memory and device back.
func (j *Job) Close() error {
	err := j.Leave()
	switch {
	case j.Device != nil:
		if j.image != nil {
			err = errors.Join(err, j.image.Free())
		}
		err = errors.Join(err, j.Device.Close())
	case j.Bytes != nil:
		err = errors.Join(err, unix.Munmap(j.Bytes))
	}
	j.Bytes, j.image, j.Device = nil, nil, nil
	return err
}

// Pointer returns the address of the byte at offset, as operations take it.
func (j *Job) Pointer(offset int64) unsafe.Pointer {
	if j.image != nil {
		return j.image.Pointer(offset)
	}
	return unsafe.Pointer(&j.Bytes[offset])
}

// line returns the stream that the job works in; 0 on host memory.
func (j *Job) line() cuda.Stream {
	if j.Device == nil {
		return 0
	}
	return j.Device.Streams[0]
}

// Stream returns the stream for operations; nil on host memory.
func (j *Job) Stream() host.Stream { return device.Stream(j.line()) }

// Push copies Bytes[from:to] to the device, in stream order. On host memory
// there is nothing to do, as for Pull and Settle.
func (j *Job) Push(from, to int64) error {
	if j.image == nil {
		return nil
	}
	return j.image.Part(from, to-from).Push(j.line())
}

// Pull copies from the device into Bytes[from:to], in stream order.
func (j *Job) Pull(from, to int64) error {
	if j.image == nil {
		return nil
	}
	return j.image.Part(from, to-from).Pull(j.line())
}

// Settle waits for the stream and returns what the communicator met meanwhile.
func (j *Job) Settle() error {
	if j.Comm == nil {
		return nil
	}
	return j.Comm.Synchronize(j.Stream())
}

// Sum makes an all_reduce of each rank's number plus one at the beginning of
// the memory, and checks it: the shortest proof that a communicator works.
func (j *Job) Sum(comm *host.Communicator) error {
	send, recv := (*int32)(unsafe.Pointer(&j.Bytes[0])), (*int32)(unsafe.Pointer(&j.Bytes[4]))
	*send, *recv = int32(comm.Rank()+1), -1
	if err := j.Push(0, 8); err != nil {
		return err
	}
	if err := comm.AllReduce(j.Pointer(0), j.Pointer(4), 1, plugin.Int32, plugin.OpSum, j.Stream()); err != nil {
		return err
	}
	if err := j.Pull(0, 8); err != nil {
		return err
	}
	if err := comm.Synchronize(j.Stream()); err != nil {
		return err
	}
	if want := int32(comm.World() * (comm.World() + 1) / 2); *recv != want {
		return fmt.Errorf("sum %d, want %d", *recv, want)
	}
	return nil
}
