package executor

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor/commandtest"
	"github.com/shunt-ccl/shunt/host/executor/internal/nativetest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
)

// ringed is a GPU in memory whose plans post commands to a ring.
type ringed struct {
	*gpu
	ring *ring.Ring

	held chan struct{} // closed when the test releases it
	mu   sync.Mutex
	ran  []int64 // first arguments of the commands, in their order
}

const (
	opNote = iota // note the argument
	opFail        // fail, about rank 1
	opWait        // wait for rank 1 until the context ends
	opHold        // note the argument when the test releases it
	opLast        // note the last argument
)

const ringBase = BaseMultiple

func newRinged(t testing.TB, slots int) *ringed { return newRingedOf(t, slots, commandtest.Kernels()) }

func newRingedOf(t testing.TB, slots int, kernels map[string]cudatest.Kernel) *ringed {
	maps.Copy(kernels, deviceKernels)
	g := &ringed{held: make(chan struct{}), gpu: newGPUOf(t, cudatest.Options{Devices: 2, Kernels: kernels}, 2)}
	var err error
	g.ring, err = ring.New(0, slots, 4096)
	require.NoError(t, err)
	g.ring.Serve(g.do)
	region := g.ring.Region()
	address, err := g.RegisterHost(g.ctx, g.ring.Memory(), region.Bytes)
	require.NoError(t, err)
	require.NoError(t, g.device.SetLocal(ringBase, 0, address, g.ring.Memory(), region.Bytes))
	t.Cleanup(func() { // before the driver is closed, behind the Device
		g.ring.Abort("the test is over")
		g.device.Abort() // what a test that has failed left in streams
		require.NoError(t, g.device.Close())
		require.NoError(t, g.UnregisterHost(g.ctx, g.ring.Memory()))
		require.NoError(t, g.ring.Close())
	})
	return g
}

func (g *ringed) do(ctx context.Context, c *ring.Command) error {
	switch c.Operation {
	case opFail:
		return &plugin.Error{Code: plugin.PeerDied, Rank: 1, Message: "the connection is lost"}
	case opWait:
		c.WaitsFor(1)
		<-ctx.Done()
		return context.Cause(ctx)
	case opHold:
		<-g.held
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ran = append(g.ran, c.Args[0])
	if c.Operation == opLast {
		g.ran[len(g.ran)-1] = c.Args[len(c.Args)-1]
	}
	return nil
}

// posts returns what puts a command into a stream, with an argument (SlotBytes).
func (g *ringed) posts(operation int64) func(s cuda.Stream, n int64) {
	p, err := g.device.Load(devicePlan(g.t, 2, func(b *plugin.Builder) {
		b.Track(func() { g.ring.Post(b, operation, b.Slot(plugin.SlotBytes)) })
	}), ringBase)
	require.NoError(g.t, err)
	return func(s cuda.Stream, n int64) {
		g.t.Helper()
		a := &Arguments{}
		a.Slots[plugin.SlotBytes] = n
		require.NoError(g.t, g.device.Run(p, a, s))
	}
}

func (g *ringed) noted() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ran)
}

// after makes stream to wait for what is in stream from.
func (g *ringed) after(e cuda.Event, from, to cuda.Stream) {
	require.NoError(g.t, g.Driver.Record(g.ctx, e, from))
	require.NoError(g.t, g.WaitEvent(g.ctx, to, e))
}

// Rule 6: commands enter the ring in the order of streams. Replays of two graphs and eager calls between them, on two
// streams, are all submitted while the first stream is held: code that posted when the host submits, or counted there,
// would post the eager ones first, or none of the replays'.
func TestRule06CommandsAreInTheOrderOfStreams(t *testing.T) {
	g := newRinged(t, 2)
	note := g.posts(opNote)
	s := [2]cuda.Stream{g.stream(), g.stream()}
	e, err := g.NewEvent(g.ctx, false)
	require.NoError(t, err)
	var execs [2]cuda.GraphExec
	var graphs [2]cuda.Graph
	for i := range graphs {
		graphs[i] = g.capture(s[i], func() {
			for k := range 3 {
				note(s[i], int64(1000*(i+1)+k))
			}
		})
		execs[i] = g.instantiate(graphs[i])
	}
	require.Empty(t, g.noted(), "a captured command has run")
	hold := g.load(func(b *plugin.Builder) {
		b.Track(func() { kernel(b, "await", place(b, 0), plugin.Value(b.Const(1), 8), plugin.Address(b.Abort())) })
	})
	g.run(hold, s[0])
	var want []int64
	for round := range 40 {
		i := round % 2
		g.after(e, s[1-i], s[i])
		require.NoError(t, g.LaunchGraph(g.ctx, execs[i], s[i]))
		note(s[i], int64(round))
		base := int64(1000 * (i + 1))
		want = append(want, base, base+1, base+2, int64(round))
	}
	require.Empty(t, g.noted(), "a command has overtaken its stream")
	g.store(0, 1)
	g.synchronize(s[:]...)
	require.Equal(t, want, g.noted())
	kind, _, _ := g.device.Fault()
	require.Equal(t, plugin.FaultNone, kind)
	for i := range graphs {
		require.NoError(t, g.DestroyGraphExec(execs[i]))
		require.NoError(t, g.DestroyGraph(graphs[i]))
	}
}

// More commands than the GPU's ring and the plugin's have slots, from a graph that outlives its communicator (rule 5).
func TestCommandsOfAGraphThatOutlivesItsCommunicator(t *testing.T) {
	g := newRinged(t, 1)
	note := g.posts(opNote)
	s := g.stream()
	graph := g.capture(s, func() {
		for k := range 150 {
			note(s, int64(k))
		}
	})
	x := g.instantiate(graph)
	require.NoError(t, g.device.Close())
	for range 4 {
		require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	}
	g.synchronize(s)
	ran := g.noted()
	require.Len(t, ran, 600)
	for i, n := range ran {
		require.Equal(t, int64(i%150), n)
	}
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, g.DestroyGraph(graph))
	require.NoError(t, Collect())
}

// The first command that fails says why, and what comes behind it is not run.
func TestACommandThatFailsEndsTheStream(t *testing.T) {
	g := newRinged(t, 2)
	fail, note := g.posts(opFail), g.posts(opNote)
	s := g.stream()
	note(s, 1)
	fail(s, 0)
	note(s, 2)
	g.synchronize(s)
	kind, peer, _ := g.device.Fault()
	require.Equal(t, plugin.FaultEngine, kind)
	require.Equal(t, 1, peer)
	f, base := g.device.EngineFailure()
	require.NotNil(t, f)
	require.Equal(t, uint32(ringBase), base)
	require.Equal(t, plugin.PeerDied, f.Code)
	require.Equal(t, 1, f.Rank)
	require.Contains(t, f.Reason, "the connection is lost")
	require.Equal(t, []int64{1}, g.noted())
}

// A command that waits too long is a timeout that names the rank it waits for; one that is aborted lets the stream go.
func TestCommandsAreBounded(t *testing.T) {
	for _, how := range []string{"deadline", "abort"} {
		g := newRinged(t, 2)
		wait, note := g.posts(opWait), g.posts(opNote)
		s := g.stream()
		if how == "deadline" {
			g.device.SetTimeout(50 * time.Millisecond)
		}
		wait(s, 0)
		note(s, 1)
		if how == "abort" {
			g.device.Abort()
		}
		g.synchronize(s)
		kind, peer, _ := g.device.Fault()
		if how == "deadline" {
			require.Equal(t, plugin.FaultTimeout, kind)
			require.Equal(t, 1, peer)
		}
		require.Empty(t, g.noted(), how)
	}
}

// The halves of an order arrive in any sequence: the command begins when all are there, in slots that were used before
// as well.
func TestACommandBeginsWhenAllOfItsOrderIsThere(t *testing.T) {
	g := newRingedOf(t, 2, commandtest.Late(func() { time.Sleep(500 * time.Microsecond) }))
	note, s := g.posts(opNote), g.stream()
	var want []int64
	for i := range int64(300) {
		n := i<<32 + i + 1
		note(s, n)
		want = append(want, n)
	}
	g.synchronize(s)
	f, _ := g.device.EngineFailure()
	require.Nil(t, f)
	require.Equal(t, want, g.noted())
}

// Flags come round after 2^32 commands. Words of arguments that no order had for so long, or none ever, are not taken
// for those of the order that is arriving.
func TestFlagsOfOrdersComeRound(t *testing.T) {
	g := newRingedOf(t, 2, commandtest.Late(func() { time.Sleep(500 * time.Microsecond) }))
	s := g.stream()
	post := func(args int) func(n int64) {
		p, err := g.device.Load(devicePlan(t, 2, func(b *plugin.Builder) {
			b.Track(func() { g.ring.Post(b, opLast, slices.Repeat([]plugin.Reg{b.Slot(plugin.SlotBytes)}, args)...) })
		}), ringBase)
		require.NoError(t, err)
		return func(n int64) {
			a := &Arguments{}
			a.Slots[plugin.SlotBytes] = n
			require.NoError(t, g.device.Run(p, a, s))
		}
	}
	one, two := post(1), post(2)
	var want []int64
	put := func(of func(n int64), times int) {
		for range times {
			n := int64(len(want))<<32 + int64(len(want)) + 1
			of(n)
			want = append(want, n)
		}
		g.synchronize(s)
	}
	// goOn has the next command be of that number, and not the one after those so far, here and on the GPU.
	goOn := func(before, number uint64) {
		require.NoError(t, g.Write(g.ctx, g.device.proxy.counters, binary.NativeEndian.AppendUint64(nil, number)))
		const next = 40 // of sx_proxy, behind two pointers, two numbers and the thread
		place := (*uint64)(unsafe.Add(unsafe.Pointer(g.device.proxy.c), next))
		require.Equal(t, before, atomic.SwapUint64(place, number))
	}
	goOn(0, 1<<24)
	put(one, 256) // every slot has had an order of one argument
	goOn(1<<24+256, 1<<32-3)
	put(one, 2)
	put(two, 1) // its flag is 0, as are words that were never written; of its second argument one half is late
	put(two, 300)
	f, _ := g.device.EngineFailure()
	require.Nil(t, f)
	require.Equal(t, want, g.noted())
}

// Where streams of one Device are not ordered, a command that is in progress keeps its slot: a later one for this slot
// waits, and the kernel of neither takes the other's end for its own.
func TestACommandInProgressKeepsItsSlot(t *testing.T) {
	g := newRinged(t, 2)
	release := sync.OnceFunc(func() { close(g.held) })
	defer release()
	hold, note := g.posts(opHold), g.posts(opNote)
	s := [2]cuda.Stream{g.stream(), g.stream()}
	graph := g.capture(s[0], func() { hold(s[0], -1) }) // an eager call would be ordered
	x := g.instantiate(graph)
	require.NoError(t, g.LaunchGraph(g.ctx, x, s[0]))
	require.Eventually(t, func() bool { return g.device.engineBusy() }, 10*time.Second, time.Millisecond)
	const slots = 256
	for i := range int64(slots + 44) {
		note(s[1], i)
	}
	require.Eventually(t, func() bool { return len(g.noted()) == slots-1 }, 10*time.Second, time.Millisecond)
	require.Never(t, func() bool { return len(g.noted()) >= slots }, 50*time.Millisecond, time.Millisecond)
	release()
	for _, s := range s {
		g.synchronize(s)
	}
	require.Equal(t, slots-1, slices.Index(g.noted(), -1))
	require.Len(t, g.noted(), slots+45)
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, g.DestroyGraph(graph))
}

// Native code that starts requests gets the arguments and the caller's memory; its failure is reported, and so is one
// that does not stop.
func TestRequestsOnAStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		status plugin.Code
		deaf   bool
	}{{"ends", plugin.OK, false}, {"fails", plugin.Mismatch, false}, {"is deaf", plugin.OK, true}} {
		t.Run(c.name, func(t *testing.T) {
			g := newRinged(t, 2)
			polls := 3
			if c.deaf {
				polls = 1 << 60
			}
			native, requests := nativetest.NewRequests(polls, 1, c.status, 1, "other bytes came")
			p, err := g.device.Load(devicePlan(t, 2, func(b *plugin.Builder) {
				b.Track(func() { b.Native(native, b.Slot(plugin.SlotBytes)) })
			}), ringBase)
			require.NoError(t, err)
			s := g.stream()
			g.store(8, 42)
			a := &Arguments{Send: unsafe.Pointer(g.at(8)), Recv: unsafe.Pointer(g.at(9))}
			a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 8, 8, 8
			require.NoError(t, g.device.Run(p, a, s))
			if c.deaf {
				requests.Deafen()
				require.Eventually(t, func() bool { starts, _, _ := requests.Counts(); return starts == 1 }, 10*time.Second,
					time.Millisecond)
				g.device.Abort()
				require.Eventually(t, func() bool { _, stuck := g.device.EngineStuck(); return stuck }, 10*time.Second,
					time.Millisecond)
				base, _ := g.device.EngineStuck()
				require.Equal(t, uint32(ringBase), base)
				return
			}
			g.synchronize(s)
			f, _ := g.device.EngineFailure()
			if c.status != plugin.OK {
				require.NotNil(t, f)
				require.Equal(t, plugin.Mismatch, f.Code)
				require.Contains(t, f.Reason, "other bytes came")
				return
			}
			require.Nil(t, f)
			require.Equal(t, uint64(42), g.value(9))
		})
	}
}

// Tracks of a plan with engine steps could wait for each other in a queue of the GPU, so the plan is refused.
func TestEngineStepsOfTracksAreRefused(t *testing.T) {
	g := newRinged(t, 2)
	_, err := g.device.Load(devicePlan(t, 2, func(b *plugin.Builder) {
		for range 2 {
			b.Track(func() { g.ring.Post(b, opNote, b.Const(1)) })
		}
	}), ringBase)
	require.Equal(t, plugin.Unsupported, plugin.CodeOf(err))
	require.ErrorContains(t, err, "engine step in a plan of 2 tracks")
}
