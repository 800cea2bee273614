package host_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// buffersOf is the memory of one rank's calls.
type buffersOf struct {
	*rank
	send, recv cuda.Ptr
}

func (b buffersOf) allReduce(count int64) error {
	return b.AllReduce(pointer(b.send), pointer(b.recv), count, plugin.Float32, plugin.OpSum, b)
}

func (b buffersOf) broadcast(count int64) error {
	return b.Broadcast(pointer(b.send), pointer(b.recv), count, plugin.Float32, 0, b)
}

func (b buffersOf) operation(collective plugin.Collective, count int64, peer int) host.Operation {
	return host.Operation{Collective: collective, Send: pointer(b.send), Recv: pointer(b.recv), Count: count,
		DType: plugin.Float32, Root: peer, Stream: b}
}

// grouped sends to some ranks and receives from some, so many messages each.
func (b buffersOf) grouped(messages int, to, from []int) error {
	var g host.Group
	for range messages {
		for _, peer := range to {
			g.Add(b.operation(plugin.Send, 1000, peer))
		}
		for _, peer := range from {
			g.Add(b.operation(plugin.Recv, 1000, peer))
		}
	}
	return g.Run(b.Communicator)
}

// ahead has the last of three ranks call, and then free memory, which waits for what the call has put into its stream
// and keeps everything else in that process from calling the driver. Only then the others call.
func ahead(t *testing.T, last, others func(b buffersOf) error) {
	t.Helper()
	const n, room = 3, 3 << 15
	drivers := gpus(t, n)
	waits := make(chan struct{})
	errs := deviceErrors(t, drivers, func(_ int, o *host.Options) { o.Timeout = 4 * time.Second }, func(r *rank) error {
		p, done := r.buffers(room, room, 1)
		b := buffersOf{r, p[0], p[1]}
		// Signatures on which the ranks agree in their first call, which needs no memory yet.
		if err := errors.Join(b.allReduce(2), b.broadcast(2), r.meet()); err != nil {
			return done(err)
		}
		if r.Rank() != n-1 {
			<-waits
			return done(errors.Join(others(b), r.sync()))
		}
		err := last(b)
		r.driver.FreesWait()
		freed := make(chan error)
		go func() { freed <- r.free(p[2]) }()
		err = errors.Join(err, eventually("the free to wait", r.driver.Freeing))
		close(waits)
		return errors.Join(err, <-freed, r.sync(), r.free(p[:2]...))
	})
	require.NoError(t, errors.Join(errs...))
}

// Ranks that exchange messages ask no other rank for memory: its process may be in a call of the driver that waits for
// what those ranks call next.
func TestDeferredMemoryBesideARankThatTakesNoPart(t *testing.T) {
	for name, exchange := range map[string]func(b buffersOf) error{
		"a message": func(b buffersOf) error {
			if b.Rank() == 0 {
				return b.Send(pointer(b.send), 1000, plugin.Float32, 1, b)
			}
			return b.Recv(pointer(b.recv), 1000, plugin.Float32, 0, b)
		},
		"a group of one end": func(b buffersOf) error {
			if b.Rank() == 0 {
				return b.grouped(1, []int{1}, nil)
			}
			return b.grouped(1, nil, []int{0})
		},
		"a group in rounds": func(b buffersOf) error {
			return b.grouped(3, []int{1 - b.Rank(), b.Rank()}, []int{b.Rank(), 1 - b.Rank()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ahead(t, func(b buffersOf) error { return b.allReduce(2) },
				func(b buffersOf) error { return errors.Join(exchange(b), b.allReduce(2)) })
		})
	}
}

// A rank that has called gives its memory to ranks that call later, whatever it does meanwhile.
func TestDeferredMemoryOfARankThatHasGoneOn(t *testing.T) {
	const count = 1 << 15
	counts := []int64{count, count, count}
	for name, call := range map[string]func(b buffersOf) error{
		"all_reduce": func(b buffersOf) error { return b.allReduce(count) },
		"broadcast":  func(b buffersOf) error { return b.broadcast(count) },
		"all_to_all_v": func(b buffersOf) error {
			return b.AllToAllV(pointer(b.send), counts, nil, pointer(b.recv), counts, nil, plugin.Float32, b)
		},
		"a group": func(b buffersOf) error { return b.grouped(2, []int{0, 1, 2}, []int{2, 1, 0}) },
	} {
		t.Run(name, func(t *testing.T) { ahead(t, call, call) })
	}
}

// late has rank 0 send to the last of three ranks, whose driver makes no memory before rank 0 has returned: the free of
// another thread waits there for a stream.
func late(t *testing.T, timeout time.Duration, meanwhile func(r *rank)) []error {
	t.Helper()
	drivers := gpus(t, 3)
	waits, returned := make(chan struct{}), make(chan struct{})
	return deviceErrors(t, drivers, func(_ int, o *host.Options) { o.Timeout = timeout }, func(r *rank) error {
		p, done := r.buffers(1000, 1)
		if err := r.meet(); err != nil {
			return done(err)
		}
		switch r.Rank() {
		case 0:
			<-waits
			err := r.Send(pointer(p[0]), 1000, plugin.Float32, 2, r)
			close(returned)
			return errors.Join(err, r.free(p...))
		case 1:
			<-waits
			meanwhile(r)
			<-returned
			err := eventually("a failure", func() bool { return r.Err() != nil })
			return errors.Join(r.Err(), err, r.free(p...))
		}
		word, err := r.driver.AllocHost(r.ctx, 8)
		if err != nil {
			return done(err)
		}
		err = r.driver.WaitValue(r.ctx, r.stream, word.Device, 1)
		r.driver.FreesWait()
		freed := make(chan error)
		go func() { freed <- r.free(p[1]) }()
		err = errors.Join(err, eventually("the free to wait", r.driver.Freeing))
		close(waits)
		<-returned
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&r.driver.Bytes(word.Device, 8)[0])), 1)
		err = errors.Join(err, <-freed, eventually("a failure", func() bool { return r.Err() != nil }))
		return errors.Join(r.Err(), err, r.free(p[0]), r.driver.FreeHost(r.ctx, word))
	})
}

// The error of a rank that waited for a peer's memory says whose process has not made it, and what may keep it.
func TestDeferredMemoryOfAPeerThatIsLate(t *testing.T) {
	for rank, err := range late(t, 1500*time.Millisecond, func(*rank) {}) {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "(region 3 of rank 2): rank 0 got no response from peer rank 2 (pid ", "rank %d", rank)
		require.ErrorContains(t, err, "for 1.5s while its process was making the memory; cudaFree there ", "rank %d", rank)
		require.ErrorContains(t, err, "; that rank called ", "rank %d", rank)
		var e *plugin.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 2, e.Rank, "rank %d", rank)
	}
}

// A rank that waits for a peer's memory learns at once that the communicator has failed.
func TestDeferredMemoryOfACommunicatorThatFails(t *testing.T) {
	began := time.Now()
	for rank, err := range late(t, time.Minute, func(r *rank) {
		time.Sleep(100 * time.Millisecond) // rank 0 has asked by then
		r.Abort("enough")
	}) {
		require.ErrorIs(t, err, plugin.Aborted, "rank %d", rank)
		require.ErrorContains(t, err, "rank 1 aborted: enough", "rank %d", rank)
	}
	require.Less(t, time.Since(began), 20*time.Second)
}
