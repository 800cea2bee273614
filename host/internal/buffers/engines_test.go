package buffers

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// registrar counts the ends of registrations by their keys, and fails with an error of its own. Keys are addresses. A
// Deregister takes as long as a test holds it.
type registrar struct {
	made  []uint64
	ended map[uint64]int
	err   error
	hold  func()

	calls atomic.Int32 // that are in progress
	wrong atomic.Bool  // there were several
}

func (r *registrar) Register(_ context.Context, m plugin.Memory) (uint64, error) {
	defer r.enter()()
	r.made = append(r.made, m.Address)
	return m.Address, nil
}

func (r *registrar) Deregister(_ context.Context, key uint64) error {
	defer r.enter()()
	if r.hold != nil {
		r.hold()
	}
	r.ended[key]++
	return r.err
}

func (r *registrar) enter() (leave func()) {
	if r.calls.Add(1) > 1 {
		r.wrong.Store(true)
	}
	return func() { r.calls.Add(-1) }
}

func (t *Engines) thinned(e *engine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.thin(e)
}

// engineWith returns an engine whose registrations, with keys from 0 on, were last used by these operations.
func engineWith(used ...uint64) (*Engines, *engine, *registrar) {
	r := &registrar{ended: map[uint64]int{}}
	o := &diagnosis.Observer{World: 2, Logger: slog.New(slog.DiscardHandler)}
	t := NewEngines(o, GPU{}, nil, []Engine{{Name: "engine", Registrar: r}})
	for key, operation := range used {
		t.list[0].known = append(t.list[0].known, &registration{key: uint64(key), used: operation})
	}
	return t, t.list[0], r
}

// A registration that is to go ends when the last operation that used it has: not before, and not with a later one.
func TestRegistrationsEndWithTheirOperations(t *testing.T) {
	engines, e, r := engineWith(0, 4, 5, 6, 5)
	for _, known := range e.known[:4] {
		known.leaving = true
	}
	engines.idle = 5
	engines.thinned(e)
	require.Equal(t, map[uint64]int{0: 1, 1: 1, 2: 1}, r.ended)
	require.True(t, engines.crowded, "one waits for operation 6")
	require.Len(t, e.known, 2)
	engines.idle, engines.crowded = 6, false
	engines.thinned(e)
	require.Equal(t, map[uint64]int{0: 1, 1: 1, 2: 1, 3: 1}, r.ended)
	require.False(t, engines.crowded)
	require.Len(t, e.known, 1, "the one that stays")
}

// An end that has run out of time is tried again; after another error the registration is forgotten.
func TestEndsOfRegistrationsThatFail(t *testing.T) {
	for code, again := range map[plugin.Code]bool{plugin.Timeout: true, plugin.Internal: false, plugin.PluginDied: false} {
		engines, e, r := engineWith(1)
		e.known[0].leaving, engines.idle = true, 1
		r.err = plugin.Errorf(code, "no")
		engines.thinned(e)
		require.Equal(t, again, engines.crowded, code)
		r.err, engines.crowded = nil, false
		engines.thinned(e)
		require.Equal(t, again, r.ended[0] == 2, code)
		require.Empty(t, e.known, code)
		require.False(t, engines.crowded, code)
	}
}

// Over the limit those give way that were not used for longest; those that graphs have captured count, and stay.
func TestTheLeastRecentlyUsedRegistrationsGiveWay(t *testing.T) {
	for _, over := range []int{0, 1, 3} {
		used := make([]uint64, registrationLimit+over)
		for i := range used {
			used[i] = uint64(len(used) - i) // the last one is the least recent
		}
		engines, e, r := engineWith(used...)
		engines.idle = uint64(len(used))
		e.known[len(used)-1].graphs = []inUse{{}}
		engines.thinned(e)
		want := map[uint64]int{}
		for i := range over {
			want[uint64(len(used)-2-i)] = 1
		}
		require.Equal(t, want, r.ended, "%d over the limit", over)
	}
}

// While an engine takes its time to end a registration, operations on memory that it knows go on. Those on other memory
// wait: an engine registers nothing meanwhile.
func TestOperationsDoNotWaitForTheEndOfOtherRegistrations(t *testing.T) {
	d := aRegistry(t)
	exec, err := executor.NewDevice(d.gpu.Driver, 0, 0, 2)
	require.NoError(t, err)
	defer exec.Close()
	r := &registrar{ended: map[uint64]int{}}
	engines := NewEngines(d.Observer, d.gpu, exec, []Engine{{Name: "engine", Registrar: r}})
	var at [3]cuda.Ptr
	for i := range at {
		at[i], err = d.gpu.Driver.Alloc(d.gpu.Context, 4096)
		require.NoError(t, err)
	}
	operate := func(i int) chan error {
		done := make(chan error, 1)
		go func() {
			c := &call.Call{Recv: *(*unsafe.Pointer)(unsafe.Pointer(&at[i]))}
			c.Slots[plugin.SlotRecvBytes] = 4096
			err := engines.Before(0, c, 0)
			engines.After(0, c, 0)
			done <- err
		}()
		return done
	}
	returns := func(done chan error) {
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(30 * time.Second):
			t.Fatal("it waits")
		}
	}
	returns(operate(0))
	returns(operate(1))
	require.NoError(t, d.gpu.Driver.Free(d.gpu.Context, at[0]))
	entered, release := make(chan struct{}), make(chan struct{})
	r.hold = func() {
		close(entered)
		<-release
	}
	looked := make(chan error, 1)
	go func() {
		engines.look(0)
		looked <- nil
	}()
	returns(func() chan error {
		began := make(chan error)
		go func() { <-entered; began <- nil }()
		return began
	}())
	returns(operate(1))
	other := operate(2)
	require.Eventually(t, func() bool {
		engines.mu.Lock()
		defer engines.mu.Unlock()
		return engines.begun == 4
	}, 30*time.Second, time.Millisecond)
	close(release)
	returns(looked)
	returns(other)
	require.False(t, r.wrong.Load(), "calls at a time")
	require.Equal(t, []uint64{uint64(at[0]), uint64(at[1]), uint64(at[2])}, r.made)
	require.Equal(t, map[uint64]int{uint64(at[0]): 1}, r.ended)
}

var hostMemory [150]byte

// The end of host memory that has timed out is tried again, also before the engine is closed; what overlaps the memory
// is not registered before it has come.
func TestEndsOfHostMemoryAreTriedAgain(t *testing.T) {
	at := func(i int) (unsafe.Pointer, uint64) {
		p := unsafe.Pointer(&hostMemory[i])
		return p, uint64(uintptr(p))
	}
	engines, _, r := engineWith()
	p, first := at(0)
	behind, second := at(100)
	within, third := at(50)
	engines.RegisterHost(p, 100)
	r.err = plugin.Errorf(plugin.Timeout, "no time")
	engines.DeregisterHost(p)
	engines.RegisterHost(within, 100)
	require.Equal(t, map[uint64]int{first: 2}, r.ended)
	require.Equal(t, []uint64{first}, r.made, "what overlaps memory that is still registered")
	engines.RegisterHost(behind, 100)
	require.Equal(t, map[uint64]int{first: 3}, r.ended)
	require.Equal(t, []uint64{first, second}, r.made, "what lies behind it")
	r.err = nil
	engines.DeregisterHost(within)
	engines.RegisterHost(within, 100)
	require.Equal(t, map[uint64]int{first: 4}, r.ended)
	require.Equal(t, []uint64{first, second, third}, r.made)
	r.err = plugin.Errorf(plugin.Timeout, "no time")
	engines.DeregisterHost(behind)
	engines.End(0)
	require.Equal(t, map[uint64]int{first: 4, second: 2, third: 1}, r.ended)
	engines.End(0)
	require.Equal(t, map[uint64]int{first: 4, second: 2, third: 1}, r.ended)
}
