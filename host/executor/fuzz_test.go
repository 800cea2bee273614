package executor

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"golang.org/x/sys/unix"
)

// guarded returns memory between two pages that trap.
func guarded(t testing.TB, bytes int) (whole, inner []byte) {
	t.Helper()
	page := unix.Getpagesize()
	size := (bytes + page - 1) / page * page
	whole, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	must(t, unix.Mprotect(whole[page:page+size], unix.PROT_READ|unix.PROT_WRITE))
	// The end touches the second guard; what is left in front is checked by value.
	return whole, whole[page+size-bytes : page+size]
}

// planOf reads a plan from fuzz input. Operands come from the input, reduced to
// what Validate accepts; numbers are whatever the input says.
func planOf(data []byte) *plugin.Plan {
	const world = 2
	next := func() uint16 {
		if len(data) < 2 {
			data = nil
			return 0
		}
		v := binary.LittleEndian.Uint16(data)
		data = data[2:]
		return v
	}
	p := &plugin.Plan{
		Algorithm: "fuzz", Collective: plugin.AllReduce, World: world,
		DType: plugin.DType(next() % 12), Op: plugin.Op(next() % 6), Temps: 1 + int(next()%8),
	}
	for range next() % 12 {
		// Mostly small numbers, and every extreme.
		v := int64(int16(next()))
		if shift := next(); shift%3 == 0 {
			v <<= shift % 64
		}
		p.Consts = append(p.Consts, v)
	}
	register := func() uint16 { return next() % uint16(p.Registers()) }
	optional := func() uint16 {
		if r := next(); r%8 > 0 {
			return r % uint16(p.Registers())
		}
		return plugin.None
	}
	temp := func() uint16 { return uint16(p.Registers()-p.Temps) + next()%uint16(p.Temps) }
	p.Refs = []plugin.Ref{{Space: plugin.SpaceRegion, Region: register(), Rank: register(), Offset: register(),
		Scale: plugin.None}}
	for range next() % 12 {
		r := plugin.Ref{Space: plugin.Space(next() % 4), Region: register(), Rank: register(), Offset: register(),
			Scale: optional()}
		if r.Space == plugin.SpacePeer {
			r.Scale = plugin.None
		}
		p.Refs = append(p.Refs, r)
	}
	ref := func() uint16 { return next() % uint16(len(p.Refs)) }
	nearest := func(i uint16, spaces ...plugin.Space) uint16 { // downwards; the first is a region
		for i > 0 && !slices.Contains(spaces, p.Refs[i].Space) {
			i--
		}
		return i
	}
	local := func() uint16 { return nearest(ref(), plugin.SpaceSend, plugin.SpaceRecv, plugin.SpaceRegion) }
	word := func() uint16 { return nearest(ref(), plugin.SpaceRegion) }
	for len(data) > 0 && len(p.Steps) < 64 {
		s := plugin.Step{Kind: plugin.StepKind(1 + next()%14), Alu: plugin.Alu(next() % 13)}
		switch s.Kind {
		case plugin.StepLaunch, plugin.StepNative: // neither is data alone
			s.Kind = plugin.StepSet
			fallthrough
		case plugin.StepSet:
			s.Dst, s.A, s.B, s.C = temp(), register(), register(), register()
		case plugin.StepLoad:
			s.Dst, s.A = temp(), word()
		case plugin.StepStore:
			s.Dst, s.A = word(), register()
		case plugin.StepSignal:
			s.Dst, s.A, s.B = word(), register(), optional()
		case plugin.StepCopy:
			s.Dst, s.A, s.N = local(), ref(), register()
		case plugin.StepAddress:
			s.Dst, s.A = temp(), nearest(ref(), plugin.SpaceSend, plugin.SpaceRecv)
			if s.A == 0 { // there is none
				s.Kind, s.A = plugin.StepLoad, word()
			}
		case plugin.StepReduce:
			s.Dst, s.A, s.N = local(), local(), register()
			s.B = 1 + next()%(uint16(len(p.Refs))-s.A)
			for i := range s.B {
				if p.Refs[s.A+i].Space == plugin.SpacePeer {
					s.B = i
					break
				}
			}
		case plugin.StepWait:
			s.A, s.B, s.C = word(), register(), optional()
		case plugin.StepBarrier:
			s.Dst, s.A = word(), word()
		case plugin.StepLoop:
			s.Dst, s.B, s.N = temp(), 1+next()%8, register()
		case plugin.StepIf:
			s.A, s.B = register(), 1+next()%8
		case plugin.StepRemote:
			s.Dst, s.A, s.C = word(), register(), register()
		}
		p.Steps = append(p.Steps, s)
	}
	half := uint16(len(p.Steps) / 2)
	p.Tracks = []plugin.Track{{First: 0, Count: half}, {First: half, Count: uint16(len(p.Steps)) - half}}
	for _, track := range p.Tracks {
		fitBlocks(p.Steps[track.First:track.First+track.Count], 0)
	}
	return p
}

// fitBlocks cuts loops and ifs so that they end within what encloses them,
// and makes what cannot be cut, or nests too deep, an inert step.
func fitBlocks(steps []plugin.Step, depth int) {
	for i := 0; i < len(steps); i++ {
		s := &steps[i]
		if s.Kind != plugin.StepLoop && s.Kind != plugin.StepIf {
			continue
		}
		s.B = min(s.B, uint16(len(steps)-i-1))
		if s.B == 0 || depth == plugin.MaxLoopDepth {
			*s = plugin.Step{Kind: plugin.StepCopy} // ref 0 onto itself, slot count bytes
			continue
		}
		fitBlocks(steps[i+1:i+1+int(s.B)], depth+1)
		i += int(s.B)
	}
}

// seedPlan writes a plan's bytes as planOf reads them.
func seedPlan(words ...uint16) []byte {
	var out []byte
	for _, w := range words {
		out = binary.LittleEndian.AppendUint16(out, w)
	}
	return out
}

// FuzzPlan runs any plan that is valid. It may succeed or fail, but it ends,
// and it touches nothing but its regions and the caller's memory: behind each
// lies a page that traps, before each bytes that must not change.
func FuzzPlan(f *testing.F) {
	const bytesOf = 1000 // of every piece of memory; odd enough to misalign ends
	var wholes, inners [][]byte
	for range 4 { // send, recv, region of rank 0, region of rank 1
		whole, inner := guarded(f, bytesOf)
		wholes, inners = append(wholes, whole), append(inners, inner)
	}
	page := unix.Getpagesize()
	e, err := NewEngine(0, 2)
	must(f, err)
	e.SetPolicy(Policy{Spins: 1})
	e.setGrace(0)
	must(f, e.SetPeerProcess(0, unix.Getpid())) // rank 1's is unknown
	for rank := range 2 {
		must(f, e.SetRegion(0, 0, rank, memory(inners[2+rank])))
		must(f, e.SetControl(rank, memory(mapped(f, memfd(f, ControlBytes), ControlBytes))))
	}
	f.Cleanup(func() {
		e.Close()
		for _, w := range wholes {
			must(f, unix.Munmap(w))
		}
	})

	one := uint16(plugin.SlotCountOf(2)) // the first constant
	f.Add(seedPlan(7, 0, 2, 2, 8, 1, 16, 1, 2, 0, one, one, one, 1, 2, one, one, one, 1, 3, 0, 0, 1, one, 4, 0, 0, 1, one))
	f.Add(seedPlan(1, 5, 3, 3, 1, 1, 0xFFFF, 3, 64, 1, 3, 2, one, one, one, 0, one, 1, one, one, one, 1, 0, 0, 0, one, 0,
		one, 0, 8, 0, 0, 2, one, 0, 5, 0, 0, 1, one))
	// The address of the send memory, and a copy from there as from a peer.
	f.Add(seedPlan(1, 0, 2, 1, 0, 1, one, one, one, 3, 0, one, one, one, 0, 3, one+1, one, one, 0, 1, one, one, one, 0,
		13, 0, 0, 1, 3, 0, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
	f.Add(bytes.Repeat([]byte{3, 0, 250, 1, 9}, 60))

	f.Fuzz(func(t *testing.T, data []byte) {
		p := planOf(data)
		if p.Validate() != nil {
			return
		}
		program, err := e.Load(p, 0)
		if err != nil {
			return
		}
		defer program.Free()
		for _, w := range wholes {
			clear(w[page : len(w)-page])
		}
		a := &Arguments{Send: unsafe.Pointer(&inners[0][0]), Recv: unsafe.Pointer(&inners[1][0])}
		a.Slots[plugin.SlotCount], a.Slots[plugin.SlotBytes] = 16, 64
		a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = bytesOf, bytesOf
		a.Arrays = []int64{8, 16, 0, 8, 24, 32, 0, 40}
		start := time.Now()
		err = e.Run(program, a, time.Millisecond)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
		if err != nil && plugin.CodeOf(err) != plugin.Timeout && plugin.CodeOf(err) != plugin.InvalidArgument &&
			plugin.CodeOf(err) != plugin.Internal && plugin.CodeOf(err) != plugin.System {
			t.Errorf("unexpected %v", err)
		}
		for i, w := range wholes {
			for _, b := range w[page : len(w)-page-bytesOf] {
				if b != 0 {
					t.Fatalf("memory %d was written before its start", i)
				}
			}
		}
	})
}
