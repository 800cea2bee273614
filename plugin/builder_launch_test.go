package plugin

import "testing"

// Launch puts arguments, grid and block where the executor finds them, and the
// abort word is an argument and nothing else.
func TestBuilderLaunch(t *testing.T) {
	b := NewBuilder(Request{Collective: AllReduce, DType: Float32, World: 2, Rank: 1}, "test")
	b.Track(func() {
		blocks := b.CeilDiv(b.Slot(SlotBytes), b.Const(4096))
		b.Launch("image", "kernel", blocks, b.Const(256),
			Address(b.Send(b.Const(0))), Value(b.Slot(SlotBytes), 8), Address(b.Abort()), Value(b.Const(7), 4))
	})
	p, err := b.Plan()
	if err != nil {
		t.Fatal(err)
	}
	k := p.Kernels[0]
	constAt := func(r uint16) int64 { return p.Consts[int(r)-SlotCountOf(2)] }
	if constAt(k.Block[0]) != 256 || constAt(k.Grid[1]) != 1 || constAt(p.Args[3].Value) != 7 {
		t.Errorf("constants are not where the plan says: %+v %+v", k, p.Args)
	}
	if int(k.Grid[0]) < SlotCountOf(2)+len(p.Consts) {
		t.Errorf("the grid is computed, so it is a temporary, not register %d", k.Grid[0])
	}
	if k.CountArgs != 4 || p.Args[1].Value != uint16(SlotBytes) || p.Refs[p.Args[2].Ref].Space != SpaceAbort {
		t.Errorf("arguments: %+v", p.Args)
	}

	b = NewBuilder(Request{World: 2}, "test")
	b.Track(func() {
		b.Launch("image", "kernel", b.Const(1), b.Const(1))
		b.LaunchDependent("image", "kernel", b.Const(1), b.Const(1))
	})
	if p, err := b.Plan(); err != nil || p.Steps[0].B != 0 || p.Steps[1].B != LaunchDependent {
		t.Errorf("dependent launch: %v, %+v", err, p)
	}
	p.Steps[len(p.Steps)-1].B = 2
	if p.Validate() == nil {
		t.Error("an unknown flag of a launch is accepted")
	}

	for name, body := range map[string]func(b *Builder){
		"copy":   func(b *Builder) { b.Copy(b.Recv(b.Const(0)), b.Abort(), b.Const(4)) },
		"load":   func(b *Builder) { b.Load(b.Abort()) },
		"signal": func(b *Builder) { b.SignalAll(b.Abort(), b.Const(1)) },
		"size":   func(b *Builder) { b.Launch("image", "kernel", b.Const(1), b.Const(1), Value(b.Const(1), 3)) },
	} {
		b := NewBuilder(Request{World: 2}, "test")
		b.Track(func() { body(b) })
		if _, err := b.Plan(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
