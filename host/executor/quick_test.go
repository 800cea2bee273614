package executor

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor/internal/stamp"
	"github.com/shunt-ccl/shunt/plugin"
)

// A ring of ringSlots slots of a line, as a root writes for all others: behind the
// counters of what was written and read stand the readers' credits, then the slots.
const (
	ringSlots   = 8
	ringCredits = 128
	ringFirst   = 1024
	ringBytes   = 4096
)

// ringPlan writes a broadcast through the ring; the root comes with the call. Half a ring
// is given back at a time.
func ringPlan(b *plugin.Builder, rank, world int) {
	b.Track(func() {
		region, me, zero, one := b.Const(testRegion), b.Const(int64(rank)), b.Const(0), b.Const(1)
		half, bytes, root := b.Const(ringSlots/2), b.Slot(plugin.SlotBytes), b.Slot(plugin.SlotRoot)
		slot := func(number plugin.Reg) plugin.Reg {
			return b.Add(b.Const(ringFirst), b.Mul(b.Mod(number, b.Const(ringSlots)), b.Const(64)))
		}
		isRoot := b.Eq(root, me)
		b.If(isRoot, func() {
			counter := b.Region(region, me, zero)
			number := b.Load(counter)
			b.If(b.Eq(b.Mod(number, half), zero), func() {
				for r := range world {
					if r != rank {
						peer := b.Const(int64(r))
						b.Wait(b.Region(region, peer, b.Const(ringCredits+64*int64(rank))), b.Sub(number, half), peer)
					}
				}
			})
			b.Copy(b.Region(region, me, b.Add(slot(number), b.Const(8))), b.Send(zero), bytes)
			b.SignalAll(b.Region(region, me, slot(number)), b.Add(number, one))
			b.Store(counter, b.Add(number, one))
		})
		b.If(b.Eq(isRoot, zero), func() {
			counter := b.Region(region, me, b.Add(b.Const(8), b.Mul(root, b.Const(8))))
			number := b.Load(counter)
			next := b.Add(number, one)
			b.Wait(b.Region(region, root, slot(number)), next, root)
			b.Copy(b.Recv(zero), b.Region(region, root, b.Add(slot(number), b.Const(8))), bytes)
			b.If(b.Eq(b.Mod(next, half), zero), func() {
				b.Signal(b.Region(region, me, b.Add(b.Const(ringCredits), b.Mul(root, b.Const(64)))), next, root)
			})
			b.Store(counter, next)
		})
	})
}

// quickRank is one rank's end of the ring.
type quickRank struct {
	engine    *Engine
	program   *Program
	quick     *Quick
	memory    []byte
	arguments *Arguments
	record    [6]uint64
}

func quickWorld(t testing.TB, n int) (*world, []*quickRank) {
	t.Helper()
	if !stamp.Available {
		t.Skip("no short forms on " + runtime.GOARCH + ": package stamp is assembly for amd64")
	}
	w := newWorld(t, n, ringBytes)
	var ranks []*quickRank
	for r, e := range w.engines {
		q := &quickRank{engine: e, memory: make([]byte, 8)}
		q.program = load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) { ringPlan(b, r, n) })
		q.arguments = arguments(q.memory, q.memory, 8, 8)
		q.record = RecordOf(uint32(plugin.Broadcast), uint32(plugin.Uint8), 0, 8, 0)
		q.shorten(t)
		ranks = append(ranks, q)
	}
	return w, ranks
}

func (q *quickRank) shorten(t testing.TB) {
	t.Helper()
	if q.quick = q.program.Quick(q.arguments); q.quick == nil {
		t.Fatal("the program has no short form")
	}
}

func (q *quickRank) try() bool {
	q.record[0]++
	q.record[4]++
	return q.quick.Try(q.arguments.Send, q.arguments.Recv, &q.record)
}

func (q *quickRank) put(v uint64)  { binary.LittleEndian.PutUint64(q.memory, v) }
func (q *quickRank) value() uint64 { return binary.LittleEndian.Uint64(q.memory) }

// steady makes the engine believe that Go's scheduler had its turn just now.
func (q *quickRank) steady(t testing.TB) {
	t.Helper()
	empty := load(t, q.engine, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.Add(b.Const(1), b.Const(1)) })
	})
	must(t, q.engine.Run(empty, arguments(nil, nil, 0, 0), testDeadline))
	q.engine.turnDue = false
}

// tryHard is try for a run that need not wait: it fails only where the scheduler is due a
// turn.
func (q *quickRank) tryHard(t testing.TB) bool {
	t.Helper()
	q.steady(t)
	return q.try()
}

// Ranks go the short way and the long way as it comes, with changing roots.
func TestQuickAndRunShareTheirCounters(t *testing.T) {
	const n, rounds = 3, 6000
	w, ranks := quickWorld(t, n)
	forms := make([][]*Quick, n)
	for r, q := range ranks {
		for root := range n {
			q.arguments.Slots[plugin.SlotRoot] = int64(root)
			q.shorten(t)
			forms[r] = append(forms[r], q.quick)
		}
	}
	short := make([]int, n)
	w.run(func(rank int, e *Engine) error {
		q := ranks[rank]
		for i := range rounds {
			root := i / 40 % n
			want := uint64(i)<<8 | uint64(root)
			q.put(^uint64(0))
			if rank == root {
				q.put(want)
			}
			q.arguments.Slots[plugin.SlotRoot], q.quick = int64(root), forms[rank][root]
			switch {
			case i%3 != rank && q.try():
				short[rank]++
			default:
				if err := e.Run(q.program, q.arguments, testDeadline); err != nil {
					return err
				}
			}
			if q.value() != want {
				return fmt.Errorf("operation %d: got %#x, want %#x", i, q.value(), want)
			}
		}
		return nil
	})
	for r, n := range short {
		if n == 0 {
			t.Errorf("rank %d never went the short way", r)
		}
	}
}

// A signal of a short form wakes a rank that sleeps.
func TestQuickWakesSleepers(t *testing.T) {
	w, ranks := quickWorld(t, 2)
	w.engines[1].SetPolicy(Policy{})
	w.engines[1].c.policy.slice_usec = 3600e6 // it never looks by itself
	for i := range uint64(50) {
		done := make(chan error)
		go func() { done <- w.engines[1].Run(ranks[1].program, ranks[1].arguments, testDeadline) }()
		for waiting := false; !waiting && i%2 == 0; { // every other time it may not sleep yet
			waiting, _, _, _ = w.engines[1].Waiting()
		}
		ranks[0].put(i)
		if !ranks[0].tryHard(t) {
			t.Fatal("the root had to wait")
		}
		must(t, <-done)
		if ranks[1].value() != i {
			t.Fatalf("got %d, want %d", ranks[1].value(), i)
		}
	}
}

func TestQuickRefusesWhatRunMustExplain(t *testing.T) {
	w, ranks := quickWorld(t, 2)
	root := ranks[0]
	root.steady(t)
	if !root.try() {
		t.Fatal("the root had to wait")
	}
	root.steady(t)
	if root.quick.Try(nil, nil, &root.record) {
		t.Error("ran without memory")
	}
	if root.quick.Stale() {
		t.Error("stale before anything has changed")
	}
	must(t, root.engine.SetRegion(0, 1, 0, memory(w.regions[0])))
	if !root.quick.Stale() || root.tryHard(t) {
		t.Error("ran with addresses of before")
	}
	root.shorten(t)
	if !root.tryHard(t) {
		t.Error("did not run with new addresses")
	}
	root.engine.Abort(plugin.PeerDied, 1)
	root.engine.turnDue = false
	if root.try() {
		t.Error("ran after an abort")
	}
	root.engine.Close()
	if root.try() || root.program.Quick(root.arguments) != nil {
		t.Error("ran after Close")
	}
}

// The page that peers read and the flight recorder hold what they hold after Run.
func TestQuickIsRecorded(t *testing.T) {
	w, ranks := quickWorld(t, 2)
	root := ranks[0]
	must(t, root.engine.SetFlights(3))
	for i := range 4 {
		if !root.tryHard(t) {
			t.Fatal("the root had to wait")
		}
		seen := w.engines[1].PeerRecord(0)
		if !seen.Valid || !seen.Ended || seen.Seq != uint64(i+1) || seen.Collective != plugin.Broadcast ||
			seen.DType != plugin.Uint8 || seen.Count != 8 {
			t.Fatalf("peers see %+v", seen)
		}
	}
	flights := root.engine.Flights()
	slices.SortFunc(flights, func(a, b Flight) int { return int(a.Number) - int(b.Number) })
	var numbers []uint64
	for _, f := range flights {
		if f.Collective == plugin.Broadcast {
			numbers = append(numbers, f.Number)
			if f.End == 0 || f.End != f.Begin || f.Failed || f.Count != 8 || f.DType != plugin.Uint8 {
				t.Errorf("recorded %+v", f)
			}
		}
	}
	if !slices.Equal(numbers, []uint64{2, 3, 4}) {
		t.Errorf("recorded operations %v", numbers)
	}
}

// Now and then an operation goes through C, for Go's scheduler and the peers.
func TestQuickGivesTheSchedulerItsTurn(t *testing.T) {
	_, ranks := quickWorld(t, 2)
	root, reader := ranks[0], ranks[1]
	root.steady(t)
	for deadline := time.Now().Add(testDeadline); root.try(); {
		if time.Now().After(deadline) {
			t.Fatal("never went through C")
		}
		if !reader.tryHard(t) {
			t.Fatal("the message is not there")
		}
	}
	if root.engine.turnDue {
		t.Error("it is due once only")
	}
}

// What takes long has no short form, nor what TestQuickDoesWhatRunDoes does not try.
func TestQuickLeavesOtherPlansAlone(t *testing.T) {
	if !stamp.Available {
		t.Skip("no short forms on " + runtime.GOARCH + ": package stamp is assembly for amd64")
	}
	w := newWorld(t, 2, ringBytes)
	memory := make([]byte, 2*quickBytes)
	word := func(b *plugin.Builder, at int64) plugin.RefID {
		return b.Region(b.Const(testRegion), b.Const(0), b.Const(at))
	}
	for name, body := range map[string]func(b *plugin.Builder){
		"nothing wrong": func(b *plugin.Builder) {
			b.Track(func() { b.Store(word(b, 0), b.Const(1)) })
		},
		"two tracks": func(b *plugin.Builder) {
			b.Track(func() { b.Store(word(b, 0), b.Const(1)) })
			b.Track(func() { b.Store(word(b, 8), b.Const(1)) })
		},
		"a loop": func(b *plugin.Builder) {
			b.Track(func() { b.Loop(b.Const(1), func(plugin.Reg) { b.Store(word(b, 0), b.Const(1)) }) })
		},
		"a wait behind a store that may be skipped": func(b *plugin.Builder) {
			b.Track(func() {
				b.If(b.Load(word(b, 0)), func() { b.Store(word(b, 0), b.Const(1)) })
				b.Wait(word(b, 64), b.Const(0), b.Const(1))
			})
		},
		"a long copy": func(b *plugin.Builder) {
			b.Track(func() { b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(0)), b.Const(quickBytes+1)) })
		},
		"a copy beyond the memory": func(b *plugin.Builder) {
			b.Track(func() { b.Copy(b.Recv(b.Const(2*quickBytes-7)), b.Send(b.Const(0)), b.Const(8)) })
		},
		"a slot beyond the region": func(b *plugin.Builder) {
			b.Track(func() {
				at := b.Mul(b.Mod(b.Load(word(b, 0)), b.Const(ringBytes/64)), b.Const(64))
				b.Store(b.Region(b.Const(testRegion), b.Const(0), b.Add(at, b.Const(64))), b.Const(1))
			})
		},
		"a misaligned word": func(b *plugin.Builder) {
			b.Track(func() { b.Store(word(b, 4), b.Const(1)) })
		},
		"a region that is not there": func(b *plugin.Builder) {
			b.Track(func() { b.Store(b.Region(b.Const(3), b.Const(0), b.Const(0)), b.Const(1)) })
		},
		"a rank that is not there": func(b *plugin.Builder) {
			b.Track(func() { b.Store(b.Region(b.Const(testRegion), b.Const(2), b.Const(0)), b.Const(1)) })
		},
		"a reduction": func(b *plugin.Builder) {
			b.Track(func() { b.Reduce(b.Recv(b.Const(0)), b.Const(8), b.Send(b.Const(0))) })
		},
	} {
		p := load(t, w.engines[0], plugin.Uint8, plugin.OpSum, body)
		if got := p.Quick(arguments(memory, memory, 8, 8)) != nil; got != (name == "nothing wrong") {
			t.Errorf("%s: a short form: %v", name, got)
		}
	}
	if unsafe.Sizeof(quickStep{}) > 256 {
		t.Errorf("a step of a short form has grown to %d bytes", unsafe.Sizeof(quickStep{}))
	}
}
