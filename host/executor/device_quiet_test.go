package executor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
)

// quiet returns a GPU, and a second Device there.
func quiet(t *testing.T) (g *gpu, other *Device, l *listener) {
	g = newGPU(t, 1)
	l = g.listen()
	return g, g.newDevice(l, 1), l
}

// observers lists the calls that make a Device look at the work it has put into streams.
var observers = map[string]func(g *gpu, d *Device, p *DeviceProgram){
	"close": func(g *gpu, d *Device, _ *DeviceProgram) { require.NoError(g.t, d.Close()) },
	"later": func(g *gpu, d *Device, _ *DeviceProgram) {
		freed := false
		require.NoError(g.t, d.Later(func() error { freed = true; return nil }))
		require.True(g.t, freed)
	},
	"collect": func(g *gpu, d *Device, _ *DeviceProgram) {
		require.NoError(g.t, d.Later(func() error { return nil }))
		require.NoError(g.t, Collect())
	},
	"another stream": func(g *gpu, d *Device, p *DeviceProgram) {
		s := g.stream()
		require.NoError(g.t, d.Run(p, &Arguments{}, s))
		g.synchronize(s)
		require.Equal(g.t, uint64(2), g.value(5))
	},
	"a new one": func(g *gpu, _ *Device, _ *DeviceProgram) { _ = g.newDevice(g.device.driver, 1) },
}

// What looks at streams while another thread captures leaves the capture valid,
// also where it knows nothing of that capture, and whose streams are gone.
func TestObserversLeaveCapturesAlone(t *testing.T) {
	for what, observe := range observers {
		for _, ownCapture := range []bool{true, false} {
			t.Run(what, func(t *testing.T) {
				g, d, _ := quiet(t)
				p, err := d.Load(g.bumpPlan(5), 0)
				require.NoError(t, err)
				mine := g.bump(6)
				gone, s := g.stream(), g.stream()
				require.NoError(t, d.Run(p, &Arguments{}, gone))
				g.synchronize(gone)
				require.NoError(t, g.DestroyStream(g.ctx, gone))
				graph := g.capture(s, func() {
					if ownCapture {
						g.run(mine, s)
					}
					require.NoError(t, g.Set(g.ctx, g.words+56, 1, 8, s))
					observe(g, d, p)
					require.NoError(t, g.Set(g.ctx, g.words+64, 1, 8, s))
				})
				x := g.instantiate(graph)
				require.NoError(t, g.LaunchGraph(g.ctx, x, s))
				g.synchronize(s)
				require.NotZero(t, g.value(8))
				require.NoError(t, g.DestroyGraphExec(x))
				require.NoError(t, g.DestroyGraph(graph))
			})
		}
	}
}

// What a Device does waits for its own operations and for no other work of the GPU:
// not for a kernel of another communicator, which may wait for what comes next here,
// and not for the program's, in whatever stream that is.
func TestNothingWaitsForStreamsThatADeviceWasNotGiven(t *testing.T) {
	for what, observe := range observers {
		t.Run(what, func(t *testing.T) {
			g, d, l := quiet(t)
			p, err := d.Load(g.bumpPlan(5), 0)
			require.NoError(t, err)
			strangers := []cuda.Stream{g.stream(), g.stream(), 0}
			g.run(g.hold(0), strangers[0]) // of another communicator
			for _, s := range strangers[1:] {
				require.NoError(t, g.WaitValue(g.ctx, s, g.words, 1))
			}
			gone := g.stream()
			require.NoError(t, d.Run(p, &Arguments{}, gone))
			g.synchronize(gone)
			require.NoError(t, g.DestroyStream(g.ctx, gone))
			l.heard()
			observe(g, d, p) // would not come back, or not have freed
			require.NotContains(t, l.heard(), "RecordContext")
			for _, s := range strangers {
				done, err := g.StreamDone(g.ctx, s)
				require.NoError(t, err)
				require.False(t, done, "the strangers still wait")
			}
			g.store(0, 1)
			g.synchronize(strangers...)
		})
	}
}

// Native code, or a stream that is full, may keep an operation for ever, and whoever is to end it looks at the Device
// first. So does what frees for other communicators of the GPU.
func TestNothingWaitsForAnOperationThatIsBeingEnqueued(t *testing.T) {
	g := newGPU(t, 1)
	l := &stuck{Driver: g.Driver, inside: make(chan struct{}), end: make(chan struct{})}
	d := g.newDevice(l, 1)
	p, err := d.Load(g.bumpPlan(5), 0)
	require.NoError(t, err)
	s := g.stream()
	ran := make(chan error, 1)
	go func() { ran <- d.Run(p, &Arguments{}, s) }()
	<-l.inside
	freed := false
	looked, kept := make(chan error, 2), make(chan error, 1)
	over, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // as its communicator does all the time: whoever looks meanwhile must not look for it, too, for ever
		var err error
		for over.Err() == nil && err == nil {
			err = d.Tend()
		}
		kept <- err
	}()
	go func() {
		if d.Idle() {
			looked <- errors.New("it is idle")
		}
		err := errors.Join(d.Later(func() error { freed = true; return nil }), d.Tend(), Collect())
		other, failed := NewDevice(l, 0, 0, 1)
		if failed == nil {
			failed = other.Close()
		}
		d.Abort()
		looked <- errors.Join(err, failed)
	}()
	select {
	case err = <-looked:
		require.False(t, freed, "the operation may use it")
	case <-time.After(time.Minute):
		err = errors.New("something waits for the operation")
	}
	close(l.end)
	stop()
	require.NoError(t, <-kept)
	require.NoError(t, err)
	require.NoError(t, <-ran)
	g.synchronize(s)
	require.True(t, d.Idle())
	require.NoError(t, d.Tend())
	require.True(t, freed)
}

// A program whose host runs ahead never has a moment without an operation in a stream. What it frees goes all the same,
// once what came before has ended.
func TestLaterDoesNotWaitForWhatComesAfterwards(t *testing.T) {
	for name, two := range map[string]bool{"a stream": false, "two streams": true} {
		t.Run(name, func(t *testing.T) {
			g := newGPU(t, 1)
			streams := []cuda.Stream{g.stream(), g.stream()}
			next := streams[0]
			run := func(p *DeviceProgram) {
				g.run(p, next)
				if two {
					next = streams[0] + streams[1] - next
				}
			}
			bump, freed := g.bump(8), 0
			free := func() error { freed++; return nil }
			collected := func() bool { require.NoError(t, Collect()); return true }
			run(g.hold(0))
			for i := range 3 {
				require.NoError(t, g.device.Later(free))
				graph := g.capture(next, func() { g.run(bump, next) }) // has no part in this
				run(bump)
				run(g.hold(i + 1))
				require.NoError(t, g.device.Later(func() error { return nil }), "asks anew before the first is over")
				require.True(t, collected())
				require.Equal(t, i, freed, "an operation before it runs")
				g.store(i, 1)
				require.Eventually(t, func() bool { return collected() && freed == i+1 }, time.Minute, time.Millisecond)
				require.False(t, g.device.Idle())
				require.NoError(t, g.DestroyGraph(graph))
			}
			g.store(3, 1)
			g.synchronize(streams...)
		})
	}
}

// stuck is a driver whose Submit does not return until the end.
type stuck struct {
	cuda.Driver
	inside, end chan struct{}
}

func (s *stuck) Submit(c cuda.Context, b *cuda.Batch) (int, cuda.Capture, error) {
	close(s.inside)
	<-s.end
	return s.Driver.Submit(c, b)
}

// An operation is one call of the driver's library, with an event behind it outside
// captures, and allocates nothing.
func TestAnOperationIsOneCallWithOneEvent(t *testing.T) {
	g := newGPU(t, 1)
	l := &pieces{Driver: g.Driver}
	require.NoError(t, g.device.Close())
	g.device = g.newDevice(l, 1)
	s := g.stream()
	p := g.bump(1)
	for range 2 {
		g.run(p, s)
		require.Equal(t, []cuda.WorkKind{cuda.WorkLaunch, cuda.WorkRecord}, l.last)
	}
	graph := g.capture(s, func() { g.run(p, s) })
	require.Equal(t, []cuda.WorkKind{cuda.WorkLaunch}, l.last, "nothing more is captured")
	require.NoError(t, g.DestroyGraph(graph))

	d, heard := g.device, &listener{Driver: g.Driver}
	d.driver = nothing{Driver: g.Driver}
	a := &Arguments{}
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = d.Run(p, a, s) }))
	d.driver = heard
	g.run(p, s)
	require.Equal(t, []string{"Submit"}, heard.heard())
	d.driver = l
	g.synchronize(s)
}

// pieces notes what the last Submit consisted of.
type pieces struct {
	cuda.Driver
	last []cuda.WorkKind
}

func (p *pieces) Submit(c cuda.Context, b *cuda.Batch) (int, cuda.Capture, error) {
	p.last = p.last[:0]
	for i := range b.Work {
		p.last = append(p.last, b.Work[i].Kind)
	}
	return p.Driver.Submit(c, b)
}

// nothing takes work and does nothing with it, so that its allocations are not
// counted.
type nothing struct{ cuda.Driver }

func (nothing) Submit(_ cuda.Context, b *cuda.Batch) (int, cuda.Capture, error) {
	return len(b.Work), cuda.Capture{}, nil
}
