package plugin

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A peer's memory can only be copied from; what is in it, and the address of
// what is not the caller's, no step can use.
// A transport that returns neither a plan nor an error has broken the contract.
func TestValidateWithoutAPlan(t *testing.T) {
	var none *Plan
	for _, err := range []error{none.Validate(), none.ValidateFor(Request{})} {
		if !errors.Is(err, Protocol) || err.Error() != "the transport returned no plan" {
			t.Error(err)
		}
	}
}

func TestValidatePeerMemory(t *testing.T) {
	for name, test := range map[string]struct {
		valid bool
		body  func(b *Builder, peer, region RefID)
	}{
		"copy from":       {true, func(b *Builder, peer, _ RefID) { b.Copy(b.Recv(b.Const(0)), peer, b.Const(8)) }},
		"address of send": {true, func(b *Builder, _, region RefID) { b.Store(region, b.Address(b.Send(b.Const(0)))) }},
		"address of recv": {true, func(b *Builder, _, region RefID) { b.Store(region, b.Address(b.Recv(b.Const(0)))) }},
		"copy to":         {false, func(b *Builder, peer, _ RefID) { b.Copy(peer, b.Send(b.Const(0)), b.Const(8)) }},
		"reduce from": {false, func(b *Builder, peer,
			_ RefID) {
			b.Reduce(b.Recv(b.Const(0)), b.Const(1), b.Send(b.Const(0)), peer)
		}},
		"reduce to":         {false, func(b *Builder, peer, _ RefID) { b.Reduce(peer, b.Const(1), b.Send(b.Const(0))) }},
		"load":              {false, func(b *Builder, peer, _ RefID) { b.Load(peer) }},
		"store":             {false, func(b *Builder, peer, _ RefID) { b.Store(peer, b.Const(1)) }},
		"signal":            {false, func(b *Builder, peer, _ RefID) { b.SignalAll(peer, b.Const(1)) }},
		"wait":              {false, func(b *Builder, peer, _ RefID) { b.Wait(peer, b.Const(1), b.Const(0)) }},
		"address of peer":   {false, func(b *Builder, peer, _ RefID) { b.Address(peer) }},
		"address of region": {false, func(b *Builder, _, region RefID) { b.Address(region) }},
		"scaled": {false, func(b *Builder, peer, _ RefID) {
			b.plan.Refs[peer].Scale = uint16(SlotScalar)
			b.Copy(b.Recv(b.Const(0)), peer, b.Const(8))
		}},
		"kernel argument": {false, func(b *Builder, peer, _ RefID) {
			b.plan.Args = append(b.plan.Args, Arg{Ref: uint16(peer), Value: None, Bytes: 8})
			b.Copy(b.Recv(b.Const(0)), peer, b.Const(8))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder(Request{Collective: AllReduce, DType: Int32, World: 2, PeerRead: true}, "test")
			b.Track(func() {
				peer := b.Peer(b.Const(4096), b.Const(1), b.Const(0))
				test.body(b, peer, b.Region(b.Const(0), b.Const(0), b.Const(0)))
			})
			_, err := b.Plan()
			if (err == nil) != test.valid {
				t.Errorf("%v, want valid %t", err, test.valid)
			}
			if err != nil && !errors.Is(err, Protocol) {
				t.Errorf("%v, want code protocol", err)
			}
		})
	}
}

// The receive memory of peers is for copies and kernels of plans for symmetric
// requests, and for nothing else.
func TestValidatePeerRecv(t *testing.T) {
	for name, test := range map[string]struct {
		valid bool
		body  func(b *Builder, peer RefID)
	}{
		"copy to":   {true, func(b *Builder, peer RefID) { b.Copy(peer, b.Send(b.Const(0)), b.Const(8)) }},
		"copy from": {true, func(b *Builder, peer RefID) { b.Copy(b.Recv(b.Const(0)), peer, b.Const(8)) }},
		"kernel argument": {true, func(b *Builder, peer RefID) {
			b.Launch("image", "kernel", b.Const(1), b.Const(1),
				Address(peer))
		}},
		"reduce from": {false, func(b *Builder, peer RefID) {
			b.Reduce(b.Recv(b.Const(0)), b.Const(1), b.Send(b.Const(0)),
				peer)
		}},
		"reduce to": {false, func(b *Builder, peer RefID) { b.Reduce(peer, b.Const(1), b.Send(b.Const(0))) }},
		"load":      {false, func(b *Builder, peer RefID) { b.Load(peer) }},
		"store":     {false, func(b *Builder, peer RefID) { b.Store(peer, b.Const(1)) }},
		"signal":    {false, func(b *Builder, peer RefID) { b.SignalAll(peer, b.Const(1)) }},
		"wait":      {false, func(b *Builder, peer RefID) { b.Wait(peer, b.Const(1), b.Const(0)) }},
		"address":   {false, func(b *Builder, peer RefID) { b.Address(peer) }},
		"scaled": {false, func(b *Builder, peer RefID) {
			b.plan.Refs[peer].Scale = uint16(SlotScalar)
			b.Copy(peer, b.Send(b.Const(0)), b.Const(8))
		}},
		"rank out of range": {false, func(b *Builder, peer RefID) {
			b.plan.Refs[peer].Rank = None - 1
			b.Copy(peer, b.Send(b.Const(0)), b.Const(8))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			symmetric := Request{Collective: AllGather, DType: Uint8, World: 2, Rank: 1, Symmetric: true}
			b := NewBuilder(symmetric, "test")
			b.Track(func() {
				b.Set(b.Temp(), AluMov, b.Const(7), 0, 0)
				test.body(b, b.PeerRecv(b.Const(0), b.Const(0)))
			})
			p, err := b.Plan()
			if (err == nil) != test.valid {
				t.Errorf("%v, want valid %t", err, test.valid)
			}
			if err != nil {
				if !errors.Is(err, Protocol) {
					t.Errorf("%v, want code protocol", err)
				}
				return
			}
			if err := p.ValidateFor(symmetric); err != nil {
				t.Error(err)
			}
			plain := symmetric
			plain.Symmetric = false
			if err := p.ValidateFor(plain); !errors.Is(err, Protocol) || !strings.Contains(err.Error(), "step 1 (") {
				t.Errorf("for a request that is not symmetric: %v, want code protocol and the step's number", err)
			}
		})
	}
	b := NewBuilder(Request{Collective: AllGather, World: 2}, "test")
	b.Track(func() { b.Copy(b.PeerRecv(b.Const(0), b.Const(0)), b.Send(b.Const(0)), b.Const(8)) })
	if _, err := b.Plan(); err == nil {
		t.Error("the builder writes receive memory of a peer into a plan for a request that is not symmetric")
	}
}

// Authors in other languages count the registers by these words.
func TestTextsCountTheScalarSlots(t *testing.T) {
	count := regexp.MustCompile(`(\d+)\s+(?://\s+)?scalars`)
	for _, path := range []string{"shunt_transport.h", "proto/transport.proto", "../docs/decisions/0001-plans.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := count.FindStringSubmatch(string(text))
		if want := strconv.Itoa(int(SlotArrays)); found == nil || found[1] != want {
			t.Errorf("%s says %q, want %s scalars", path, found, want)
		}
	}
}

func TestValidateCountsArguments(t *testing.T) {
	for _, write := range []func(b *Builder, args []Reg){
		func(b *Builder, args []Reg) { b.Remote(b.Region(b.Const(0), b.Rank(), b.Const(0)), 4, 1, args...) },
		func(b *Builder, args []Reg) { b.Native(Native{Start: 1, Poll: 1}, args...) },
	} {
		for n, want := range map[int]string{MaxCommandArgs: "", MaxCommandArgs + 1: "has 17 arguments, want at most 16"} {
			b := NewBuilder(Request{Collective: Barrier, World: 1}, "a")
			b.Track(func() {
				args := make([]Reg, n)
				for i := range args {
					args[i] = b.Const(1)
				}
				write(b, args)
			})
			if _, err := b.Plan(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%d: %v", n, err)
			}
		}
	}
}

// The error of a plan written as numbers names the number that is wrong.
func TestValidateShowsOperands(t *testing.T) {
	p := &Plan{Algorithm: "a", World: 1, Consts: []int64{7}, Temps: 1, Tracks: []Track{{0, 1}},
		Steps: []Step{{Kind: StepSet, Alu: AluMov, Dst: uint16(SlotArrays) + 4, A: uint16(SlotArrays) + 6}}}
	want := "step 0 (set): operand out of range: dst 13, a 15, b 0, c 0, n 0, in a plan of 15 registers, " +
		"whose temporaries begin at 14, and 0 refs"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	p.Refs = []Ref{{Space: SpaceRecv, Offset: 99, Scale: None}}
	want = "ref 0: register out of range: region 0, rank 0, offset 99, scale 65535, in a plan of 15 registers"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestValidateNativeFunctions(t *testing.T) {
	p := &Plan{Algorithm: "a", World: 1, Natives: []Native{{Function: 1}, {Start: 2}}, Tracks: []Track{{0, 1}},
		Steps: []Step{{Kind: StepNative, A: 1}}}
	want := "native function 1: it has function false, start true, poll false, want the function alone, or start and poll"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// What a step may not have is named where it can be.
func TestStepsWithOperandsOfAnotherKind(t *testing.T) {
	for want, body := range map[string]func(b *Builder, word, send RefID, one Reg){
		"step 0 (load): its word is in space send":    func(b *Builder, _, send RefID, _ Reg) { b.Load(send) },
		"step 0 (store): its word is in space send":   func(b *Builder, _, send RefID, one Reg) { b.Store(send, one) },
		"step 0 (signal): its word is in space send":  func(b *Builder, _, send RefID, one Reg) { b.SignalAll(send, one) },
		"step 0 (wait): its word is in space send":    func(b *Builder, _, send RefID, one Reg) { b.Wait(send, one, one) },
		"step 0 (barrier): its word is in space recv": func(b *Builder, word, _ RefID, one Reg) { b.Barrier(word, b.Recv(one)) },
		"step 0 (remote): its word is in space send":  func(b *Builder, _, send RefID, _ Reg) { b.Remote(send, 8, 1) },
		"step 0 (reduce) has no sources":              func(b *Builder, _, send RefID, one Reg) { b.Reduce(send, one) },
		"": func(b *Builder, word, send RefID, one Reg) {
			b.Store(word, b.Load(word))
			b.Barrier(word, word)
			b.Reduce(send, one, send)
		},
	} {
		b := NewBuilder(Request{Collective: AllReduce, World: 2}, "test")
		one := b.Const(1)
		b.Track(func() { body(b, b.Region(one, one, one), b.Send(one), one) })
		_, err := b.Plan()
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, Protocol) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	var empty Plan
	err := empty.Validate()
	if err == nil || !strings.Contains(err.Error(), "plan without a name: it is for rank 0 of a world of 0") {
		t.Error(err)
	}
}

// Nothing has checked a step that is in no track.
func TestStepsOutsideTracksAreNotLookedAt(t *testing.T) {
	req := Request{Collective: AllReduce, World: 2}
	p := Plan{Algorithm: "test", Collective: AllReduce, World: 2, Steps: []Step{{Kind: StepCopy, Dst: 9, A: 9},
		{Kind: StepLaunch, A: 9}}}
	if err := p.ValidateFor(req); err != nil {
		t.Error(err)
	}
}

// A plan of a reduction serves its dtype and op; others serve every one.
func TestPlanIsForItsRequest(t *testing.T) {
	for _, collective := range []Collective{AllReduce, AllGather} {
		req := Request{Collective: collective, DType: Float32, Op: OpMax, World: 4, Rank: 2}
		p, err := NewBuilder(req, "test").Plan()
		if err == nil {
			err = p.ValidateFor(req)
		}
		if err != nil {
			t.Fatal(err)
		}
		for want, change := range map[string]func(*Request){
			"want broadcast (": func(r *Request) { r.Collective = Broadcast },
			"rank 1 of 4)":     func(r *Request) { r.Rank = 1 },
			"rank 2 of 3)":     func(r *Request) { r.World = 3 },
			"dtype float64,":   func(r *Request) { r.DType = Float64 },
			"op sum,":          func(r *Request) { r.Op = OpSum },
		} {
			other := req
			change(&other)
			err := p.ValidateFor(other)
			if collective == AllGather && (other.DType != req.DType || other.Op != req.Op) {
				if err != nil {
					t.Errorf("all_gather moves bytes: %v", err)
				}
			} else if !errors.Is(err, Protocol) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}
