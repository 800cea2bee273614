package plugin

import "fmt"

// Reg is a register of a plan under construction.
type Reg uint16

// RefID is a ref of a plan under construction.
type RefID uint16

// Builder writes a plan. Methods that return a Reg append a set or load step
// at the current place; control structures take the body as a function.
// Errors (too many registers, steps outside a track, ranks out of range) are
// kept and returned by Plan.
type Builder struct {
	plan   Plan
	consts map[int64]int
	err    error
	open   bool

	symmetric bool // the request is

	// Temporaries and constants are numbered apart while building, because the
	// number of constants is not known yet; Plan puts them in place.
	temps int
}

// Registers of a plan under construction: slots as they are, constants from
// constBase, temporaries from tempBase.
const (
	constBase = 0x4000
	tempBase  = 0x8000
)

// NewBuilder starts the plan that serves a request with the named algorithm.
func NewBuilder(req Request, algorithm string) *Builder {
	return &Builder{
		plan: Plan{
			Algorithm: algorithm, Collective: req.Collective, DType: req.DType, Op: req.Op,
			World: req.World, Rank: req.Rank,
		},
		consts:    map[int64]int{},
		symmetric: req.Symmetric,
	}
}

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = Errorf(Internal, "building plan %s: "+format, append([]any{b.plan.Algorithm}, args...)...)
	}
}

// Slot returns the register of a scalar slot.
func (b *Builder) Slot(s Slot) Reg {
	if s >= SlotArrays {
		b.fail("slot %d is out of range: there are %d scalar slots", s, SlotArrays)
		return 0
	}
	return Reg(s)
}

// Rank returns the number of the plan's rank.
func (b *Builder) Rank() Reg { return b.Const(int64(b.plan.Rank)) }

// ofRank returns the register of a rank in one of the arrays; a rank out of range would be one of another array.
func (b *Builder) ofRank(slot func(world, rank int) int, rank int) Reg {
	if rank < 0 || rank >= b.plan.World {
		b.fail("rank %d is out of range: the world has %d ranks", rank, b.plan.World)
		return 0
	}
	return Reg(slot(b.plan.World, rank))
}

// SendCount, SendDispl, RecvCount and RecvDispl are the registers of the
// per-rank arrays, in bytes.
func (b *Builder) SendCount(rank int) Reg { return b.ofRank(SlotSendCount, rank) }

// SendDispl returns the register of rank's send displacement, in bytes.
func (b *Builder) SendDispl(rank int) Reg { return b.ofRank(SlotSendDispl, rank) }

// RecvCount returns the register of rank's receive count, in bytes.
func (b *Builder) RecvCount(rank int) Reg { return b.ofRank(SlotRecvCount, rank) }

// RecvDispl returns the register of rank's receive displacement, in bytes.
func (b *Builder) RecvDispl(rank int) Reg { return b.ofRank(SlotRecvDispl, rank) }

// Const returns a register that holds v.
func (b *Builder) Const(v int64) Reg {
	i, ok := b.consts[v]
	if !ok {
		i = len(b.plan.Consts)
		if i >= tempBase-constBase {
			b.fail("too many constants")
			return 0
		}
		b.consts[v] = i
		b.plan.Consts = append(b.plan.Consts, v)
	}
	return Reg(constBase + i)
}

// Temp returns a fresh temporary, zero at launch.
func (b *Builder) Temp() Reg {
	if b.temps >= None-tempBase {
		b.fail("too many temporaries")
		return 0
	}
	b.temps++
	return Reg(tempBase + b.temps - 1)
}

func (b *Builder) step(s Step) int {
	if !b.open {
		b.fail("step %s outside a track", s.Kind)
	}
	if len(b.plan.Steps) >= MaxSteps {
		b.fail("too many steps")
		return 0
	}
	b.plan.Steps = append(b.plan.Steps, s)
	return len(b.plan.Steps) - 1
}

// Set appends dst = alu(x, y, z) to an existing temporary.
func (b *Builder) Set(dst Reg, alu Alu, x, y, z Reg) {
	b.step(Step{Kind: StepSet, Alu: alu, Dst: uint16(dst), A: uint16(x), B: uint16(y), C: uint16(z)})
}

func (b *Builder) alu(alu Alu, x, y Reg) Reg {
	t := b.Temp()
	b.Set(t, alu, x, y, 0)
	return t
}

// Add returns x + y.
func (b *Builder) Add(x, y Reg) Reg { return b.alu(AluAdd, x, y) }

// Sub returns x - y.
func (b *Builder) Sub(x, y Reg) Reg { return b.alu(AluSub, x, y) }

// Mul returns x * y.
func (b *Builder) Mul(x, y Reg) Reg { return b.alu(AluMul, x, y) }

// Div returns x / y.
func (b *Builder) Div(x, y Reg) Reg { return b.alu(AluDiv, x, y) }

// Mod returns x % y.
func (b *Builder) Mod(x, y Reg) Reg { return b.alu(AluMod, x, y) }

// Min returns the smaller of x and y.
func (b *Builder) Min(x, y Reg) Reg { return b.alu(AluMin, x, y) }

// Max returns the larger of x and y.
func (b *Builder) Max(x, y Reg) Reg { return b.alu(AluMax, x, y) }

// Lt returns x < y as 0 or 1.
func (b *Builder) Lt(x, y Reg) Reg { return b.alu(AluLt, x, y) }

// Le returns x <= y as 0 or 1.
func (b *Builder) Le(x, y Reg) Reg { return b.alu(AluLe, x, y) }

// Eq returns x == y as 0 or 1.
func (b *Builder) Eq(x, y Reg) Reg { return b.alu(AluEq, x, y) }

// Ne returns x != y as 0 or 1.
func (b *Builder) Ne(x, y Reg) Reg { return b.alu(AluNe, x, y) }

// Select returns cond != 0 ? x : y.
func (b *Builder) Select(cond, x, y Reg) Reg {
	t := b.Temp()
	b.Set(t, AluSelect, cond, x, y)
	return t
}

// CeilDiv returns the quotient rounded up, for x ≥ 0 and y > 0.
func (b *Builder) CeilDiv(x, y Reg) Reg {
	return b.Div(b.Sub(b.Add(x, y), b.Const(1)), y)
}

func (b *Builder) ref(r Ref) RefID {
	if len(b.plan.Refs) >= MaxRefs {
		b.fail("too many refs")
		return 0
	}
	b.plan.Refs = append(b.plan.Refs, r)
	return RefID(len(b.plan.Refs) - 1)
}

// Send returns a place in the caller's send memory.
func (b *Builder) Send(offset Reg) RefID {
	return b.ref(Ref{Space: SpaceSend, Offset: uint16(offset), Scale: None})
}

// SendScaled returns a place in the send memory whose elements are multiplied by
// the premul_sum scalar as they are read; for any other op it is Send.
func (b *Builder) SendScaled(offset Reg) RefID {
	r := Ref{Space: SpaceSend, Offset: uint16(offset), Scale: None}
	if b.plan.Op == OpPremulSum && b.plan.Collective.Reduces() {
		r.Scale = uint16(SlotScalar)
	}
	return b.ref(r)
}

// Recv returns a place in the caller's receive memory.
func (b *Builder) Recv(offset Reg) RefID {
	return b.ref(Ref{Space: SpaceRecv, Offset: uint16(offset), Scale: None})
}

// Region returns a place in a region of a rank. All three are registers.
func (b *Builder) Region(region, rank, offset Reg) RefID {
	return b.ref(Ref{Space: SpaceRegion, Region: uint16(region), Rank: uint16(rank), Offset: uint16(offset), Scale: None})
}

// Needs says that the plan uses a region of role deferred, also where no step names it. Before the first operation that
// runs the plan the host makes the region on the ranks that take part: on this one and the peer of a point-to-point
// operation or the peers of a group's messages, whose plan is that of all_to_all_v; on all in any other operation. Each
// rank maps it behind region 0 and the deferred regions with smaller numbers, so that code which reaches one by the
// address of region 0 needs no other.
func (b *Builder) Needs(region uint32) {
	zero := b.Const(0)
	b.Region(b.Const(int64(region)), zero, zero)
}

// Peer returns a place in the memory of a rank's process, offset bytes behind the
// address that the rank took with Address and published. It can only be copied
// from, and only where the request said PeerRead. All three are registers.
func (b *Builder) Peer(address, rank, offset Reg) RefID {
	return b.ref(Ref{Space: SpacePeer, Region: uint16(address), Rank: uint16(rank), Offset: uint16(offset), Scale: None})
}

// PeerRecv returns a place in the receive memory of a rank, as this rank reaches it:
// offset bytes behind where that rank's receive memory begins. It can be copied
// to and from and be a kernel's argument, only where the request said Symmetric.
// Both are registers.
func (b *Builder) PeerRecv(rank, offset Reg) RefID {
	if !b.symmetric {
		b.fail("step %d: receive memory of a peer in a plan for a request that is not symmetric", len(b.plan.Steps))
	}
	return b.ref(Ref{Space: SpacePeerRecv, Rank: uint16(rank), Offset: uint16(offset), Scale: None})
}

// Refs puts copies of the given refs side by side, as reduce takes its sources, and returns the first.
func (b *Builder) Refs(refs ...RefID) (first RefID, count int) {
	first = RefID(len(b.plan.Refs))
	for _, r := range refs {
		b.ref(b.plan.Refs[r])
	}
	return first, len(refs)
}

// Track adds a track. Tracks do not nest.
func (b *Builder) Track(body func()) {
	if b.open {
		b.fail("nested track")
		return
	}
	first := len(b.plan.Steps)
	b.open = true
	body()
	b.open = false
	b.plan.Tracks = append(b.plan.Tracks, Track{First: uint16(first), Count: uint16(len(b.plan.Steps) - first)})
}

// Load reads the 64-bit word at word.
func (b *Builder) Load(word RefID) Reg {
	t := b.Temp()
	b.step(Step{Kind: StepLoad, Dst: uint16(t), A: uint16(word)})
	return t
}

// Address returns the address of a place in the caller's send or receive memory, as Peer takes it. Store it in a word
// and signal for a peer to load it.
func (b *Builder) Address(place RefID) Reg {
	t := b.Temp()
	b.step(Step{Kind: StepAddress, Dst: uint16(t), A: uint16(place)})
	return t
}

// Store writes a 64-bit word that only this rank reads, or that a later signal
// publishes.
func (b *Builder) Store(word RefID, value Reg) {
	b.step(Step{Kind: StepStore, Dst: uint16(word), A: uint16(value)})
}

// Copy moves n bytes.
func (b *Builder) Copy(dst, src RefID, n Reg) {
	b.step(Step{Kind: StepCopy, Dst: uint16(dst), A: uint16(src), N: uint16(n)})
}

// Reduce combines n elements of each source, in the order given, into dst.
func (b *Builder) Reduce(dst RefID, n Reg, sources ...RefID) {
	first, count := b.Refs(sources...)
	b.step(Step{Kind: StepReduce, Dst: uint16(dst), A: uint16(first), B: uint16(count), N: uint16(n)})
}

// Signal publishes value at a semaphore, making every earlier write of this
// track visible to ranks that wait for it, and wakes one rank.
func (b *Builder) Signal(semaphore RefID, value, rank Reg) {
	b.step(Step{Kind: StepSignal, Dst: uint16(semaphore), A: uint16(value), B: uint16(rank)})
}

// SignalAll is like Signal, to every rank.
func (b *Builder) SignalAll(semaphore RefID, value Reg) {
	b.step(Step{Kind: StepSignal, Dst: uint16(semaphore), A: uint16(value), B: None})
}

// Wait waits until the semaphore has reached value; rank raises it.
func (b *Builder) Wait(semaphore RefID, value, rank Reg) {
	b.step(Step{Kind: StepWait, A: uint16(semaphore), B: uint16(value), C: uint16(rank)})
}

// Barrier waits until every rank has arrived. counter is a word of this rank
// alone; semaphore is read by all.
func (b *Builder) Barrier(semaphore, counter RefID) {
	b.step(Step{Kind: StepBarrier, Dst: uint16(semaphore), A: uint16(counter), C: None})
}

// Remote posts a command to the ring at a place in a region of role local, and waits
// until the plugin has done it. On CUDA memory a kernel in the stream does so, and a plan
// with such steps has one track. slots is the number of commands that the ring holds;
// operation and args, at most MaxCommandArgs, go to the plugin. If the command fails, the
// plugin's text is the error of the call. Package ring is the plugin's side, and
// shunt_ring.h describes the memory.
func (b *Builder) Remote(ring RefID, slots int, operation int64, args ...Reg) {
	b.step(Step{
		Kind: StepRemote, Dst: uint16(ring), A: uint16(b.Const(operation)), B: b.args(args), C: uint16(b.Const(int64(slots))),
		N: uint16(len(args)),
	})
}

// Native calls C code in the host's address space, in the builtin and shared carriers.
// Start gets args, at most MaxCommandArgs; Function gets none. On CUDA memory a plan with
// steps that start has one track.
func (b *Builder) Native(n Native, args ...Reg) {
	b.plan.Natives = append(b.plan.Natives, n)
	b.step(Step{Kind: StepNative, A: uint16(len(b.plan.Natives) - 1), B: b.args(args), N: uint16(len(args))})
}

// args appends arguments of a command or a native step, and returns where they begin.
func (b *Builder) args(args []Reg) uint16 {
	first := len(b.plan.Args)
	for _, a := range args {
		b.plan.Args = append(b.plan.Args, Arg{Ref: None, Value: uint16(a), Bytes: 8})
	}
	return uint16(first)
}

// Loop repeats the body n times with the index 0, 1, ….
func (b *Builder) Loop(n Reg, body func(i Reg)) {
	i := b.Temp()
	at := b.step(Step{Kind: StepLoop, Dst: uint16(i), N: uint16(n)})
	body(i)
	b.close(at)
}

// If runs the body when cond is not zero.
func (b *Builder) If(cond Reg, body func()) {
	at := b.step(Step{Kind: StepIf, A: uint16(cond)})
	body()
	b.close(at)
}

func (b *Builder) close(at int) {
	if b.err != nil {
		return
	}
	n := len(b.plan.Steps) - at - 1
	if n == 0 {
		b.fail("empty %s", b.plan.Steps[at].Kind)
	}
	b.plan.Steps[at].B = uint16(n)
}

// Plan finishes the plan and validates it.
func (b *Builder) Plan() (*Plan, error) {
	p := &b.plan
	p.Temps = b.temps
	if b.err != nil {
		return nil, b.err
	}
	slots, consts := SlotCountOf(p.World), len(p.Consts)
	place := func(r *uint16) {
		switch {
		case *r == None || *r < constBase:
		case *r < tempBase:
			*r = uint16(slots) + *r - constBase
		default:
			*r = uint16(slots+consts) + *r - tempBase
		}
	}
	for i := range p.Refs {
		r := &p.Refs[i]
		place(&r.Region)
		place(&r.Rank)
		place(&r.Offset)
		place(&r.Scale)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		for _, r := range registersOf(s) {
			place(r)
		}
	}
	for i := range p.Kernels {
		k := &p.Kernels[i]
		for j := range 3 {
			place(&k.Grid[j])
			place(&k.Block[j])
		}
		place(&k.Shared)
	}
	for i := range p.Args {
		place(&p.Args[i].Value)
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("building plan %s: %w", p.Algorithm, err)
	}
	return p, nil
}

// registersOf returns the operands of a step that are registers.
func registersOf(s *Step) []*uint16 {
	switch s.Kind {
	case StepSet:
		return []*uint16{&s.Dst, &s.A, &s.B, &s.C}
	case StepLoad, StepAddress:
		return []*uint16{&s.Dst}
	case StepStore:
		return []*uint16{&s.A}
	case StepCopy, StepReduce:
		return []*uint16{&s.N}
	case StepSignal:
		return []*uint16{&s.A, &s.B}
	case StepWait:
		return []*uint16{&s.B, &s.C}
	case StepLoop:
		return []*uint16{&s.Dst, &s.N}
	case StepIf:
		return []*uint16{&s.A}
	case StepRemote:
		return []*uint16{&s.A, &s.C}
	}
	return nil
}
