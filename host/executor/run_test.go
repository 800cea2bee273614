package executor

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestAllReduceOneShot(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 8} {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			w := newWorld(t, n, 8192)
			w.run(func(rank int, e *Engine) error {
				p := load(t, e, plugin.Float32, plugin.OpSum, func(b *plugin.Builder) { oneShot(b, rank, n, 1024) })
				for round := range 200 {
					send, recv := floats(float32(rank+1), float32(round)), make([]byte, 8)
					if err := e.Run(p, arguments(send, recv, 2, 8), testDeadline); err != nil {
						return err
					}
					if want := floats(float32(n*(n+1)/2), float32(round*n)); !bytes.Equal(recv, want) {
						return fmt.Errorf("round %d: got %v, want %v", round, recv, want)
					}
				}
				return nil
			})
		})
	}
}

func TestRunDoesNotAllocate(t *testing.T) {
	w := newWorld(t, 1, 8192)
	e := w.engines[0]
	p := load(t, e, plugin.Float32, plugin.OpSum, func(b *plugin.Builder) { oneShot(b, 0, 1, 1024) })
	a := arguments(floats(1, 2), make([]byte, 8), 2, 8)
	a.Arrays = make([]int64, 4)
	if n := testing.AllocsPerRun(100, func() {
		e.Record(1, 1, 0, 7, 0, 2, 0)
		must(t, e.Run(p, a, testDeadline))
	}); n != 0 {
		t.Errorf("%v allocations per run, want 0", n)
	}
}

func BenchmarkRun8B(b *testing.B) {
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("world=", n), func(b *testing.B) {
			w := newWorld(b, n, 8192)
			b.ReportAllocs()
			w.run(func(rank int, e *Engine) error {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				p := load(b, e, plugin.Float32, plugin.OpSum, func(b *plugin.Builder) { oneShot(b, rank, n, 1024) })
				a := arguments(floats(1, 2), make([]byte, 8), 2, 8)
				for i := range b.N {
					e.Record(uint64(i+1), uint64(i+1), 0, 7, 0, 2, 0)
					if err := e.Run(p, a, testDeadline); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func BenchmarkRunNothing(b *testing.B) {
	w := newWorld(b, 1, 8192)
	p := load(b, w.engines[0], plugin.Float32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() {}) })
	a := arguments(nil, nil, 0, 0)
	for b.Loop() {
		if err := w.engines[0].Run(p, a, 0); err != nil {
			b.Fatal(err)
		}
	}
}
