package executor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// maxParams is the largest argument block of a kernel.
const maxParams = 4 << 10

// DeviceProgram is a plan with its kernels found, for one Device.
type DeviceProgram struct {
	device  *Device // nil: freed
	name    string
	title   string
	base    uint32
	plan    plugin.Plan // a copy
	kernels []deviceKernel
	names   []string // of the kernels

	// The register file. Slots are filled at launch and temporaries cleared
	// before each track; constants are never written.
	frame              []int64
	firstTemp, natives int
	asksPriority       bool
	asksPlace          bool // where in a symmetric range, or in a window, receive memory lies

	last repeat
}

// deviceKernel is a kernel with its argument block as far as it is constant.
type deviceKernel struct {
	function    cuda.Function
	grid, block [3]uint16
	shared      uint16
	template    []byte
	args        []deviceArg
}

// deviceArg is a piece of an argument block that is filled at launch.
type deviceArg struct {
	offset int
	bytes  uint16
	ref    uint16 // or None
	value  uint16 // or None
}

// Load validates a plan and finds its kernels, loading images that no plan has
// named yet. base is the place of its endpoint's regions in the table. Steps
// that make a processor wait or compute (load, store, signal, wait, barrier,
// reduce) are refused with Unsupported: on a GPU they are a kernel's.
// The plan is copied. Load may wait for the GPU; it must not be called between
// launches that wait for each other.
func (d *Device) Load(p *plugin.Plan, base uint32) (*DeviceProgram, error) {
	if p == nil {
		return nil, d.refuse(plugin.InvalidArgument, "the plan is missing")
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if p.World != d.world || p.Rank != d.rank {
		return nil, d.refuse(plugin.Protocol, "plan %s is for rank %d of %d, this is rank %d of %d", p.Algorithm, p.Rank,
			p.World, d.rank, d.world)
	}
	if base%BaseMultiple != 0 || base >= MaxEntries {
		return nil, d.refuse(plugin.InvalidArgument, "plan %s: its base is %d, which no endpoint has", p.Algorithm, base)
	}
	if err := d.suits(p); err != nil {
		return nil, err
	}
	program := &DeviceProgram{
		device: d, name: p.Algorithm, base: base, plan: *p,
		frame: make([]int64, p.Registers()), firstTemp: plugin.SlotCountOf(p.World) + len(p.Consts), natives: len(p.Natives),
	}
	own := &program.plan
	own.Refs, own.Steps, own.Tracks = slices.Clone(p.Refs), slices.Clone(p.Steps), slices.Clone(p.Tracks)
	own.Natives, own.Consts = slices.Clone(p.Natives), slices.Clone(p.Consts)
	own.Args, own.Kernels = slices.Clone(p.Args), nil
	copy(program.frame[plugin.SlotCountOf(p.World):], p.Consts)

	engines, err := d.engines(own)
	if err != nil {
		return nil, err
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.refuse(plugin.Closed, "it is closed")
	}
	if engines {
		if err := d.startProxy(); err != nil {
			return nil, err
		}
	}
	for i := range p.Kernels {
		k, err := d.kernel(p, program, i)
		if err != nil {
			return nil, err
		}
		program.kernels, program.names = append(program.kernels, k), append(program.names, p.Kernels[i].Name)
	}
	program.asksPriority = asks(p, plugin.SlotPriority)
	program.asksPlace = asks(p, plugin.SlotWindow, plugin.SlotOffset) ||
		slices.ContainsFunc(p.Refs, func(r plugin.Ref) bool { return r.Space == plugin.SpacePeerRecv })
	if program.last.able = repeatable(own); program.last.able {
		program.last.makeRoom(program.kernels)
	}
	if len(p.Tracks) > 1 {
		if len(d.graphed) == 0 {
			d.graphed = append(d.graphed, &forks{})
		}
		for _, f := range []*forks{&d.side, d.graphed[0]} {
			if err := f.grow(d, len(p.Tracks)-1); err != nil {
				return nil, d.wrap("plan "+p.Algorithm+": making streams for its tracks", err)
			}
		}
	}
	return program, nil
}

// Entitle says what the plan is called in errors: its algorithm with the transport.
func (p *DeviceProgram) Entitle(qualified string) { p.title = qualified + works(&p.plan, p.names) }

// Title returns the plan's name for errors, with the steps that are work for the GPU; "" if it has none.
func (p *DeviceProgram) Title() string { return p.title }

// maxWorks is the most steps of a plan that a title names.
const maxWorks = 3

// works names the kernels and native functions among a plan's steps: only those may wait for peers.
func works(p *plugin.Plan, kernels []string) string {
	var named []string
	for t, track := range p.Tracks {
		for i := int(track.First); i < int(track.First)+int(track.Count); i++ {
			switch s := &p.Steps[i]; s.Kind {
			case plugin.StepLaunch:
				named = append(named, fmt.Sprintf("kernel %s (step %d of track %d)", kernels[s.A], i, t))
			case plugin.StepRemote:
				named = append(named, engineTitle(s, i, t))
			case plugin.StepNative:
				if p.Natives[s.A].Start != 0 {
					named = append(named, engineTitle(s, i, t))
					continue
				}
				named = append(named, fmt.Sprintf("a native function (step %d of track %d)", i, t))
			}
		}
	}
	switch {
	case len(named) == 0:
		return ""
	case len(named) > maxWorks:
		return fmt.Sprintf(", %s and %d more", strings.Join(named[:maxWorks], ", "), len(named)-maxWorks)
	}
	return ", " + strings.Join(named, ", ")
}

// Free ends the use of the program; operations that are in streams or graphs still run.
func (p *DeviceProgram) Free() {
	if p == nil || p.device == nil {
		return
	}
	d := p.device
	d.mu.Lock()
	defer d.mu.Unlock()
	p.device = nil
}

// suits refuses steps that a stream cannot do.
func (d *Device) suits(p *plugin.Plan) error {
	for i := range p.Steps {
		s := &p.Steps[i]
		switch s.Kind {
		case plugin.StepSet, plugin.StepIf, plugin.StepLoop, plugin.StepAddress, plugin.StepLaunch, plugin.StepNative,
			plugin.StepRemote:
		case plugin.StepCopy:
			for _, r := range []uint16{s.Dst, s.A} {
				if p.Refs[r].Scale != plugin.None {
					return d.refuse(plugin.Unsupported, "plan %s: step %d copies with a factor, which on a GPU is a kernel's",
						p.Algorithm, i)
				}
				if p.Refs[r].Space == plugin.SpacePeer {
					return d.refuse(plugin.Unsupported, "plan %s: step %d copies from a peer's process, which a GPU cannot",
						p.Algorithm, i)
				}
			}
		default:
			return d.refuse(plugin.Unsupported, "plan %s: step %d (%s) cannot be put into a stream; on a GPU it is a kernel's",
				p.Algorithm, i, s.Kind)
		}
	}
	return nil
}

// kernel finds kernel i of a plan and lays out its argument block.
func (d *Device) kernel(p *plugin.Plan, program *DeviceProgram, i int) (deviceKernel, error) {
	source := &p.Kernels[i]
	k := deviceKernel{grid: source.Grid, block: source.Block, shared: source.Shared}
	slots := plugin.SlotCountOf(p.World)
	isConst := func(r uint16) bool { return int(r) >= slots && int(r) < program.firstTemp }
	for j, a := range p.Args[source.FirstArg : source.FirstArg+source.CountArgs] {
		size := int(a.Bytes)
		at := (len(k.template) + size - 1) / size * size
		if at+size > maxParams {
			return k, d.refuse(plugin.Protocol, "plan %s: the arguments of kernel %s are longer than %d bytes", p.Algorithm,
				source.Name, maxParams)
		}
		if a.Ref != plugin.None && size != 8 {
			return k, d.refuse(plugin.Protocol, "plan %s: argument %d of kernel %s is an address of %d bytes", p.Algorithm, j,
				source.Name, size)
		}
		k.template = append(k.template, make([]byte, at+size-len(k.template))...)
		if a.Value != plugin.None && isConst(a.Value) {
			store(k.template[at:], program.frame[a.Value], a.Bytes)
			continue
		}
		k.args = append(k.args, deviceArg{at, a.Bytes, a.Ref, a.Value})
	}
	shared := 0
	switch {
	case source.Shared == plugin.None:
	case isConst(source.Shared):
		n := program.frame[source.Shared]
		if n < 0 || n > int64(d.maxShared) {
			return k, d.refuse(plugin.Unsupported, "plan %s: kernel %s wants %d bytes of shared memory, the device has %d",
				p.Algorithm, source.Name, n, d.maxShared)
		}
		fallthrough // other plans launch the kernel with more
	default:
		shared = d.maxShared
	}
	module, err := d.module(program.base, source.Image)
	if err != nil {
		return k, err
	}
	k.function, err = d.driver.Function(d.ctx, module, source.Name, shared)
	if err != nil {
		return k, d.wrap("plan "+p.Algorithm+": finding its kernel in image "+source.Image, err)
	}
	return k, nil
}
