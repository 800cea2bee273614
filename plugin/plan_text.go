package plugin

import (
	"fmt"
	"strconv"
	"strings"
)

// Text writes the plan out: a line for each step, in its own order, with the ranks,
// lengths, semaphores and kernels that it names. Registers are shown as slots by
// their name, constants by their value, temporaries as t0, t1 and so on. The plan
// must be valid.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %s: %s", p.Algorithm, p.Collective)
	if p.Collective != Barrier {
		fmt.Fprintf(&b, " of %s", p.DType)
	}
	if p.Collective.Reduces() {
		fmt.Fprintf(&b, ", op %s", p.Op)
	}
	fmt.Fprintf(&b, ", rank %d of %d: %d steps, %d tracks, %d kernels, %d registers\n", p.Rank, p.World, len(p.Steps),
		len(p.Tracks), len(p.Kernels), p.Registers())
	for t, track := range p.Tracks {
		fmt.Fprintf(&b, "track %d\n", t)
		var ends []int // of the open loops and ifs
		for i := int(track.First); i < int(track.First)+int(track.Count); i++ {
			for len(ends) > 0 && i >= ends[len(ends)-1] {
				ends = ends[:len(ends)-1]
			}
			s := &p.Steps[i]
			fmt.Fprintf(&b, "%6d  %s%s\n", i, strings.Repeat("  ", len(ends)), p.stepText(s))
			if s.Kind == StepLoop || s.Kind == StepIf {
				ends = append(ends, i+1+int(s.B))
			}
		}
	}
	return b.String()
}

// stepText returns a step in words.
func (p *Plan) stepText(s *Step) string {
	reg, ref := p.registerText, p.refText
	switch s.Kind {
	case StepSet:
		return reg(s.Dst) + " = " + p.aluText(s)
	case StepLoad:
		return fmt.Sprintf("load    %s = %s", reg(s.Dst), ref(s.A))
	case StepStore:
		return fmt.Sprintf("store   %s = %s", ref(s.Dst), reg(s.A))
	case StepCopy:
		return fmt.Sprintf("copy    %s bytes from %s to %s", reg(s.N), ref(s.A), ref(s.Dst))
	case StepReduce:
		sources := make([]string, s.B)
		for i := range sources {
			sources[i] = ref(s.A + uint16(i))
		}
		return fmt.Sprintf("reduce  %s elements of %s into %s", reg(s.N), strings.Join(sources, ", "), ref(s.Dst))
	case StepSignal:
		whom := "every rank"
		if s.B != None {
			whom = "rank " + reg(s.B)
		}
		return fmt.Sprintf("signal  %s = %s, wake %s", ref(s.Dst), reg(s.A), whom)
	case StepWait:
		text := fmt.Sprintf("wait    %s >= %s", ref(s.A), reg(s.B))
		if s.C != None {
			text += ", of rank " + reg(s.C)
		}
		return text
	case StepBarrier:
		return fmt.Sprintf("barrier %s, counted in %s", ref(s.Dst), ref(s.A))
	case StepLoop:
		return fmt.Sprintf("loop    %s times, %s counts: the next %d steps", reg(s.N), reg(s.Dst), s.B)
	case StepIf:
		return fmt.Sprintf("if      %s: the next %d steps", reg(s.A), s.B)
	case StepLaunch:
		return "launch  " + p.kernelText(s)
	case StepNative:
		return fmt.Sprintf("native  function %d%s", s.A, p.valuesText(s))
	case StepRemote:
		return fmt.Sprintf("remote  command %s%s to the ring of %s at %s", reg(s.A), p.valuesText(s), reg(s.C), ref(s.Dst))
	case StepAddress:
		return fmt.Sprintf("address %s = of %s", reg(s.Dst), ref(s.A))
	}
	return s.Kind.String()
}

// aluText returns the text of a set step's computation.
func (p *Plan) aluText(s *Step) string {
	switch s.Alu {
	case AluMov:
		return p.registerText(s.A)
	case AluSelect:
		return fmt.Sprintf("select %s, %s, %s", p.registerText(s.A), p.registerText(s.B), p.registerText(s.C))
	}
	return fmt.Sprintf("%s %s, %s", s.Alu, p.registerText(s.A), p.registerText(s.B))
}

// kernelText returns the kernel of a launch step, with its arguments.
func (p *Plan) kernelText(s *Step) string {
	k := &p.Kernels[s.A]
	three := func(r [3]uint16) string {
		return p.registerText(r[0]) + "×" + p.registerText(r[1]) + "×" + p.registerText(r[2])
	}
	args := make([]string, k.CountArgs)
	for i := range args {
		a := p.Args[int(k.FirstArg)+i]
		if a.Ref != None {
			args[i] = "&" + p.refText(a.Ref)
		} else {
			args[i] = p.registerText(a.Value)
		}
	}
	text := fmt.Sprintf("%s of image %s, grid %s, block %s", k.Name, k.Image, three(k.Grid), three(k.Block))
	if k.Shared != None {
		text += ", shared " + p.registerText(k.Shared)
	}
	if s.B == LaunchDependent {
		text += ", waits in the kernel"
	}
	return text + ": " + strings.Join(args, ", ")
}

// refText returns the name of a place in memory.
func (p *Plan) refText(i uint16) string {
	r := &p.Refs[i]
	var text string
	switch r.Space {
	case SpaceRegion:
		text = fmt.Sprintf("rank %s region %s", p.registerText(r.Rank), p.registerText(r.Region))
	case SpacePeer:
		text = fmt.Sprintf("rank %s address %s", p.registerText(r.Rank), p.registerText(r.Region))
	case SpacePeerRecv:
		text = fmt.Sprintf("rank %s recv", p.registerText(r.Rank))
	default:
		text = r.Space.String()
	}
	if offset := p.registerText(r.Offset); offset != "0" {
		text += "+" + offset
	}
	if r.Scale != None {
		text += " × the float64 in " + p.registerText(r.Scale)
	}
	return "[" + text + "]"
}

// arraysText are the names of a slot's arrays, in their order.
var arraysText = [...]string{"send_bytes", "send_at", "recv_bytes", "recv_at"}

// registerText returns a slot by its name, a constant by its value, or a temporary.
func (p *Plan) registerText(r uint16) string {
	slots := SlotCountOf(p.World)
	switch i := int(r); {
	case i < int(SlotArrays):
		return Slot(r).String()
	case i < slots:
		array, rank := (i-int(SlotArrays))/p.World, (i-int(SlotArrays))%p.World
		return fmt.Sprintf("%s[%d]", arraysText[array], rank)
	case i < slots+len(p.Consts):
		return strconv.FormatInt(p.Consts[i-slots], 10)
	default:
		return "t" + strconv.Itoa(i-slots-len(p.Consts))
	}
}

// valuesText returns the arguments of a command or native step.
func (p *Plan) valuesText(s *Step) string {
	if !p.areValues(s.B, s.N) {
		return fmt.Sprintf("(arguments %d to %d, which are none)", s.B, int(s.B)+int(s.N)-1)
	}
	var list []string
	for _, a := range p.Args[s.B : s.B+s.N] {
		list = append(list, p.registerText(a.Value))
	}
	return "(" + strings.Join(list, ", ") + ")"
}
