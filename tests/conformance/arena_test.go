package conformance

import (
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestArenaSeesEveryStrayByte(t *testing.T) {
	c := &Case{Collective: plugin.AllGatherV, DType: plugin.Int32, Count: 5, World: 3, Split: Even, Displ: Gapped, Seed: 3,
		Family: Exact}
	l := c.layoutOf(0)
	var a arena
	defer a.close()
	if err := a.reset(need(c.DType, l.recv, 3)); err != nil {
		t.Fatal(err)
	}
	b, err := a.buffer("recv", c.DType, l.recv, 3, 7)
	if err != nil {
		t.Fatal(err)
	}
	if uintptr(b.pointer(0))%64 != 12 || uintptr(b.pointer(1))%64 != 16 {
		t.Errorf("addresses %p and %p are not shifted by three elements", b.pointer(0), b.pointer(1))
	}
	for _, e := range l.output {
		b.put(e)
	}
	if err := b.check(c, l.output); err != nil {
		t.Fatal(err)
	}
	for i := range b.all {
		b.all[i] ^= 0x10
		if b.check(c, l.output) == nil {
			t.Fatalf("byte %d of %d was changed unnoticed", i, len(b.all))
		}
		b.all[i] ^= 0x10
	}
	if err := b.check(c, l.output); err != nil {
		t.Fatal(err)
	}
}

func TestUnwrittenElementIsNamed(t *testing.T) {
	c := &Case{Collective: plugin.Broadcast, DType: plugin.Uint8, Count: 3000, World: 2, Seed: 3}
	var a arena
	defer a.close()
	if err := a.reset(need(c.DType, c.Count, 0)); err != nil {
		t.Fatal(err)
	}
	b, err := a.buffer("recv", c.DType, c.Count, 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	err = b.check(c, c.layoutOf(0).output)
	if err == nil || !strings.Contains(err.Error(), "element 0") || !strings.Contains(err.Error(), "never written") {
		t.Errorf("error %v", err)
	}
}
