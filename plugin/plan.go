package plugin

// None stands in a step for a register or ref that is absent.
const None = 0xFFFF

// LaunchDependent in operand B of a launch step says that the kernel waits for
// what is before it in the stream before it touches memory (griddepcontrol.wait,
// cudaGridDependencySynchronize), so that it may be scheduled earlier. Only behind
// that wait may it let the next one be scheduled (griddepcontrol.launch_dependents,
// cudaTriggerProgrammaticLaunchCompletion): else all that a graph has of such kernels
// would hold the GPU while the first one waits for a peer.
const LaunchDependent = 1

// Limits of a plan; what exceeds them is refused by Validate.
const (
	MaxRegisters = 32768
	MaxSteps     = 32768
	MaxRefs      = 32768
	MaxTracks    = 2 * MaxWorld
	MaxLoopDepth = 4

	MaxCommandArgs = 16   // of a remote step
	MaxRingSlots   = 4096 // commands that a ring holds
)

// Plan is a template of one operation, for one rank: the steps that the executor runs at
// launch, given only the caller's addresses and counts. It is data, so a
// plugin's process can ship it. docs/decisions/0001-plans.md explains it.
//
// A plan is a register program. The register file holds the slots (filled at
// launch, see Slot), then Consts, then Temps temporaries that start at zero.
// Steps run in order within a track; tracks run concurrently and all must end.
// Registers are per track after launch: a track never sees another's writes.
type Plan struct {
	Algorithm  string
	Collective Collective
	DType      DType
	Op         Op
	World      int
	Rank       int

	Consts  []int64
	Temps   int
	Refs    []Ref
	Steps   []Step
	Tracks  []Track
	Kernels []Kernel
	Args    []Arg
	Natives []Native
}

// Ref is a place in memory; the fields but Space are registers, so they may
// change from launch to launch and within a loop.
type Ref struct {
	Space  Space
	Region uint16 // register holding the region's number, or the address for peer; unused for send, recv and peer_recv
	Rank   uint16 // register holding the rank; unused for send and recv
	Offset uint16 // register holding the offset in bytes
	Scale  uint16 // register holding the bits of a float64 that each element is multiplied by when read, or None
}

// Step is one instruction. What the operands mean depends on Kind; see the
// table StepKind.
type Step struct {
	Kind StepKind
	Alu  Alu
	Dst  uint16
	A    uint16
	B    uint16
	C    uint16
	N    uint16
}

// Track is a run of steps: Steps[First : First+Count].
type Track struct {
	First uint16
	Count uint16
}

// Kernel is a device function of a launch step.
type Kernel struct {
	Image     string // name of an image that the endpoint publishes
	Name      string
	Grid      [3]uint16 // registers
	Block     [3]uint16 // registers
	Shared    uint16    // register: dynamic shared memory in bytes, or None
	FirstArg  uint16
	CountArgs uint16
}

// Arg is one kernel argument: the value of a register, or the address of a ref.
// The arguments of a kernel lie behind each other, each aligned to its size, so
// a kernel may take them one by one or as one structure.
type Arg struct {
	Ref   uint16 // or None
	Value uint16 // or None
	Bytes uint16 // size of the parameter: 1, 2, 4 or 8
}

// Native is C code in the host's address space: either Function, called as Function(Context, registers, send, recv,
// stream), which returns a Code; or Start and Poll, which never block. On CUDA memory Function enqueues as it is
// called, and Start is called when the stream has reached the step, by a thread of the host's own. None of them calls
// back into the Go runtime of the host's own program; a shared plugin has its own. shunt_transport.h has their
// prototypes.
type Native struct {
	Function uintptr
	Context  uintptr
	Start    uintptr
	Poll     uintptr
}

func (n *Native) valid() bool {
	return (n.Function != 0) != (n.Start != 0) && (n.Start != 0) == (n.Poll != 0)
}

// SlotCountOf returns the number of slots of a plan for a world of the given size.
func SlotCountOf(world int) int { return int(SlotArrays) + 4*world }

// SlotSendCount, SlotSendDispl, SlotRecvCount and SlotRecvDispl are the slots
// of the per-rank arrays, in bytes.
func SlotSendCount(world, rank int) int { return int(SlotArrays) + rank }

// SlotSendDispl returns the slot of rank's send displacement, in bytes.
func SlotSendDispl(world, rank int) int { return int(SlotArrays) + world + rank }

// SlotRecvCount returns the slot of rank's receive count, in bytes.
func SlotRecvCount(world, rank int) int { return int(SlotArrays) + 2*world + rank }

// SlotRecvDispl returns the slot of rank's receive displacement, in bytes.
func SlotRecvDispl(world, rank int) int { return int(SlotArrays) + 3*world + rank }

// Registers returns the size of the plan's register file.
func (p *Plan) Registers() int { return SlotCountOf(p.World) + len(p.Consts) + p.Temps }

// Validate checks everything about a plan that can be checked before launch:
// kinds, register and ref indexes, nesting and track bounds. Addresses are
// checked by the executor at launch.
func (p *Plan) Validate() error {
	if p == nil {
		return Errorf(Protocol, "the transport returned no plan")
	}
	name := p.Algorithm
	if name == "" {
		name = "without a name"
	}
	bad := func(format string, args ...any) error {
		return Errorf(Protocol, "plan %s: "+format, append([]any{name}, args...)...)
	}
	if p.World < 1 || p.World > MaxWorld || p.Rank < 0 || p.Rank >= p.World {
		return bad("it is for rank %d of a world of %d, want a world of 1 to %d and a rank of it", p.Rank, p.World, MaxWorld)
	}
	if !p.DType.Valid() || !p.Op.Valid() || !p.Collective.Valid() {
		return bad("collective %d, dtype %d, op %d", p.Collective, p.DType, p.Op)
	}
	if p.Temps < 0 || p.Temps > MaxRegisters || p.Registers() > MaxRegisters {
		return bad("%d registers, at most %d", p.Registers(), MaxRegisters)
	}
	if len(p.Steps) > MaxSteps || len(p.Refs) > MaxRefs || len(p.Tracks) > MaxTracks {
		return bad("%d steps, %d refs, %d tracks exceed the limits", len(p.Steps), len(p.Refs), len(p.Tracks))
	}
	regs := p.Registers()
	firstTemp := SlotCountOf(p.World) + len(p.Consts)
	isReg := func(r uint16) bool { return int(r) < regs }
	outside := func(i int, r Ref) error {
		return bad("ref %d: register out of range: region %d, rank %d, offset %d, scale %d, in a plan of %d registers", i,
			r.Region, r.Rank, r.Offset, r.Scale, regs)
	}
	for i, r := range p.Refs {
		switch r.Space {
		case SpaceSend, SpaceRecv, SpaceAbort:
		case SpacePeerRecv:
			if !isReg(r.Rank) {
				return outside(i, r)
			}
			if r.Scale != None {
				return bad("ref %d: a peer's receive memory is copied as it is, not scaled", i)
			}
		case SpaceRegion, SpacePeer:
			if !isReg(r.Region) || !isReg(r.Rank) {
				return outside(i, r)
			}
			if r.Space == SpacePeer && r.Scale != None {
				return bad("ref %d: a peer's memory is copied as it is, not scaled", i)
			}
		default:
			return bad("ref %d: space %d", i, r.Space)
		}
		if !isReg(r.Offset) || (r.Scale != None && !isReg(r.Scale)) {
			return outside(i, r)
		}
	}
	for i, a := range p.Args {
		if (a.Ref == None) == (a.Value == None) ||
			(a.Ref != None && !p.isCopied(a.Ref) && !p.isAbort(a.Ref)) || (a.Value != None && !isReg(a.Value)) {
			return bad("argument %d: neither or both of ref and value, or out of range", i)
		}
		switch a.Bytes {
		case 1, 2, 4, 8:
		default:
			return bad("argument %d: size %d", i, a.Bytes)
		}
	}
	for i, k := range p.Kernels {
		if k.Name == "" || len(k.Name) > 256 || len(k.Image) > MaxName || int(k.FirstArg)+int(k.CountArgs) > len(p.Args) {
			return bad("kernel %d: name, image or arguments out of range", i)
		}
		for _, r := range [...]uint16{k.Grid[0], k.Grid[1], k.Grid[2], k.Block[0], k.Block[1], k.Block[2]} {
			if !isReg(r) {
				return bad("kernel %d: grid or block register out of range", i)
			}
		}
		if k.Shared != None && !isReg(k.Shared) {
			return bad("kernel %d: shared memory register out of range", i)
		}
	}
	for i, n := range p.Natives {
		if !n.valid() {
			return bad("native function %d: it has function %t, start %t, poll %t, want the function alone, or start and poll", i,
				n.Function != 0, n.Start != 0, n.Poll != 0)
		}
	}
	for t, track := range p.Tracks {
		if int(track.First)+int(track.Count) > len(p.Steps) {
			return bad("track %d ends past the last step", t)
		}
		if err := p.validateTrack(track, firstTemp, bad); err != nil {
			return err
		}
	}
	return nil
}

// isLocal reports whether a ref exists and is in memory that is mapped here and
// that steps may touch.
func (p *Plan) isLocal(ref uint16) bool {
	return p.isCopied(ref) && p.Refs[ref].Space != SpacePeerRecv
}

// areValues reports whether a command or native step can have these arguments.
func (p *Plan) areValues(first, count uint16) bool {
	if int(first)+int(count) > len(p.Args) {
		return false
	}
	for _, a := range p.Args[first : int(first)+int(count)] {
		if a.Value == None {
			return false
		}
	}
	return true
}

// isCopied reports whether a ref exists and is in memory that copies and kernels
// of this rank write.
func (p *Plan) isCopied(ref uint16) bool {
	return int(ref) < len(p.Refs) && p.Refs[ref].Space != SpacePeer && p.Refs[ref].Space != SpaceAbort
}

// isAbort reports whether a ref exists and is the abort word.
func (p *Plan) isAbort(ref uint16) bool {
	return int(ref) < len(p.Refs) && p.Refs[ref].Space == SpaceAbort
}

// areLocal is isLocal for count refs from first.
func (p *Plan) areLocal(first, count uint16) bool {
	if int(first)+int(count) > len(p.Refs) {
		return false
	}
	for i := range count {
		if !p.isLocal(first + i) {
			return false
		}
	}
	return true
}

// words returns a step's refs of words and semaphores, which are memory that the host itself reads and writes.
func (s *Step) words() []uint16 {
	switch s.Kind {
	case StepStore, StepSignal, StepRemote:
		return []uint16{s.Dst}
	case StepLoad, StepWait:
		return []uint16{s.A}
	case StepBarrier:
		return []uint16{s.Dst, s.A}
	}
	return nil
}

func (p *Plan) validateTrack(track Track, firstTemp int, bad func(string, ...any) error) error {
	regs := p.Registers()
	isReg := func(r uint16) bool { return int(r) < regs }
	isTemp := func(r uint16) bool { return int(r) >= firstTemp && int(r) < regs }
	isRef := func(r uint16) bool { return int(r) < len(p.Refs) }
	isWord := func(r uint16) bool { return isRef(r) && p.Refs[r].Space == SpaceRegion }
	end := int(track.First) + int(track.Count)
	var ends []int // of the open loops and ifs
	loops := 0
	var isLoop []bool
	for i := int(track.First); i < end; i++ {
		for len(ends) > 0 && i >= ends[len(ends)-1] {
			if isLoop[len(isLoop)-1] {
				loops--
			}
			ends, isLoop = ends[:len(ends)-1], isLoop[:len(isLoop)-1]
		}
		limit := end
		if len(ends) > 0 {
			limit = ends[len(ends)-1]
		}
		s := p.Steps[i]
		var ok bool
		switch s.Kind {
		case StepSet:
			_, known := aluNames[s.Alu]
			ok = known && isTemp(s.Dst) && isReg(s.A) &&
				(s.Alu == AluMov || isReg(s.B)) && (s.Alu != AluSelect || isReg(s.C))
		case StepLoad:
			ok = isTemp(s.Dst) && isWord(s.A)
		case StepStore:
			ok = isWord(s.Dst) && isReg(s.A)
		case StepCopy:
			ok = p.isCopied(s.Dst) && isRef(s.A) && !p.isAbort(s.A) && isReg(s.N)
		case StepReduce:
			ok = p.isLocal(s.Dst) && s.B >= 1 && p.areLocal(s.A, s.B) && isReg(s.N)
		case StepSignal:
			ok = isWord(s.Dst) && isReg(s.A) && (s.B == None || isReg(s.B))
		case StepWait:
			ok = isWord(s.A) && isReg(s.B) && (s.C == None || isReg(s.C))
		case StepBarrier:
			ok = isWord(s.Dst) && isWord(s.A)
		case StepLoop, StepIf:
			ok = s.B >= 1 && i+1+int(s.B) <= limit
			if s.Kind == StepLoop {
				loops++
				ok = ok && isReg(s.N) && isTemp(s.Dst) && loops <= MaxLoopDepth
			} else {
				ok = ok && isReg(s.A)
			}
			ends, isLoop = append(ends, i+1+int(s.B)), append(isLoop, s.Kind == StepLoop)
		case StepLaunch:
			ok = int(s.A) < len(p.Kernels) && s.B <= LaunchDependent
		case StepNative, StepRemote:
			if s.N > MaxCommandArgs {
				return bad("step %d (%s) has %d arguments, want at most %d", i, s.Kind, s.N, MaxCommandArgs)
			}
			if ok = p.areValues(s.B, s.N); s.Kind == StepRemote {
				ok = ok && isWord(s.Dst) && isReg(s.A) && isReg(s.C)
			} else {
				ok = ok && int(s.A) < len(p.Natives) && (s.N == 0 || p.Natives[s.A].Start != 0)
			}
		case StepAddress:
			ok = isTemp(s.Dst) && isRef(s.A) && (p.Refs[s.A].Space == SpaceSend || p.Refs[s.A].Space == SpaceRecv)
		default:
			return bad("step %d: kind %d", i, s.Kind)
		}
		if s.Kind == StepReduce && s.B == 0 {
			return bad("step %d (reduce) has no sources", i)
		}
		for _, word := range s.words() {
			if isRef(word) && !isWord(word) {
				return bad("step %d (%s): its word is in space %s, want a region", i, s.Kind, p.Refs[word].Space)
			}
		}
		if !ok {
			return bad("step %d (%s): operand out of range: dst %d, a %d, b %d, c %d, n %d, in a plan of %d registers, whose temporaries begin at %d, and %d refs",
				i, s.Kind, s.Dst, s.A, s.B, s.C, s.N, regs, firstTemp, len(p.Refs))
		}
	}
	return nil
}
