package proto

import (
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// FromPlan returns the message of a plan. A plan with native functions is refused:
// they are addresses in the plugin's process, which mean nothing in the host's.
func FromPlan(p *plugin.Plan) (*Plan, error) {
	if p == nil {
		return nil, p.Validate()
	}
	if len(p.Natives) > 0 {
		return nil, plugin.Errorf(plugin.Protocol, "plan %s has native functions, which only the builtin and shared carriers can run", p.Algorithm)
	}
	if p.Temps < 0 || p.Temps > plugin.MaxRegisters {
		return nil, plugin.Errorf(plugin.Protocol, "plan %s has %d temporaries, at most %d", p.Algorithm, p.Temps,
			plugin.MaxRegisters)
	}
	m := &Plan{
		Algorithm: p.Algorithm, Collective: uint32(p.Collective), Dtype: uint32(p.DType), Op: uint32(p.Op),
		World: int32(p.World), Rank: int32(p.Rank), Consts: p.Consts, Temps: uint32(p.Temps),
	}
	for _, r := range p.Refs {
		m.Refs = append(m.Refs, &Ref{
			Space: uint32(r.Space), Region: uint32(r.Region), Rank: uint32(r.Rank), Offset: uint32(r.Offset),
			Scale: uint32(r.Scale),
		})
	}
	for _, s := range p.Steps {
		m.Steps = append(m.Steps, &Step{
			Kind: uint32(s.Kind), Alu: uint32(s.Alu), Dst: uint32(s.Dst),
			A: uint32(s.A), B: uint32(s.B), C: uint32(s.C), N: uint32(s.N),
		})
	}
	for _, t := range p.Tracks {
		m.Tracks = append(m.Tracks, &Track{First: uint32(t.First), Count: uint32(t.Count)})
	}
	for _, k := range p.Kernels {
		m.Kernels = append(m.Kernels, &Kernel{
			Image: k.Image, Name: k.Name,
			Grid:   []uint32{uint32(k.Grid[0]), uint32(k.Grid[1]), uint32(k.Grid[2])},
			Block:  []uint32{uint32(k.Block[0]), uint32(k.Block[1]), uint32(k.Block[2])},
			Shared: uint32(k.Shared), FirstArg: uint32(k.FirstArg), CountArgs: uint32(k.CountArgs),
		})
	}
	for _, a := range p.Args {
		m.Args = append(m.Args, &Arg{Ref: uint32(a.Ref), Value: uint32(a.Value), Bytes: uint32(a.Bytes)})
	}
	return m, nil
}

// ToPlan returns the plan that a message holds. Operands that do not fit 16 bits and
// arrays above the contract's limits are refused; whether the plan makes sense
// is for plugin.Plan.Validate.
func ToPlan(m *Plan) (*plugin.Plan, error) {
	if m == nil {
		return nil, plugin.Errorf(plugin.Protocol, "the reply has no plan")
	}
	if err := atMost("bytes of algorithm name", len(m.Algorithm), plugin.MaxName); err != nil {
		return nil, err
	}
	for _, a := range [...]struct {
		what     string
		n, limit int
	}{
		{"constants", len(m.Consts), plugin.MaxRegisters},
		{"refs", len(m.Refs), plugin.MaxRefs},
		{"steps", len(m.Steps), plugin.MaxSteps},
		{"tracks", len(m.Tracks), plugin.MaxTracks},
		{"kernels", len(m.Kernels), plugin.MaxSteps},
		{"kernel arguments", len(m.Args), plugin.MaxRefs},
	} {
		if err := atMost(a.what, a.n, a.limit); err != nil {
			return nil, err
		}
	}
	if m.Temps > plugin.MaxRegisters {
		return nil, plugin.Errorf(plugin.Protocol, "plan %s has %d temporaries, at most %d", m.Algorithm, m.Temps,
			plugin.MaxRegisters)
	}
	var n narrow
	p := &plugin.Plan{
		Algorithm: m.Algorithm, Collective: plugin.Collective(m.Collective), DType: plugin.DType(m.Dtype),
		Op:    plugin.Op(m.Op),
		World: int(m.World), Rank: int(m.Rank), Consts: m.Consts, Temps: int(m.Temps),
		Refs: make([]plugin.Ref, len(m.Refs)), Steps: make([]plugin.Step, len(m.Steps)),
		Tracks:  make([]plugin.Track, len(m.Tracks)),
		Kernels: make([]plugin.Kernel, len(m.Kernels)), Args: make([]plugin.Arg, len(m.Args)),
	}
	for i, r := range m.Refs {
		n.at("ref", i)
		p.Refs[i] = plugin.Ref{
			Space: plugin.Space(n.u16(r.GetSpace())), Region: n.u16(r.GetRegion()), Rank: n.u16(r.GetRank()),
			Offset: n.u16(r.GetOffset()), Scale: n.u16(r.GetScale()),
		}
	}
	for i, s := range m.Steps {
		n.at("step", i)
		p.Steps[i] = plugin.Step{
			Kind: plugin.StepKind(n.u16(s.GetKind())), Alu: plugin.Alu(n.u16(s.GetAlu())), Dst: n.u16(s.GetDst()),
			A: n.u16(s.GetA()), B: n.u16(s.GetB()), C: n.u16(s.GetC()), N: n.u16(s.GetN()),
		}
	}
	for i, t := range m.Tracks {
		n.at("track", i)
		p.Tracks[i] = plugin.Track{First: n.u16(t.GetFirst()), Count: n.u16(t.GetCount())}
	}
	for i, k := range m.Kernels {
		n.at("kernel", i)
		p.Kernels[i] = plugin.Kernel{
			Image: k.GetImage(), Name: k.GetName(), Grid: n.three(k.GetGrid()), Block: n.three(k.GetBlock()),
			Shared: n.u16(k.GetShared()), FirstArg: n.u16(k.GetFirstArg()), CountArgs: n.u16(k.GetCountArgs()),
		}
	}
	for i, a := range m.Args {
		n.at("argument", i)
		p.Args[i] = plugin.Arg{Ref: n.u16(a.GetRef()), Value: n.u16(a.GetValue()), Bytes: n.u16(a.GetBytes())}
	}
	if n.err != nil {
		return nil, plugin.Errorf(plugin.Protocol, "plan %s: %w", m.Algorithm, n.err)
	}
	return p, nil
}

// narrow turns 32-bit fields into 16-bit operands and keeps the first that
// does not fit.
type narrow struct {
	what  string
	index int
	err   error
}

func (n *narrow) at(what string, index int) { n.what, n.index = what, index }

func (n *narrow) u16(v uint32) uint16 {
	if v > math.MaxUint16 && n.err == nil {
		n.err = plugin.Errorf(plugin.Protocol, "%s %d: operand %d does not fit 16 bits", n.what, n.index, v)
	}
	return uint16(v)
}

func (n *narrow) three(v []uint32) (out [3]uint16) {
	if len(v) != 3 {
		if n.err == nil {
			n.err = plugin.Errorf(plugin.Protocol, "%s %d: %d dimensions, want 3", n.what, n.index, len(v))
		}
		return out
	}
	for i := range out {
		out[i] = n.u16(v[i])
	}
	return out
}
