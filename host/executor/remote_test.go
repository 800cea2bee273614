package executor

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/executor/internal/nativetest"
	"github.com/shunt-ccl/shunt/internal/seccomptest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
)

// command is a command of a ring, whichever side has taken it.
type command struct {
	Operation int64
	Args      []int64
	WaitsFor  func(rank int)
}

// side serves a ring until its stop is called.
type side func(r *ring.Ring, do func(context.Context, *command) error) (stop func())

// inGo is package ring.
func inGo(r *ring.Ring, do func(context.Context, *command) error) (stop func()) {
	r.Serve(func(ctx context.Context, c *ring.Command) error {
		return do(ctx, &command{c.Operation, c.Args, c.WaitsFor})
	})
	return func() {}
}

// inC is shunt_ring.h.
func inC(r *ring.Ring, do func(context.Context, *command) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	end := nativetest.ServeRing(r.Memory(), r.Slots(), func(c *nativetest.Command) error {
		return do(ctx, &command{c.Operation, c.Args, c.WaitsFor})
	})
	return func() {
		cancel()
		end()
	}
}

// onBothSides runs a test with a plugin in Go and with one in C.
func onBothSides(t *testing.T, body func(t *testing.T, serve side)) {
	t.Run("Go", func(t *testing.T) { body(t, inGo) })
	t.Run("C", func(t *testing.T) { body(t, inC) })
}

// ringWorld returns an engine of one rank with a ring as region 9, on which serve runs do.
func ringWorld(t testing.TB, world int, serve side, do func(context.Context, *command) error) (*Engine, *ring.Ring) {
	t.Helper()
	w := newWorld(t, world, 8192)
	r, err := ring.New(9, world, 4096)
	must(t, err)
	memory, err := unix.Mmap(r.Region().Handle.FD, 0, int(r.Region().Bytes), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	must(t, err)
	must(t, w.engines[0].SetRegion(0, 9, 0, Memory{Base: unsafe.Pointer(&memory[0]), Bytes: r.Region().Bytes}))
	stop := func() {}
	if do != nil {
		stop = serve(r, do)
	}
	t.Cleanup(func() {
		w.engines[0].Close()
		stop()
		must(t, r.Close())
		must(t, unix.Munmap(memory))
	})
	return w.engines[0], r
}

func posting(t testing.TB, e *Engine, world int, body func(b *plugin.Builder)) *Program {
	t.Helper()
	p, err := e.Load(plan(t, 0, world, plugin.Int32, plugin.OpSum, body), 0)
	must(t, err)
	t.Cleanup(p.Free)
	return p
}

// The plugin gets the operation and every argument, works on what the plan has copied, and the plan continues when it
// is done, again and again.
func TestRemoteHandsOverAndBack(t *testing.T) { onBothSides(t, handsOverAndBack) }

func handsOverAndBack(t *testing.T, serve side) {
	var mu sync.Mutex // the race detector does not see what C orders
	var r *ring.Ring
	var seen []int64
	mu.Lock()
	e, r := ringWorld(t, 1, serve, func(_ context.Context, c *command) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(append(seen, c.Operation), c.Args...)
		for i, v := range r.Staging()[:4] {
			r.Staging()[i] = v + 1
		}
		return nil
	})
	mu.Unlock()
	p := posting(t, e, 1, func(b *plugin.Builder) {
		b.Track(func() {
			place := r.Place(b, b.Const(0))
			b.Copy(place, b.Send(b.Const(0)), b.Const(4))
			args := []plugin.Reg{b.Slot(plugin.SlotCount), b.Add(b.Const(40), b.Const(2))}
			for i := len(args); i < plugin.MaxCommandArgs; i++ {
				args = append(args, b.Const(int64(-i)))
			}
			r.Post(b, 7, args...)
			b.Copy(b.Recv(b.Const(0)), place, b.Const(4))
			r.Post(b, 8)
		})
	})
	for round := range 50 {
		mu.Lock()
		seen = nil
		mu.Unlock()
		for round%2 == 0 && !nativetest.Asleep(r.Memory()) { // it sleeps soon; then only the bell wakes it
			runtime.Gosched()
		}
		send, recv := []byte{1, 2, 3, byte(round)}, make([]byte, 4)
		a := arguments(send, recv, int64(round), 4)
		must(t, e.Run(p, a, testDeadline))
		want := []int64{7, a.Slots[plugin.SlotCount], 42}
		for i := 2; i < plugin.MaxCommandArgs; i++ {
			want = append(want, int64(-i))
		}
		mu.Lock()
		got := seen
		mu.Unlock()
		if want = append(want, 8); !slices.Equal(got, want) {
			t.Fatalf("the plugin got %v, want %v", got, want)
		}
		if want := []byte{2, 3, 4, byte(round) + 1}; !slices.Equal(recv, want) {
			t.Fatalf("received %v, want %v", recv, want)
		}
	}
}

// An error's text is cut where it is too long, but not within a character.
func TestLongTextsOfCommandsEndWithAWholeCharacter(t *testing.T) { onBothSides(t, wholeCharacters) }

func wholeCharacters(t *testing.T, serve side) {
	for _, character := range []string{"x", "é", "語", "𝄞"} {
		for lead := range len(character) {
			e, r := ringWorld(t, 1, serve, func(context.Context, *command) error {
				return plugin.Errorf(plugin.Internal, "%s%s", "aaaa"[:lead], strings.Repeat(character, 500))
			})
			fail := posting(t, e, 1, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 7) }) })
			err := e.Run(fail, arguments(nil, nil, 0, 4), testDeadline)
			if err == nil {
				t.Fatalf("a command that failed gave no error")
			}
			text := err.Error()
			if n := strings.Count(text, character); n < 250/len(character) || strings.ContainsAny(text, "?\uFFFD") ||
				!utf8.ValidString(text) {
				t.Errorf("%d of %q behind %d bytes: %q", n, character, lead, text)
			}
		}
	}
}

// Commands of tracks run at the same time, although one ends only when all have begun;
// and tracks that find no free slot wait for one.
func TestCommandsRunAtTheSameTime(t *testing.T) { onBothSides(t, runAtTheSameTime) }

func runAtTheSameTime(t *testing.T, serve side) {
	const world = 3 // six slots
	var begun sync.WaitGroup
	begun.Add(2 * world)
	var count atomic.Int64
	e, r := ringWorld(t, world, serve, func(_ context.Context, c *command) error {
		if c.Operation == 1 {
			begun.Done()
			begun.Wait()
		}
		count.Add(1)
		return nil
	})
	p := posting(t, e, world, func(b *plugin.Builder) {
		for range 2 * world {
			b.Track(func() { r.Post(b, 1) })
		}
		b.Track(func() { b.Loop(b.Const(100), func(plugin.Reg) { r.Post(b, 2) }) })
		b.Track(func() { b.Loop(b.Const(100), func(plugin.Reg) { r.Post(b, 2) }) })
	})
	must(t, e.Run(p, arguments(nil, nil, 0, 0), testDeadline))
	if n := count.Load(); n != 2*world+200 {
		t.Errorf("%d commands, want %d", n, 2*world+200)
	}
}

// What a command leaves is the error of the run: code, text and rank.
func TestACommandsErrorIsTheRuns(t *testing.T) {
	onBothSides(t, errorIsTheRuns)
	e, r := ringWorld(t, 1, inGo, func(context.Context, *command) error { panic("oops") })
	p := posting(t, e, 1, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 6) }) })
	if f := failureOf(t, e.Run(p, arguments(nil, nil, 0, 0), testDeadline)); f.Code != plugin.Internal ||
		!strings.Contains(f.Reason, "panicked in command 6: oops") {
		t.Errorf("got %+v", f)
	}
}

func errorIsTheRuns(t *testing.T, serve side) {
	for name, test := range map[string]struct {
		err  error
		code plugin.Code
		rank int
		text string
	}{
		"with a rank": {&plugin.Error{Code: plugin.Mismatch, Rank: 1, Message: "rank 1 sent\x01 less"}, plugin.Mismatch, 1,
			"rank 1 sent? less"},
		"plain":        {fmt.Errorf("the cable is cut"), plugin.Internal, -1, "the cable is cut"},
		"no such code": {&plugin.Error{Code: 4711, Rank: -1, Message: "odd"}, plugin.Internal, -1, "odd"},
		"long":         {plugin.Errorf(plugin.System, "%s", strings.Repeat("x", 4000)), plugin.System, -1, "xxx"},
		"peer died":    {&plugin.Error{Code: plugin.PeerDied, Rank: 0, Message: "gone"}, plugin.PeerDied, 0, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			e, r := ringWorld(t, 2, serve, func(context.Context, *command) error { return test.err })
			e.setGrace(time.Millisecond)
			p := posting(t, e, 2, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 1) }) })
			f := failureOf(t, e.Run(p, arguments(nil, nil, 0, 0), testDeadline))
			if f.Code != test.code || f.Rank != test.rank || !strings.Contains(f.Reason, test.text) || f.Step < 0 {
				t.Errorf("got %+v, want %s, rank %d and %q", f, test.code, test.rank, test.text)
			}
		})
	}
}

// A command that has failed is one until its track has seen it: also where another track, whose turn comes first, posts
// the next one.
func TestNoCommandHidesThatAnotherHasFailed(t *testing.T) { onBothSides(t, hidesNoFailure) }

func hidesNoFailure(t *testing.T, serve side) {
	native, stuck := nativetest.NewStuck()
	const fails, other = 1, 2
	e, r := ringWorld(t, 1, serve, func(_ context.Context, c *command) error {
		if c.Operation == other {
			return nil
		}
		for !stuck.Entered() { // the first track has its turn, and uses it until this command is done
			runtime.Gosched()
		}
		return plugin.Errorf(plugin.System, "the cable is cut")
	})
	if r.Slots() != 2 {
		t.Fatalf("a ring of one rank has %d slots; the test wants 2", r.Slots())
	}
	p := posting(t, e, 1, func(b *plugin.Builder) {
		b.Track(func() {
			r.Post(b, other) // in slot 0
			r.Post(b, other)
			b.Native(native)
			r.Post(b, other) // would be in slot 1, as the fourth one
		})
		b.Track(func() { r.Post(b, fails) }) // in slot 1
	})
	go func() {
		for nativetest.DoneIn(r.Memory(), 1) == 0 {
			runtime.Gosched()
		}
		stuck.Release()
	}()
	if f := failureOf(t, e.Run(p, arguments(nil, nil, 0, 0), testDeadline)); f.Code != plugin.System ||
		f.Reason == "" || f.Track != 1 {
		t.Errorf("got %+v", f)
	}
}

// A wait for a command that does not end returns at the deadline and at an abort, and its error names the rank that the
// command waits for.
func TestACommandThatDoesNotEnd(t *testing.T) { onBothSides(t, doesNotEnd) }

func doesNotEnd(t *testing.T, serve side) {
	e, r := ringWorld(t, 2, serve, func(ctx context.Context, c *command) error {
		c.WaitsFor(1)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	p := posting(t, e, 2, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 1) }) })
	f := failureOf(t, e.Run(p, arguments(nil, nil, 0, 0), 50*time.Millisecond))
	if f.Code != plugin.Timeout || f.Rank != 1 {
		t.Errorf("at the deadline: %+v", f)
	}
	ended := make(chan error)
	go func() { ended <- e.Run(p, arguments(nil, nil, 0, 0), 0) }()
	waitForWaiting(e)
	e.Abort(plugin.PeerDied, 1)
	if f := failureOf(t, <-ended); f.Code != plugin.Aborted || f.Cause != plugin.PeerDied {
		t.Errorf("at an abort: %+v", f)
	}
	r.Abort("it is over")
}

// The ring's memory is the plugin's: whatever stands there, the run ends, with an error or
// at its deadline, and touches nothing else.
func TestAHostileRing(t *testing.T) {
	for name, spoil := range map[string]func(memory []byte){
		"ones":     func(m []byte) { fill(m, 0xFF) },
		"minimum":  func(m []byte) { fill(m, 0); m[7] = 0x80 },
		"negative": func(m []byte) { fill(m, 0); fill(m[:8], 0xFF) },
		"pattern":  func(m []byte) { fill(m, 0x7A) },
	} {
		t.Run(name, func(t *testing.T) {
			e, r := ringWorld(t, 2, nil, nil)
			head := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&r.Staging()[0]), -4096)), 4096)
			spoil(head)
			p := posting(t, e, 2, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 1, b.Const(5)) }) })
			// A ring may claim that a command is done: that is the plugin's to say.
			_ = e.Run(p, arguments(nil, nil, 0, 0), 20*time.Millisecond)
			for i, v := range r.Staging() {
				if v != 0 {
					t.Fatalf("staging byte %d is %d", i, v)
				}
			}
		})
	}
	// Numbers that no command has had: no slot is free, and none that a run waits for ever is.
	for _, done := range []int64{1, 2, math.MaxInt64} {
		e, r := ringWorld(t, 2, nil, nil)
		for i := range r.Slots() {
			nativetest.MarkDone(r.Memory(), i, done)
		}
		p := posting(t, e, 2, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 1) }) })
		f := failureOf(t, e.Run(p, arguments(nil, nil, 0, 0), 20*time.Millisecond))
		if want := fmt.Sprintf("command %d as done where command 0", done); f.Code != plugin.Protocol ||
			!strings.Contains(f.Reason, want) || f.Step < 0 {
			t.Errorf("got %+v, want %q", f, want)
		}
	}
	for _, slots := range []int64{-1, 0, 4097, 1 << 40} {
		e, r := ringWorld(t, 1, nil, nil)
		p := plan(t, 0, 1, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 1) }) })
		for i, v := range p.Consts {
			if v == 2 { // the slots of a world of one
				p.Consts[i] = slots
			}
		}
		program, err := e.Load(p, 0)
		must(t, err)
		if f := failureOf(t, e.Run(program, arguments(nil, nil, 0, 0), testDeadline)); f.Code != plugin.Internal ||
			!strings.Contains(f.Reason, "a ring of") {
			t.Errorf("%d slots: %+v", slots, f)
		}
		program.Free()
	}
}

// Kernels before 5.16 have no futex_waitv, and some containers' filters refuse it. A run that waits for a command
// sleeps all the same.
func TestWaitForACommandWithoutWaitv(t *testing.T) {
	const variable = "SHUNT_TEST_REFUSE_WAITV"
	refused, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		for _, number := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EACCES} {
			child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
			child.Env = append(os.Environ(), fmt.Sprint(variable, "=", int(number)))
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s", number, err, out)
			}
		}
		return
	}
	must(t, seccomptest.Deny(unix.SYS_FUTEX_WAITV, unix.Errno(refused)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid())
	sleeps := func() (n int) {
		text, err := os.ReadFile(status)
		_, line, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		if _, bad := fmt.Sscan(line, &n); err != nil || bad != nil {
			t.Error(err, bad)
		}
		return n
	}
	e, r := ringWorld(t, 1, inGo, func(context.Context, *command) error {
		deadline := time.Now().Add(3 * time.Second)
		for before := sleeps(); sleeps() < before+20; runtime.Gosched() {
			if time.Now().After(deadline) {
				return plugin.Errorf(plugin.Internal, "the rank does not sleep while it waits")
			}
		}
		return nil
	})
	p := posting(t, e, 1, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 7) }) })
	must(t, e.Run(p, arguments(nil, nil, 0, 0), testDeadline))
}

func fill(m []byte, v byte) {
	for i := range m {
		m[i] = v
	}
}

func BenchmarkRemote(b *testing.B) {
	e, r := ringWorld(b, 1, inGo, func(context.Context, *command) error { return nil })
	p := posting(b, e, 1, func(b *plugin.Builder) { b.Track(func() { r.Post(b, 1) }) })
	a := arguments(nil, nil, 0, 0)
	for b.Loop() {
		must(b, e.Run(p, a, testDeadline))
	}
}
