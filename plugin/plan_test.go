package plugin

import (
	"errors"
	"testing"
)

// A peer's memory can only be copied from; what is in it, and the address of
// what is not the caller's, no step can use.
func TestValidatePeerMemory(t *testing.T) {
	for name, test := range map[string]struct {
		valid bool
		body  func(b *Builder, peer, region RefID)
	}{
		"copy from":         {true, func(b *Builder, peer, _ RefID) { b.Copy(b.Recv(b.Const(0)), peer, b.Const(8)) }},
		"address of send":   {true, func(b *Builder, _, region RefID) { b.Store(region, b.Address(b.Send(b.Const(0)))) }},
		"address of recv":   {true, func(b *Builder, _, region RefID) { b.Store(region, b.Address(b.Recv(b.Const(0)))) }},
		"copy to":           {false, func(b *Builder, peer, _ RefID) { b.Copy(peer, b.Send(b.Const(0)), b.Const(8)) }},
		"reduce from":       {false, func(b *Builder, peer, _ RefID) { b.Reduce(b.Recv(b.Const(0)), b.Const(1), b.Send(b.Const(0)), peer) }},
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
