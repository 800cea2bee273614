package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// registering makes a library of NCCL be found that registers memory, and turns that on. What NCCL calls undefined
// fails the test.
func registering(t *testing.T, flags ...string) {
	t.Helper()
	path, err := nccltest.Build(t.TempDir(), append([]string{"-DFAKE_VERSION=22902"}, flags...)...)
	require.NoError(t, err)
	require.NoError(t, nccltest.Install(path))
	t.Setenv(nccl.Variable, path)
	t.Setenv(nccl.RegisterVariable, "on")
	nccltest.Violations()
	t.Cleanup(func() {
		assert.Empty(t, nccltest.Violations())
		_, known := nccltest.Registrations()
		assert.Empty(t, known)
	})
}

// knownBy returns the addresses of what NCCL knows of a rank's memory.
func knownBy(r *rank) (list []cuda.Ptr) {
	_, known := nccltest.Registrations()
	for _, k := range known[r.Rank()] {
		list = append(list, cuda.Ptr(k[0]))
	}
	slices.Sort(list)
	return list
}

func knows(r *rank, p cuda.Ptr) bool { return slices.Contains(knownBy(r), p) }

// forgotten waits until NCCL knows nothing from p on any more; a second is the longest that it may take.
func forgotten(r *rank, p cuda.Ptr) error {
	began := time.Now()
	err := eventually("what was freed to be forgotten", func() bool { return !knows(r, p) })
	if took := time.Since(began); err == nil && took > time.Second {
		err = fmt.Errorf("it took %v until what was freed was forgotten", took)
	}
	return err
}

// sumOf runs one all_reduce and checks it.
func sumOf(r *rank, send, recv cuda.Ptr, count int, v float32) error {
	want := make([]float32, count)
	for i := range want {
		want[i] = v * float32(r.World())
	}
	return errors.Join(r.fill(send, count, v), r.fill(recv, count, -1),
		r.AllReduce(pointer(send), pointer(recv), int64(count), plugin.Float32, plugin.OpSum, r), r.expect(recv, want))
}

// overNcclAlone runs body on ranks whose calls all go to NCCL.
func overNcclAlone(t *testing.T, world int, body func(*rank) error) {
	t.Helper()
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, world), both("*=nccl,*"), body)...))
}

// Every rank's memory is registered before the first operation that is given it, as a whole and once; what is freed is
// forgotten within a second, without a call.
func TestMemoryIsRegisteredOnFirstUse(t *testing.T) {
	registering(t)
	const count = 1000
	overNcclAlone(t, 2, func(r *rank) error {
		b, _ := r.buffers(3*count, 3*count, count)
		before, _ := nccltest.Registrations()
		for i := range 3 { // parts of the allocations
			offset := cuda.Ptr(4 * i * count)
			if err := sumOf(r, b[0]+offset, b[1]+offset, count, float32(i)); err != nil {
				return err
			}
		}
		if err := r.meet(); err != nil {
			return err
		}
		want := []cuda.Ptr{b[0], b[1]}
		slices.Sort(want)
		if known := knownBy(r); !slices.Equal(known, want) {
			return fmt.Errorf("NCCL knows memory at %#x, want %#x", known, want)
		}
		if calls, _ := nccltest.Registrations(); calls-before > 4 {
			return fmt.Errorf("%d registrations on two ranks", calls-before)
		}
		if err := errors.Join(r.meet(), r.free(b[1]), forgotten(r, b[1])); err != nil {
			return err
		}
		if !knows(r, b[0]) {
			return errors.New("memory that is there was forgotten")
		}
		return r.free(b[0], b[2])
	})
}

// Memory that comes at the address of other memory is registered anew, before the operation, whatever the goroutine has
// found by then. nccltest tells of an operation on memory whose registration is of other memory.
func TestNewMemoryAtAnAddressIsRegisteredAnew(t *testing.T) {
	registering(t)
	const count = 1000
	overNcclAlone(t, 2, func(r *rank) error {
		s, err := r.segment(4*mib, 2)
		if err != nil {
			return err
		}
		for round := range 20 {
			err := errors.Join(sumOf(r, s.Address(), s.Address()+2*mib, count, float32(round)), s.Unmap(0), s.Map(0, 2*mib))
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		same := 0
		last := cuda.Ptr(0)
		for round := range 20 { // allocations come back at their address
			b, done := r.buffers(1<<16, 1<<16)
			if err := done(sumOf(r, b[0], b[1], count, float32(round))); err != nil {
				return fmt.Errorf("allocation %d: %w", round, err)
			}
			if b[0] == last {
				same++
			}
			last = b[0]
		}
		if same == 0 {
			return errors.New("no allocation has had the address of the one before")
		}
		return errors.Join(r.meet(), r.Communicator.Close(), s.Free())
	})
}

// Segments of pieces change under an engine, at random and alike on all ranks, and tensors span pieces.
func TestRegisteredSegmentsChange(t *testing.T) {
	registering(t)
	const pieces, count = 6, 1 << 19
	rounds := fewer(100, 12)[0]
	overNcclAlone(t, 2, func(r *rank) error {
		s, err := r.segment(pieces*2*mib, pieces)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		random := rand.New(rand.NewPCG(3, 4)) // alike on all ranks
		for round := range rounds {
			if random.IntN(3) == 0 {
				piece := int64(random.IntN(pieces)) * 2 * mib
				if err := errors.Join(r.meet(), s.Unmap(piece), s.Map(piece, 2*mib)); err != nil {
					return err
				}
			}
			at := s.Address() + cuda.Ptr(random.IntN(pieces-1)*2*mib+random.IntN(mib)/4*4)
			if err := sumOf(r, b[0], at, count, float32(round)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return errors.Join(r.meet(), done(nil), r.Communicator.Close(), s.Free())
	})
}

// The messages of a group are registered too, each where it lies.
func TestMessagesOfGroupsAreRegistered(t *testing.T) {
	registering(t)
	const n, count = 3, 100
	overNcclAlone(t, n, func(r *rank) error {
		var g host.Group
		var all []cuda.Ptr
		for p := range n {
			b, _ := r.buffers(count, count)
			if p == r.Rank() {
				all = append(all, b...)
				continue
			}
			both := host.Operation{Send: pointer(b[0]), Recv: pointer(b[1]), Count: count, DType: plugin.Float32, Root: p,
				Stream: r}
			for _, both.Collective = range []plugin.Collective{plugin.Send, plugin.Recv} {
				g.Add(both)
			}
			all = append(all, b...)
		}
		if err := errors.Join(g.Run(r.Communicator), r.sync()); err != nil {
			return err
		}
		if known := knownBy(r); len(known) != 2*(n-1) {
			return fmt.Errorf("NCCL knows memory at %#x, want that of %d messages", known, 2*(n-1))
		}
		return errors.Join(r.meet(), r.free(all...))
	})
}

// logs collects what all ranks log.
type logs struct {
	sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	return l.text.Write(b)
}

func (l *logs) lines(what string) (found []string) {
	l.Lock()
	defer l.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, what) {
			found = append(found, line)
		}
	}
	return found
}

func (l *logs) of(algo string) func(int, *host.Options) {
	return func(rank int, o *host.Options) {
		both(algo)(rank, o)
		o.Logger = slog.New(slog.NewTextHandler(l, nil))
	}
}

// Memory that cannot be registered is used without; each allocation is tried once, and warned of once.
func TestFailureToRegisterIsAWarning(t *testing.T) {
	registering(t)
	nccltest.Refuse(-1, 2)
	t.Cleanup(func() { nccltest.Refuse(0, 0) })
	const count = 100
	var l logs
	before, _ := nccltest.Registrations()
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 2), l.of("*=nccl,*"), func(r *rank) error {
		b, done := r.buffers(count, count)
		for i := range 5 {
			if err := sumOf(r, b[0], b[1], count, float32(i)); err != nil {
				return err
			}
		}
		return done(nil)
	})...))
	calls, _ := nccltest.Registrations()
	assert.Equal(t, 4, calls-before)
	warned := l.lines("level=WARN")
	require.Len(t, warned, 4, "%v", warned)
	for _, w := range warned {
		assert.Contains(t, w, "memory could not be registered with a transport, and is used without")
		assert.Contains(t, w, "NCCL says")
		assert.Contains(t, w, "transport=nccl")
	}
}

// A library that lacks the functions, one whose registered memory cannot be trusted, and the option: memory is used as
// it is, and the log says once why.
func TestReasonsWhyMemoryIsNotRegistered(t *testing.T) {
	for name, c := range map[string]struct {
		world     int
		on, flags string
		want      string
	}{
		"off":           {2, "off", "-DFAKE_VERSION=22902", "SHUNT_NCCL_REGISTER is off"},
		"unset":         {2, "", "-DFAKE_VERSION=22902", "SHUNT_NCCL_REGISTER is off"},
		"no functions":  {2, "on", "-DNO_REGISTER", "NCCL 2.29.2 has no ncclCommRegister; 2.19 is the oldest that does"},
		"issue 1859":    {2, "on", "-DFAKE_VERSION=22901", "NCCL 2.29.1 reads a null address when registered memory is used"},
		"alone it does": {1, "on", "-DFAKE_VERSION=22809", ""},
	} {
		t.Run(name, func(t *testing.T) {
			registering(t, c.flags)
			t.Setenv(nccl.RegisterVariable, c.on)
			before, _ := nccltest.Registrations()
			var l logs
			require.NoError(t, errors.Join(deviceErrors(t, gpus(t, c.world), l.of("*=nccl,*"), func(r *rank) error {
				b, done := r.buffers(100, 100)
				return done(errors.Join(sumOf(r, b[0], b[1], 100, 1), sumOf(r, b[0], b[1], 100, 2)))
			})...))
			calls, _ := nccltest.Registrations()
			reasons := l.lines("a transport does not register the caller's memory")
			if c.want == "" {
				assert.Equal(t, 2, calls-before)
				assert.Empty(t, reasons)
				return
			}
			assert.Equal(t, before, calls)
			require.Len(t, reasons, c.world)
			assert.Contains(t, reasons[0], c.want)
			assert.Empty(t, l.lines("level=WARN"))
		})
	}
	drivers := gpus(t, 1)
	registering(t)
	t.Setenv(nccl.RegisterVariable, "always")
	err := errors.Join(deviceErrors(t, drivers, both("*=nccl,*"), func(*rank) error { return nil })...)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.ErrorContains(t, err, `SHUNT_NCCL_REGISTER is "always", want on or off`)
}

// Only so many registrations stay, those that were used last; what was given up is registered again when it is used.
func TestRegistrationsAreBounded(t *testing.T) {
	registering(t)
	t.Cleanup(host.LimitRegistrations(4))
	const count, many = 100, 12
	overNcclAlone(t, 2, func(r *rank) error {
		b, done := r.buffers(slices.Repeat([]int{count}, many)...)
		for round := range 3 {
			for i := range many {
				if err := sumOf(r, b[i], b[(i+1)%many], count, float32(round*many+i)); err != nil {
					return err
				}
			}
		}
		if err := eventually("registrations to be given up", func() bool { return len(knownBy(r)) <= 4 }); err != nil {
			return err
		}
		if !knows(r, b[0]) || !knows(r, b[many-1]) {
			return fmt.Errorf("NCCL knows memory at %#x, which lacks what was used last: %#x", knownBy(r), b)
		}
		return errors.Join(r.meet(), done(nil))
	})
}

// The same while operations never cease, so that the GPU is never idle: each call's operation waits for the host, which
// lets it go behind the next call. What is used all the time stays, and what operations use that are still to run, as
// nccltest checks.
func TestRegistrationsAreBoundedUnderLoad(t *testing.T) {
	registering(t)
	t.Cleanup(host.LimitRegistrations(1))
	const count, many, used, calls = 100, 12, 4, 300
	overNcclAlone(t, 2, func(r *rank) error {
		b, done := r.buffers(slices.Repeat([]int{count}, many)...)
		hold, err := r.driver.AllocHost(r.ctx, 8)
		if err != nil {
			return err
		}
		var passed [2]cuda.Event
		for i := range passed {
			var failed error
			passed[i], failed = r.driver.NewEvent(r.ctx, false)
			err = errors.Join(err, failed)
		}
		seen := many
		const all = many / used * calls
		for i := 0; i < all && err == nil; i++ {
			now := b[i/calls*used:][:used]
			err = errors.Join(r.driver.WaitValue(r.ctx, r.stream, hold.Device, uint64(i)),
				r.AllReduce(pointer(now[i%used]), pointer(now[(i+1)%used]), count, plugin.Float32, plugin.OpMax, r),
				r.driver.Record(r.ctx, passed[i%2], r.stream))
			if i > 0 {
				err = errors.Join(err, r.driver.WriteValue(r.ctx, 0, hold.Device, uint64(i-1)), eventually("a call",
					func() bool { is, failed := r.driver.EventDone(r.ctx, passed[(i-1)%2]); return is || failed != nil }))
			}
			if i > all-calls/2 {
				seen = min(seen, len(knownBy(r)))
			}
		}
		err = errors.Join(err, r.driver.WriteValue(r.ctx, 0, hold.Device, all), r.meet(),
			r.driver.DestroyEvent(r.ctx, passed[0]), r.driver.DestroyEvent(r.ctx, passed[1]), r.driver.FreeHost(r.ctx, hold))
		if seen > used {
			err = errors.Join(err, fmt.Errorf("%d registrations stayed, of %d buffers of which %d are used", seen, many, used))
		}
		return done(err)
	})
}

// What a graph has captured stays registered until the graph is gone: when the user takes it back, when others crowd it
// out, and when its memory was freed.
func TestGraphsKeepRegistrations(t *testing.T) {
	registering(t)
	t.Cleanup(host.LimitRegistrations(4))
	const count, many = 100, 12
	overNcclAlone(t, 2, func(r *rank) error {
		b, _ := r.buffers(slices.Repeat([]int{count}, many)...)
		if err := sumOf(r, b[0], b[1], count, 1); err != nil { // captured memory is not registered anew
			return err
		}
		g, err := r.graph(func() error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r)
		})
		if err != nil {
			return err
		}
		for i := range 3 * many {
			if err := sumOf(r, b[2+i%(many-2)], b[2+(i+1)%(many-2)], count, float32(i)); err != nil {
				return err
			}
		}
		if err := eventually("registrations to be given up", func() bool { return len(knownBy(r)) <= 4 }); err != nil {
			return err
		}
		_ = r.Deregister(pointer(b[0]))
		for range 3 {
			err := errors.Join(r.meet(), g.replay())
			if err != nil {
				return err
			}
		}
		if err := errors.Join(r.meet(), r.free(b[1])); err != nil {
			return err
		}
		other := b[2]
		if err := errors.Join(r.free(other), eventually("other memory to be forgotten", func() bool { return !knows(r, other) })); err != nil {
			return err
		}
		if !knows(r, b[0]) || !knows(r, b[1]) {
			return fmt.Errorf("NCCL knows memory at %#x, which lacks what a graph has captured: %#x", knownBy(r), b[:2])
		}
		return errors.Join(g.destroy(), forgotten(r, b[0]), forgotten(r, b[1]), r.free(b[0]), r.free(b[3:]...))
	})
}

// While a stream is captured nothing is registered; the memory is at the first call that is not.
func TestNothingIsRegisteredUnderCapture(t *testing.T) {
	registering(t)
	const count = 100
	overNcclAlone(t, 2, func(r *rank) error {
		b, done := r.buffers(count, count, count)
		if err := sumOf(r, b[0], b[1], count, 1); err != nil {
			return err
		}
		g, err := r.graph(func() error {
			return r.AllReduce(pointer(b[0]), pointer(b[2]), count, plugin.Float32, plugin.OpSum, r)
		})
		if err != nil {
			return err
		}
		if knows(r, b[2]) {
			return errors.New("memory was registered under capture")
		}
		err = errors.Join(g.replay(), sumOf(r, b[0], b[2], count, 2))
		if !knows(r, b[2]) {
			return errors.New("memory was not registered after the capture")
		}
		return done(errors.Join(err, g.destroy()))
	})
}

// Memory that the user takes back is forgotten, and so is what an aborted communicator knew. Register before the first
// use is no more than a promise to use it.
func TestRegisterAndDeregisterWithoutADirectory(t *testing.T) {
	registering(t)
	const count = 100
	alone := func(rank int, o *host.Options) {
		both("*=nccl,*")(rank, o)
		o.Transports = []string{"builtin:nccl"}
	}
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 2), alone, func(r *rank) error {
		b, done := r.buffers(count, count)
		err := errors.Join(r.Register(pointer(b[0]), 4*count), sumOf(r, b[0], b[1], count, 1), r.meet(),
			r.Deregister(pointer(b[0])), forgotten(r, b[0]))
		if err != nil {
			return err
		}
		if err := r.Deregister(pointer(b[0])); err == nil || !contains(err, "is not registered") {
			return fmt.Errorf("deregistered twice: %w", err)
		}
		if err := sumOf(r, b[0], b[1], count, 2); err != nil || !knows(r, b[0]) {
			return errors.Join(err, errors.New("memory that is used again was not registered again"))
		}
		if r.meet(); r.Rank() == 0 {
			r.Abort("enough")
		}
		return errors.Join(eventually("the abort", func() bool { return r.Err() != nil }), r.free(b...), func() error { _ = done; return nil }())
	})...))
}
