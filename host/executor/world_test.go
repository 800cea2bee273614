package executor

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	// Ranks are goroutines that block in C: each needs a thread to itself.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 8))
	goleak.VerifyTestMain(m)
}

// world is a communicator of engines in this process, each with its own
// mappings of every rank's memfds, as separate processes would have.
type world struct {
	t       testing.TB
	engines []*Engine
	regions [][]byte // of each rank, as that rank maps its own
}

const testRegion = 0 // region number of the one region of a test world

func newWorld(t testing.TB, n int, regionBytes int) *world {
	t.Helper()
	w := &world{t: t}
	var controls, regions []int
	for range n {
		controls = append(controls, memfd(t, ControlBytes))
		regions = append(regions, memfd(t, regionBytes))
	}
	for r := range n {
		e, err := NewEngine(r, n)
		must(t, err)
		e.SetOversubscribed(n > runtime.NumCPU())
		for peer := range n {
			must(t, e.SetControl(peer, memory(mapped(t, controls[peer], ControlBytes))))
			m := mapped(t, regions[peer], regionBytes)
			must(t, e.SetRegion(0, testRegion, peer, memory(m)))
			if peer == r {
				w.regions = append(w.regions, m)
			}
		}
		t.Cleanup(e.Close) // runs before the mappings' cleanups
		w.engines = append(w.engines, e)
	}
	return w
}

// each runs one function per rank at the same time.
func (w *world) each(f func(rank int, e *Engine) error) []error {
	errs := make([]error, len(w.engines))
	var group sync.WaitGroup
	for r, e := range w.engines {
		group.Go(func() { errs[r] = f(r, e) })
	}
	group.Wait()
	return errs
}

// run is each where no rank may fail.
func (w *world) run(f func(rank int, e *Engine) error) {
	w.t.Helper()
	for r, err := range w.each(f) {
		if err != nil {
			w.t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func memfd(t testing.TB, bytes int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("shunt-test", unix.MFD_CLOEXEC)
	must(t, err)
	must(t, unix.Ftruncate(fd, int64(bytes)))
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	return fd
}

func mapped(t testing.TB, fd, bytes int) []byte {
	t.Helper()
	m, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(m)) })
	return m
}

func memory(b []byte) Memory {
	return Memory{Base: unsafe.Pointer(unsafe.SliceData(b)), Bytes: int64(len(b))}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plan builds a plan for one rank.
func plan(t testing.TB, rank, world int, dtype plugin.DType, op plugin.Op, body func(b *plugin.Builder)) *plugin.Plan {
	t.Helper()
	b := plugin.NewBuilder(plugin.Request{Collective: plugin.AllReduce, DType: dtype, Op: op, World: world, Rank: rank},
		"test")
	body(b)
	p, err := b.Plan()
	must(t, err)
	return p
}

// load builds and loads a plan; it is freed when the test ends.
func load(t testing.TB, e *Engine, dtype plugin.DType, op plugin.Op, body func(b *plugin.Builder)) *Program {
	t.Helper()
	p, err := e.Load(plan(t, e.rank, e.world, dtype, op, body), 0)
	must(t, err)
	t.Cleanup(p.Free)
	return p
}

// arguments fill the slots of an operation on send and recv.
func arguments(send, recv []byte, count, bytes int64) *Arguments {
	a := &Arguments{Send: unsafe.Pointer(unsafe.SliceData(send)), Recv: unsafe.Pointer(unsafe.SliceData(recv))}
	a.Slots[plugin.SlotCount], a.Slots[plugin.SlotBytes] = count, bytes
	a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = int64(len(send)), int64(len(recv))
	return a
}

// oneShot writes an all_reduce of at most slotBytes: publish in one of two slots by
// parity, signal everyone, wait for everyone, reduce from the slots. A region holds a
// counter at 0, the semaphore at 64, and slots from 128.
func oneShot(b *plugin.Builder, rank, world int, slotBytes int64) {
	b.Track(func() {
		me, region := b.Const(int64(rank)), b.Const(testRegion)
		zero := b.Const(0)
		counter := b.Region(region, me, zero)
		epoch := b.Add(b.Load(counter), b.Const(1))
		b.Store(counter, epoch)
		slot := b.Add(b.Const(128), b.Mul(b.Mod(epoch, b.Const(2)), b.Const(slotBytes)))
		b.Copy(b.Region(region, me, slot), b.SendScaled(zero), b.Slot(plugin.SlotBytes))
		b.SignalAll(b.Region(region, me, b.Const(64)), epoch)
		var sources []plugin.RefID
		for r := range world {
			peer := b.Const(int64(r))
			b.Wait(b.Region(region, peer, b.Const(64)), epoch, peer)
			sources = append(sources, b.Region(region, peer, slot))
		}
		b.Reduce(b.Recv(zero), b.Slot(plugin.SlotCount), sources...)
	})
}

func floats(values ...float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

func failureOf(t testing.TB, err error) *Failure {
	t.Helper()
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("%v carries no Failure", err)
	}
	return f
}

const testDeadline = 20 * time.Second
