package executor

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor/internal/stamp"
	"github.com/shunt-ccl/shunt/plugin"
)

// shortPlanOf reads a plan of one track from fuzz input, of the steps that short
// forms know, over registers that are mostly small.
func shortPlanOf(data []byte) *plugin.Plan {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		v := int(data[0]) % n
		data = data[1:]
		return v
	}
	p := &plugin.Plan{
		Algorithm: "fuzz", Collective: plugin.Broadcast, DType: plugin.Uint8, World: 2, Temps: 8,
		Consts: []int64{0, 1, 2, 8, 16, 40, 63, 64, -1, -8, 1 << 40, 1 << 62, -1 << 63},
	}
	consts := plugin.SlotCountOf(2)
	temps := consts + len(p.Consts)
	constant := func() uint16 { return uint16(consts + next(len(p.Consts))) }
	temp := func() uint16 { return uint16(temps + next(p.Temps)) }
	register := func() uint16 {
		if next(3) > 0 {
			return temp()
		}
		return uint16(next(temps))
	}
	ref := func(spaces int) uint16 {
		r := plugin.Ref{
			Space: plugin.Space(next(spaces)), Region: uint16(consts), Rank: uint16(consts + next(2)),
			Offset: register(), Scale: plugin.None,
		}
		if spaces == 1 {
			r.Space = plugin.SpaceRegion
		}
		p.Refs = append(p.Refs, r)
		return uint16(len(p.Refs) - 1)
	}
	alus := []plugin.Alu{
		plugin.AluAdd, plugin.AluMod, plugin.AluMul, plugin.AluEq, plugin.AluNe, plugin.AluSub, plugin.AluMov,
		plugin.AluDiv, plugin.AluMin, plugin.AluMax, plugin.AluLt, plugin.AluLe, plugin.AluSelect,
	}
	for len(data) > 0 && len(p.Steps) < 40 {
		s := plugin.Step{}
		switch next(10) {
		case 0:
			s.Kind, s.Dst, s.A = plugin.StepLoad, temp(), ref(1)
		case 1:
			s.Kind, s.A, s.B, s.C = plugin.StepWait, ref(1), register(), constant()
		case 2:
			s.Kind, s.Dst, s.A = plugin.StepStore, ref(1), register()
		case 3:
			s.Kind, s.Dst, s.A, s.B = plugin.StepSignal, ref(1), register(), plugin.None
		case 4:
			s.Kind, s.Dst, s.A, s.N = plugin.StepCopy, ref(3), ref(3), constant()
		case 5:
			s.Kind, s.A, s.B = plugin.StepIf, temp(), uint16(1+next(4))
		default:
			s.Kind, s.Alu, s.Dst, s.A, s.B, s.C = plugin.StepSet, alus[next(len(alus))], temp(), register(), register(),
				register()
		}
		p.Steps = append(p.Steps, s)
	}
	fitBlocks(p.Steps, 0)
	p.Tracks = []plugin.Track{{Count: uint16(len(p.Steps))}}
	return p
}

// quickBench runs plans both ways over the same memory.
type quickBench struct {
	engine *Engine
	memory [4][]byte // send, recv, regions
}

const quickMemory = 256

func newQuickBench(t testing.TB) *quickBench {
	if !stamp.Available {
		t.Skip("no short forms on " + runtime.GOARCH + ": package stamp is assembly for amd64")
	}
	b := &quickBench{}
	w := newWorld(t, 2, ringBytes)
	b.engine = w.engines[0]
	b.engine.SetPolicy(Policy{})
	for i := range b.memory {
		b.memory[i] = make([]byte, quickMemory)
	}
	for rank := range 2 {
		must(t, b.engine.SetRegion(0, testRegion, rank, memory(b.memory[2+rank])))
	}
	return b
}

// fill makes every word a small number, or now and then a large one.
func (b *quickBench) fill(seed uint64) {
	numbers := rand.New(rand.NewPCG(seed, 0))
	for _, m := range b.memory {
		words := unsafe.Slice((*int64)(unsafe.Pointer(&m[0])), len(m)/8)
		for i := range words {
			if words[i] = numbers.Int64N(20); numbers.IntN(30) == 0 {
				words[i] = int64(numbers.Uint64())
			}
		}
	}
}

func (b *quickBench) snapshot() []byte { return bytes.Join(b.memory[:], nil) }

// compare reports whether the plan's short form, if there is one, ran.
func (b *quickBench) compare(t testing.TB, p *plugin.Plan, seed uint64) (short, ran bool) {
	if p.Validate() != nil {
		return false, false
	}
	program, err := b.engine.Load(p, 0)
	if err != nil {
		return false, false
	}
	defer program.Free()
	a := arguments(b.memory[0], b.memory[1], 8, 8)
	a.Arrays = []int64{8, 16, 0, 8, 24, 32, 0, 40}
	q := program.Quick(a)
	if q == nil {
		return false, false
	}
	b.fill(seed)
	before := b.snapshot()
	b.engine.turnDue = false
	if !q.Try(a.Send, a.Recv, &[6]uint64{}) {
		if !bytes.Equal(before, b.snapshot()) {
			t.Fatalf("a run that had to wait has changed memory: %+v", p)
		}
		return true, false
	}
	after := b.snapshot()
	b.fill(seed)
	if err := b.engine.Run(program, a, testDeadline); err != nil {
		t.Fatalf("the short form ran, and the program says %v: %+v", err, p)
	}
	if !bytes.Equal(after, b.snapshot()) {
		t.Fatalf("the short form did something else: %+v", p)
	}
	return true, true
}

// Any short form does what its program does, or nothing.
func TestQuickDoesWhatRunDoes(t *testing.T) {
	b := newQuickBench(t)
	numbers := rand.New(rand.NewPCG(1, 2))
	var shorts, runs int
	for seed := range uint64(12000) {
		data := make([]byte, 20+numbers.IntN(100))
		for i := range data {
			data[i] = byte(numbers.Uint32())
		}
		short, ran := b.compare(t, shortPlanOf(data), seed)
		if short {
			shorts++
		}
		if ran {
			runs++
		}
	}
	t.Logf("%d short forms, %d ran", shorts, runs)
	if shorts < 500 || runs < 200 || runs == shorts {
		t.Errorf("%d short forms, %d of which ran: too few to tell", shorts, runs)
	}
}

func FuzzQuick(f *testing.F) {
	b := newQuickBench(f)
	f.Add([]byte{0, 0, 0, 0, 1, 6, 0, 0, 3, 2, 0, 1, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 0, 1, 3, 1, 1, 1})
	f.Add(bytes.Repeat([]byte{0, 7, 1, 4, 9, 3, 2}, 20))
	f.Fuzz(func(t *testing.T, data []byte) { b.compare(t, shortPlanOf(data), uint64(len(data))) })
}
