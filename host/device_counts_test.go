package host_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// splits has the number of elements that each rank sends to each other.
type splits [][]int64

// splitsOf draws the splits of a call: messages of up to most elements, and a third
// of them empty.
func splitsOf(world, call int, most int64) splits {
	s := make(splits, world)
	for from := range s {
		s[from] = make([]int64, world)
		for to := range s[from] {
			h := uint64(call*10_000+from*100+to+1) * 0x9e3779b97f4a7c15
			if h>>40%3 != 0 {
				s[from][to] = int64(h >> 20 % uint64(most+1))
			}
		}
	}
	return s
}

// arrays returns a rank's arguments: send counts and displacements, receive counts and
// displacements. Blocks are packed, or lie in reverse order with gaps between them.
func (s splits) arrays(rank int, placed bool) (arrays [4][]int64) {
	world := len(s)
	for side := range 2 {
		counts, displs := make([]int64, world), make([]int64, world)
		at := int64(0)
		for i := range world {
			p := i
			if placed {
				p = world - 1 - i
				at += int64(1 + p)
			}
			counts[p] = s[rank][p]
			if side == 1 {
				counts[p] = s[p][rank]
			}
			displs[p] = at
			at += counts[p]
		}
		arrays[2*side], arrays[2*side+1] = counts, displs
	}
	return arrays
}

// exchange is a rank's memory for all_to_all_v with counts on the device.
type exchange struct {
	*rank
	dtype    plugin.DType
	capacity int64 // elements of send and of receive memory
	send     cuda.Ptr
	recv     cuda.Ptr
	counts   cuda.Ptr // the four arrays, one behind the other
}

// exchange makes it for blocks of up to so many elements.
func (r *rank) exchange(dtype plugin.DType, most int64) (x *exchange, err error) {
	world := int64(r.World())
	x = &exchange{rank: r, dtype: dtype, capacity: world * (most + world)}
	for p, b := range map[*cuda.Ptr][]byte{&x.send: content(x.nothing(), r.Rank(), 0), &x.recv: x.nothing(),
		&x.counts: make([]byte, 32*world)} {
		var failed error
		if *p, failed = r.driver.Alloc(r.ctx, int64(len(b))); failed == nil {
			failed = r.driver.Write(r.ctx, *p, b)
		}
		err = errors.Join(err, failed)
	}
	return x, err
}

func (x *exchange) free() error { return x.rank.free(x.send, x.recv, x.counts) }

// content fills b with the bytes of a rank's send memory from one on, which differ by rank and place.
func content(b []byte, rank int, from int64) []byte {
	for i := range b {
		at := int(from) + i
		b[i] = byte(100*rank + at + at>>8*7 + at>>16*3)
	}
	return b
}

// nothing returns the bytes of receive memory before a call.
func (x *exchange) nothing() []byte {
	return bytes.Repeat([]byte{0xA5}, int(x.capacity*x.dtype.Bytes()))
}

// expected returns the bytes that it must hold after one.
func (x *exchange) expected(s splits, placed bool) []byte {
	want, size := x.nothing(), x.dtype.Bytes()
	mine := s.arrays(x.Rank(), placed)
	for p := range s {
		theirs := s.arrays(p, placed)
		from, to, n := theirs[1][x.Rank()], mine[3][p], mine[2][p]
		content(want[to*size:(to+n)*size], p, from*size)
	}
	return want
}

func packed(arrays [4][]int64) (b []byte) {
	for _, array := range arrays {
		for _, n := range array {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	return b
}

// put writes the arrays, now.
func (x *exchange) put(arrays [4][]int64) error {
	return x.driver.Write(x.ctx, x.counts, packed(arrays))
}

// given returns the call's counts on the device. Packed blocks need no displacements.
func (x *exchange) given(placed bool) host.DeviceCounts {
	array := func(i int) unsafe.Pointer { return pointer(x.counts + cuda.Ptr(8*i*x.World())) }
	d := host.DeviceCounts{SendCounts: array(0), RecvCounts: array(2), SendCapacity: x.capacity, RecvCapacity: x.capacity}
	if placed {
		d.SendDispls, d.RecvDispls = array(1), array(3)
	}
	return d
}

func (x *exchange) call(placed bool) error {
	return x.AllToAllVOnDevice(pointer(x.send), pointer(x.recv), x.given(placed), x.dtype, x)
}

// hostCall makes the same call with counts on the host.
func (x *exchange) hostCall(s splits, placed bool) error {
	a := s.arrays(x.Rank(), placed)
	if !placed {
		a[1], a[3] = nil, nil
	}
	return x.AllToAllV(pointer(x.send), a[0], a[1], pointer(x.recv), a[2], a[3], x.dtype, x)
}

// check compares receive memory, and clears it for the next call.
func (x *exchange) check(want []byte) error {
	got := make([]byte, len(want))
	if err := errors.Join(x.sync(), x.driver.Read(x.ctx, got, x.recv),
		x.driver.Write(x.ctx, x.recv, x.nothing())); err != nil {
		return err
	}
	return equal(got, want)
}

// once makes a call and checks it.
func (x *exchange) once(s splits, placed bool) error {
	return errors.Join(x.put(s.arrays(x.Rank(), placed)), x.call(placed), x.check(x.expected(s, placed)))
}

func TestDeviceCountsMoveWhatTheySay(t *testing.T) {
	for _, n := range fewer(1, 2, 3, 4) {
		for _, dtype := range fewer(plugin.Uint8, plugin.Float32, plugin.Bfloat16, plugin.Float64) {
			t.Run(fmt.Sprintf("world %d of %s", n, dtype), func(t *testing.T) {
				sizes := []int64{5, 4099, 20_000}
				if dtype == plugin.Float64 {
					sizes = []int64{200_000} // long messages, which are stored where their receiver offers
				}
				deviceWorld(t, n, func(r *rank) error {
					x, err := r.exchange(dtype, sizes[len(sizes)-1])
					if err != nil {
						return err
					}
					for call := range 2 * len(sizes) {
						placed := call%2 == 1
						if err := x.once(splitsOf(n, call, sizes[call/2]), placed); err != nil {
							return fmt.Errorf("call %d: %w", call, err)
						}
					}
					nothing := splitsOf(n, 0, 0)
					return errors.Join(x.once(nothing, false), x.once(nothing, true), x.free())
				})
			})
		}
	}
}

// Counts may be numbers of rows, whose length each rank chooses: the two ends of a message agree in bytes. A count is
// refused where its rows reach past the capacity, which is in elements.
func TestDeviceCountsOfRows(t *testing.T) {
	for _, most := range []int64{700, 40_000} { // short and long messages
		errs := deviceErrors(t, gpus(t, 3), nil, func(r *rank) error {
			x, err := r.exchange(plugin.Float64, 6*most)
			if err != nil {
				return err
			}
			unit := int64(1 + r.Rank()) // all divide 6
			call := func(arrays [4][]int64, rows int64) error {
				for _, array := range arrays {
					for i := range array {
						array[i] /= unit
					}
				}
				return errors.Join(x.put(arrays), r.Do(&host.Operation{Collective: plugin.AllToAllV, Send: pointer(x.send),
					Recv: pointer(x.recv), Count: rows, DType: x.dtype, DeviceCounts: x.given(false), Stream: x}))
			}
			for i := range 4 {
				s := splitsOf(3, i, most)
				for _, row := range s {
					for to := range row {
						row[to] *= 6
					}
				}
				if err := errors.Join(call(s.arrays(r.Rank(), false), unit), x.check(x.expected(s, false))); err != nil {
					return fmt.Errorf("call %d: %w", i, err)
				}
			}
			r.all.meet() // a rank that is ahead fails the communicator
			past := splits{{0, 6, 0}, {0, 0, 0}, {0, 0, 0}}.arrays(r.Rank(), false)
			rows := unit
			if r.Rank() == 1 {
				past[2][0] = 2 * unit // of half the memory and an element
				rows = x.capacity/2 + 1
			}
			verdict := call(past, rows) // another rank's may have failed it already
			if verdict == nil {
				verdict = r.told(0)
			}
			if err := errors.Join(r.Close(), x.free()); err != nil {
				return err
			}
			return verdict
		})
		for rank, err := range errs {
			require.ErrorIs(t, err, plugin.InvalidArgument, "rank %d", rank)
			require.ErrorContains(t, err, "counts in device memory on rank 1: receive count 2 at displacement 0 for rank 0 "+
				"reaches past the capacity of 1", "rank %d", rank)
		}
	}
}

// staged holds the arrays of several calls in memory of the device.
func (x *exchange) staged(calls []splits, placed bool) (at []cuda.Ptr, done func() error, err error) {
	var all []byte
	for _, s := range calls {
		all = append(all, packed(s.arrays(x.Rank(), placed))...)
	}
	p, err := x.driver.Alloc(x.ctx, int64(len(all)))
	if err != nil {
		return nil, nil, err
	}
	for i := range calls {
		at = append(at, p+cuda.Ptr(32*i*x.World()))
	}
	return at, func() error { return x.rank.free(p) }, x.driver.Write(x.ctx, p, all)
}

// compute puts counts in place in stream order, as a kernel would that computes them.
func (x *exchange) compute(from cuda.Ptr) error {
	return x.driver.Copy(x.ctx, x.counts, from, int64(32*x.World()), x.stream)
}

// receiving returns receive memory for each call. check compares all of it.
func (x *exchange) receiving(calls []splits, placed bool) (recv []cuda.Ptr, check func() error, err error) {
	for range calls {
		p, failed := x.driver.Alloc(x.ctx, int64(len(x.nothing())))
		if failed == nil {
			failed = x.driver.Write(x.ctx, p, x.nothing())
		}
		recv, err = append(recv, p), errors.Join(err, failed)
	}
	return recv, func() (err error) {
		got := make([]byte, len(x.nothing()))
		for i, s := range calls {
			if err = errors.Join(err, x.driver.Read(x.ctx, got, recv[i])); err == nil &&
				!bytes.Equal(got, x.expected(s, placed)) {
				err = fmt.Errorf("call %d: %w", i, errWrong)
			}
		}
		return errors.Join(err, x.rank.free(recv...))
	}, err
}

// The host waits for nothing: what is before a call in its stream says its counts.
func TestDeviceCountsAreThoseOfTheStream(t *testing.T) {
	const n, most = 3, 2000
	calls := []splits{splitsOf(n, 1, most), splitsOf(n, 2, 3), splitsOf(n, 3, 0), splitsOf(n, 4, most)}
	deviceWorld(t, n, func(r *rank) error {
		x, err := r.exchange(plugin.Int32, most)
		if err != nil {
			return err
		}
		from, done, err := x.staged(calls, true)
		if err != nil {
			return err
		}
		recv, check, err := x.receiving(calls, true)
		for i := range calls {
			err = errors.Join(err, x.compute(from[i]), x.AllToAllVOnDevice(pointer(x.send), pointer(recv[i]), x.given(true),
				x.dtype, x))
		}
		return errors.Join(err, x.sync(), check(), done(), x.free())
	})
}

// A replay uses the counts that there are when it runs, whatever the graph was
// captured with, and eager calls come in between.
func TestDeviceCountsAreThoseOfEachReplay(t *testing.T) {
	const n, most, replays = 2, 1500, 5
	var calls []splits
	for i := range replays {
		calls = append(calls, splitsOf(n, i, most))
	}
	deviceWorld(t, n, func(r *rank) error {
		x, err := r.exchange(plugin.Float32, most)
		if err != nil {
			return err
		}
		from, done, err := x.staged(calls, false)
		if err != nil {
			return err
		}
		// The first call of its kind is captured.
		g, err := x.graph(func() error { return x.call(false) })
		if err != nil {
			return err
		}
		if err := x.check(x.nothing()); err != nil {
			return fmt.Errorf("a capture ran: %w", err)
		}
		for i, s := range calls {
			if err := errors.Join(x.compute(from[i]), g.launch(), x.check(x.expected(s, false))); err != nil {
				return fmt.Errorf("replay %d: %w", i, err)
			}
			if err := x.once(splitsOf(n, 100+i, most), true); err != nil {
				return fmt.Errorf("eager call after replay %d: %w", i, err)
			}
		}
		return errors.Join(g.destroy(), done(), x.free())
	})
}

// Calls with counts on either side follow each other, packed and placed.
func TestDeviceCountsTakeTurnsWithThoseOfTheHost(t *testing.T) {
	const n, most = 3, 1000
	deviceWorld(t, n, func(r *rank) error {
		x, err := r.exchange(plugin.Float16, most)
		if err != nil {
			return err
		}
		for call := range 12 {
			s, placed := splitsOf(n, call, most), call%4 > 1
			if call%2 == 0 {
				err = x.once(s, placed)
			} else {
				err = errors.Join(x.hostCall(s, placed), x.check(x.expected(s, placed)))
			}
			if err != nil {
				return fmt.Errorf("call %d: %w", call, err)
			}
		}
		return x.free()
	})
}

// Calls that are started, and those among the parts of a thread that has several ranks.
func TestDeviceCountsHoweverTheCallIsMade(t *testing.T) {
	const n, most = 3, 300
	calls := []splits{splitsOf(n, 1, most), splitsOf(n, 2, most), splitsOf(n, 3, most)}
	deviceWorld(t, n, func(r *rank) error {
		x, err := r.exchange(plugin.Int64, most)
		if err != nil {
			return err
		}
		from, done, err := x.staged(calls, true)
		if err != nil {
			return err
		}
		recv, check, err := x.receiving(calls, true)
		if err != nil {
			return err
		}
		operation := func(i int) host.Operation {
			given := x.given(true)
			for _, p := range []*unsafe.Pointer{&given.SendCounts, &given.SendDispls, &given.RecvCounts, &given.RecvDispls} {
				*p = unsafe.Add(*p, int64(from[i])-int64(x.counts))
			}
			return host.Operation{Collective: plugin.AllToAllV, Send: pointer(x.send), Recv: pointer(recv[i]), DType: x.dtype,
				DeviceCounts: given, Stream: r}
		}
		started := operation(0)
		request, err := r.Start(&started)
		if err == nil {
			err = request.Wait(t.Context())
		}
		err = errors.Join(err, host.RunTogether(host.Part{Comm: r.Communicator,
			Operations: []host.Operation{operation(1), operation(2)}}))
		return errors.Join(err, x.sync(), check(), done(), x.free())
	})
}

// A call with counts on the device allocates nothing.
func TestDeviceCountsCostNoMemory(t *testing.T) {
	drivers := gpus(t, 2)
	first := &blind{Driver: drivers[0]}
	done := make(chan struct{})
	allocations := -1.0
	errs := deviceErrors(t, drivers, func(rank int, o *host.Options) {
		if rank == 0 {
			o.Driver = first
		}
	}, func(r *rank) error {
		x, err := r.exchange(plugin.Float32, 10)
		if err == nil {
			err = x.once(splitsOf(2, 1, 10), true)
		}
		if r.Rank() != 0 {
			<-done
			return errors.Join(err, x.free())
		}
		defer close(done)
		if err != nil {
			return err
		}
		first.eyes.Store(true)
		allocations = testing.AllocsPerRun(200, func() { err = errors.Join(err, x.call(true)) })
		first.eyes.Store(false)
		return errors.Join(err, x.free())
	})
	require.NoError(t, errors.Join(errs...))
	require.Zero(t, allocations)
}
