package executor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor/internal/nativetest"
	"github.com/shunt-ccl/shunt/plugin"
)

// own returns a ref into this rank's region at a constant offset.
func own(b *plugin.Builder, rank int, offset int64) plugin.RefID {
	return b.Region(b.Const(testRegion), b.Const(int64(rank)), b.Const(offset))
}

func wordAt(region []byte, offset int) int64 {
	return int64(binary.LittleEndian.Uint64(region[offset:]))
}

func setWord(region []byte, offset int, v int64) {
	binary.LittleEndian.PutUint64(region[offset:], uint64(v))
}

// alone runs a plan in a world of one and returns the region and the error.
func alone(t testing.TB, send, recv []byte, body func(b *plugin.Builder)) ([]byte, error) {
	t.Helper()
	w := newWorld(t, 1, 8192)
	p := load(t, w.engines[0], plugin.Int32, plugin.OpSum, body)
	return w.regions[0], w.engines[0].Run(p, arguments(send, recv, int64(len(send)/4), int64(len(send))), testDeadline)
}

func TestSetComputesEveryAlu(t *testing.T) {
	const least, most = math.MinInt64, math.MaxInt64
	cases := []struct {
		alu             plugin.Alu
		a, b, c, result int64
	}{
		{plugin.AluMov, 7, 0, 0, 7},
		{plugin.AluAdd, most, 1, 0, least}, {plugin.AluSub, least, 1, 0, most}, {plugin.AluMul, most, 2, 0, -2},
		{plugin.AluDiv, 7, 2, 0, 3}, {plugin.AluDiv, -7, 2, 0, -3}, {plugin.AluDiv, 1 << 40, 3, 0, (1 << 40) / 3},
		{plugin.AluDiv, 5, 0, 0, 0}, {plugin.AluDiv, 1 << 50, 0, 0, 0}, {plugin.AluDiv, least, -1, 0, least},
		{plugin.AluDiv, 6, -1, 0, -6},
		{plugin.AluMod, 7, 3, 0, 1}, {plugin.AluMod, 7, 4, 0, 3}, {plugin.AluMod, -7, 4, 0, -3},
		{plugin.AluMod, -7, 3, 0, -1},
		{plugin.AluMod, 7, 0, 0, 0}, {plugin.AluMod, least, -1, 0, 0}, {plugin.AluMod, 7, -4, 0, 3},
		{plugin.AluMod, most, 1, 0, 0},
		{plugin.AluMin, -3, 2, 0, -3}, {plugin.AluMax, -3, 2, 0, 2},
		{plugin.AluLt, 1, 2, 0, 1}, {plugin.AluLt, 2, 2, 0, 0}, {plugin.AluLe, 2, 2, 0, 1}, {plugin.AluLe, 3, 2, 0, 0},
		{plugin.AluEq, 4, 4, 0, 1}, {plugin.AluEq, 4, 5, 0, 0}, {plugin.AluNe, 4, 5, 0, 1}, {plugin.AluNe, 4, 4, 0, 0},
		{plugin.AluSelect, 2, 5, 6, 5}, {plugin.AluSelect, 0, 5, 6, 6},
	}
	tested := map[plugin.Alu]bool{}
	region, err := alone(t, nil, nil, func(b *plugin.Builder) {
		b.Track(func() {
			for i, c := range cases {
				tested[c.alu] = true
				result := b.Temp()
				b.Set(result, c.alu, b.Const(c.a), b.Const(c.b), b.Const(c.c))
				b.Store(own(b, 0, int64(8*i)), result)
			}
		})
	})
	must(t, err)
	for i, c := range cases {
		if got := wordAt(region, 8*i); got != c.result {
			t.Errorf("%s(%d, %d, %d) = %d, want %d", c.alu, c.a, c.b, c.c, got, c.result)
		}
	}
	for _, alu := range plugin.Alus() {
		if !tested[alu] {
			t.Errorf("%s has no case", alu)
		}
	}
}

func TestTemporariesStartAtZeroInEveryRun(t *testing.T) {
	w := newWorld(t, 1, 8192)
	e := w.engines[0]
	p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			v := b.Temp()
			b.Set(v, plugin.AluAdd, v, b.Const(5), 0)
			b.Store(own(b, 0, 0), v)
		})
	})
	for range 3 {
		must(t, e.Run(p, arguments(nil, nil, 0, 0), testDeadline))
		if got := wordAt(w.regions[0], 0); got != 5 {
			t.Fatalf("got %d, want 5", got)
		}
	}
}

func TestSlotsReachEveryTrack(t *testing.T) {
	const n = 3
	w := newWorld(t, n, 8192)
	slots := plugin.SlotCountOf(n)
	p := load(t, w.engines[0], plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		for track := range 2 {
			b.Track(func() {
				for s := range slots {
					b.Store(own(b, 0, int64(8*(track*slots+s))), plugin.Reg(s))
				}
			})
		}
	})
	a := arguments(nil, nil, 0, 0)
	for i := range a.Slots {
		a.Slots[i] = int64(100 + i)
	}
	a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 0, 0
	check := func(arrays bool) {
		t.Helper()
		must(t, w.engines[0].Run(p, a, testDeadline))
		for i := range 2 * slots {
			s, want := i%slots, int64(0)
			if s < len(a.Slots) {
				want = a.Slots[s]
			} else if arrays {
				want = a.Arrays[s-len(a.Slots)]
			}
			if got := wordAt(w.regions[0], 8*i); got != want {
				t.Errorf("slot %d of track %d is %d, want %d", s, i/slots, got, want)
			}
		}
	}
	for i := range 4 * n {
		a.Arrays = append(a.Arrays, int64(1000+i))
	}
	check(true)
	a.Arrays = nil
	check(false)
}

func TestCopyMovesExactlyItsBytes(t *testing.T) {
	w := newWorld(t, 1, 8192)
	e := w.engines[0]
	p := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			b.Copy(b.Recv(b.Slot(plugin.SlotOffset)), b.Send(b.Slot(plugin.SlotRoot)), b.Slot(plugin.SlotBytes))
		})
	})
	src := make([]byte, 10<<20)
	for i := range src {
		src[i] = byte(i*31 + i>>8 + 1)
	}
	sizes := []int{}
	for n := range 70 {
		sizes = append(sizes, n)
	}
	sizes = append(sizes, 4095, 4096, 4097, 1<<20+3, 4<<20, 4<<20+1, 9<<20+7)
	for _, n := range sizes {
		dst := bytes.Repeat([]byte{0xEE}, n+16)
		a := arguments(src, dst, int64(n), int64(n))
		a.Slots[plugin.SlotOffset], a.Slots[plugin.SlotRoot] = 8, 3
		must(t, e.Run(p, a, testDeadline))
		want := slices.Concat(bytes.Repeat([]byte{0xEE}, 8), src[3:3+n], bytes.Repeat([]byte{0xEE}, 8))
		if !bytes.Equal(dst, want) {
			t.Fatalf("%d bytes came out wrong", n)
		}
	}
}

func TestOverlappingCopyIsMemmove(t *testing.T) {
	w := newWorld(t, 1, 8192)
	p := load(t, w.engines[0], plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			b.Copy(b.Recv(b.Slot(plugin.SlotOffset)), b.Send(b.Slot(plugin.SlotRoot)), b.Slot(plugin.SlotBytes))
		})
	})
	for _, n := range []int{1, 2, 3, 5, 8, 13, 16, 17, 100, 5000, 6 << 20} {
		for _, shift := range []int{-3, -1, 0, 1, 2, 9} {
			memory := make([]byte, n+32)
			for i := range memory {
				memory[i] = byte(i * 17)
			}
			want := slices.Clone(memory)
			copy(want[16+shift:][:n], want[16:16+n])
			a := arguments(memory, memory, int64(n), int64(n))
			a.Slots[plugin.SlotRoot], a.Slots[plugin.SlotOffset] = 16, int64(16+shift)
			must(t, w.engines[0].Run(p, a, testDeadline))
			if !bytes.Equal(memory, want) {
				t.Fatalf("%d bytes moved by %d came out wrong", n, shift)
			}
		}
	}
}

func TestNullMemoryWithoutBytesIsFine(t *testing.T) {
	_, err := alone(t, nil, nil, func(b *plugin.Builder) {
		b.Track(func() {
			b.Copy(b.Recv(b.Const(1<<40)), b.Send(b.Const(-5)), b.Slot(plugin.SlotBytes))
			b.Reduce(b.Recv(b.Const(0)), b.Slot(plugin.SlotCount), b.Send(b.Const(0)), b.Send(b.Const(8)))
		})
	})
	must(t, err)
}

func TestLoopsAndIfs(t *testing.T) {
	const at = 64
	region, err := alone(t, nil, nil, func(b *plugin.Builder) {
		b.Track(func() {
			log := b.Temp() // how many words were logged
			one := b.Const(1)
			note := func(v plugin.Reg) {
				place := b.Add(b.Const(at), b.Mul(log, b.Const(8)))
				b.Store(b.Region(b.Const(testRegion), b.Const(0), place), v)
				b.Set(log, plugin.AluAdd, log, one, 0)
			}
			b.Loop(b.Const(0), func(plugin.Reg) { note(b.Const(-1)) })
			b.Loop(b.Const(math.MinInt64), func(plugin.Reg) { note(b.Const(-2)) })
			b.Loop(b.Const(2), func(i plugin.Reg) {
				b.Loop(b.Const(3), func(k plugin.Reg) {
					b.If(b.Ne(k, b.Const(1)), func() {
						note(b.Add(b.Mul(i, b.Const(10)), k))
						b.If(b.Eq(i, one), func() { note(b.Const(77)) })
					})
					// The counter is the executor's own: spoiling the index
					// does not change how often the body runs.
					b.Set(k, plugin.AluMov, b.Const(1000), 0, 0)
				})
			})
			b.If(b.Const(0), func() { note(b.Const(-3)) })
			b.Loop(b.Const(1), func(plugin.Reg) { b.If(b.Const(0), func() { note(b.Const(-4)) }) })
			b.Store(own(b, 0, 0), log)
		})
	})
	must(t, err)
	var got []int64
	for i := range int(wordAt(region, 0)) {
		got = append(got, wordAt(region, at+8*i))
	}
	if want := []int64{0, 2, 10, 77, 12, 77}; !slices.Equal(got, want) {
		t.Errorf("logged %v, want %v", got, want)
	}
}

func TestTracksTakeTurns(t *testing.T) {
	const ping, pong, rounds = 0, 64, 100
	region, err := alone(t, nil, nil, func(b *plugin.Builder) {
		me := b.Const(0)
		for _, order := range [][2]int64{{ping, pong}, {pong, ping}} {
			b.Track(func() {
				b.Loop(b.Const(rounds), func(i plugin.Reg) {
					next := b.Add(i, b.Const(1))
					if order[0] == ping {
						b.Signal(own(b, 0, ping), next, me)
						b.Wait(own(b, 0, pong), next, me)
					} else {
						b.Wait(own(b, 0, ping), next, me)
						b.Signal(own(b, 0, pong), next, me)
					}
				})
			})
		}
	})
	must(t, err)
	if wordAt(region, ping) != rounds || wordAt(region, pong) != rounds {
		t.Errorf("counters are %d and %d, want %d", wordAt(region, ping), wordAt(region, pong), rounds)
	}
}

func TestManyTracksWaitingInAnyOrder(t *testing.T) {
	const n = 300
	region, err := alone(t, nil, nil, func(b *plugin.Builder) {
		for i := range int64(n) { // track i waits for track i+1; the last starts them
			b.Track(func() {
				if i < n-1 {
					b.Wait(own(b, 0, 8*(i+1)), b.Const(1), plugin.Reg(plugin.SlotRoot))
				}
				b.Signal(own(b, 0, 8*i), b.Const(1), b.Const(0))
			})
		}
	})
	must(t, err)
	for i := range n {
		if wordAt(region, 8*i) != 1 {
			t.Fatalf("track %d did not run", i)
		}
	}
}

func TestWaitComparesBySignedDifference(t *testing.T) {
	cases := []struct {
		semaphore, value int64
		passes           bool
	}{
		{5, 5, true}, {6, 5, true}, {4, 5, false},
		{math.MinInt64, math.MaxInt64, true}, // wrapped by one
		{math.MaxInt64, math.MinInt64, false},
	}
	for _, c := range cases {
		w := newWorld(t, 1, 8192)
		setWord(w.regions[0], 0, c.semaphore)
		p := load(t, w.engines[0], plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() { b.Wait(own(b, 0, 0), b.Const(c.value), b.Const(0)) })
		})
		err := w.engines[0].Run(p, arguments(nil, nil, 0, 0), 1)
		if (err == nil) != c.passes {
			t.Errorf("waiting for %d at %d: %v", c.value, c.semaphore, err)
		}
	}
}

func TestBarrierKeepsRanksTogether(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		const rounds = 300
		w := newWorld(t, n, 8192)
		w.run(func(rank int, e *Engine) error {
			// Each round: write the round at 128, barrier, read those of all ranks.
			p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
				b.Track(func() {
					round := b.Slot(plugin.SlotOffset)
					b.Store(own(b, rank, 128), round)
					b.Barrier(own(b, rank, 64), own(b, rank, 0))
					for peer := range n {
						b.Store(own(b, rank, int64(256+8*peer)), b.Load(own(b, peer, 128)))
					}
					b.Barrier(own(b, rank, 64), own(b, rank, 0))
				})
			})
			a := arguments(nil, nil, 0, 0)
			for round := range int64(rounds) {
				a.Slots[plugin.SlotOffset] = round
				if err := e.Run(p, a, testDeadline); err != nil {
					return err
				}
				for peer := range n {
					if got := wordAt(w.regions[rank], 256+8*peer); got != round {
						return fmt.Errorf("round %d: rank %d was at %d", round, peer, got)
					}
				}
			}
			return nil
		})
	}
}

func TestScaledCopyMultiplies(t *testing.T) {
	w := newWorld(t, 1, 8192)
	p := load(t, w.engines[0], plugin.Float32, plugin.OpPremulSum, func(b *plugin.Builder) {
		b.Track(func() { b.Copy(b.Recv(b.Const(0)), b.SendScaled(b.Const(0)), b.Slot(plugin.SlotBytes)) })
	})
	send, recv := floats(1, -2, 3), make([]byte, 12)
	a := arguments(send, recv, 3, 12)
	a.Slots[plugin.SlotScalar] = int64(math.Float64bits(0.5))
	must(t, w.engines[0].Run(p, a, testDeadline))
	if want := floats(0.5, -1, 1.5); !bytes.Equal(recv, want) {
		t.Errorf("got %v, want %v", recv, want)
	}
	a.Slots[plugin.SlotBytes] = 10
	f := failureOf(t, w.engines[0].Run(p, a, testDeadline))
	if f.Code != plugin.Internal || f.Reason != "a scaled copy of 10 bytes is not a whole number of elements of 4" {
		t.Errorf("got %+v", f)
	}
}

func TestNativeSeesTheRegisterFile(t *testing.T) {
	w := newWorld(t, 2, 8192)
	native, seen := nativetest.New(plugin.OK)
	defer seen.Free()
	p := plan(t, 0, 2, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			b.Store(own(b, 0, 0), b.Const(42))
			b.Store(own(b, 0, 8), b.Add(b.Const(1), b.Const(2)))
		})
	})
	p.Natives = []plugin.Native{native}
	p.Steps = append(p.Steps, plugin.Step{Kind: plugin.StepNative})
	p.Tracks[0].Count++
	program, err := w.engines[0].Load(p, 0)
	must(t, err)
	defer program.Free()
	send, recv := make([]byte, 8), make([]byte, 8)
	a := arguments(send, recv, int64(p.Registers()), 8)
	a.Arrays = []int64{10, 11, 12, 13, 14, 15, 16, 17}
	for range 2 {
		must(t, w.engines[0].Run(program, a, testDeadline))
	}
	if seen.Calls() != 2 {
		t.Errorf("%d calls, want 2", seen.Calls())
	}
	if s, r := seen.Memory(); s != unsafe.Pointer(&send[0]) || r != unsafe.Pointer(&recv[0]) {
		t.Errorf("send %p and receive %p", s, r)
	}
	want := slices.Concat(a.Slots[:], a.Arrays, p.Consts, []int64{3})
	for i, v := range want {
		if seen.Register(i) != v {
			t.Errorf("register %d is %d, want %d", i, seen.Register(i), v)
		}
	}
}

func TestNativeFailureIsTheRunsFailure(t *testing.T) {
	w := newWorld(t, 1, 8192)
	native, seen := nativetest.New(plugin.Device)
	defer seen.Free()
	p := plan(t, 0, 1, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() { b.Load(own(b, 0, 0)) }) })
	p.Natives = []plugin.Native{native}
	p.Steps = append(p.Steps, plugin.Step{Kind: plugin.StepNative})
	p.Tracks[0].Count++
	program, err := w.engines[0].Load(p, 0)
	must(t, err)
	defer program.Free()
	f := failureOf(t, w.engines[0].Run(program, arguments(nil, nil, 0, 0), testDeadline))
	if f.Code != plugin.Device || f.Step != 1 {
		t.Errorf("got %+v", f)
	}
}
