package conformance

import (
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// Layouts of all ranks must fit together: what one sends, another receives.
func TestLayoutsFitTogether(t *testing.T) {
	for _, collective := range plugin.Collectives()[:plugin.Send] {
		for _, split := range []Split{Even, Ragged, Single, Sparse} {
			for _, displ := range []Displ{NoDispl, Packed, Gapped, Reversed} {
				c := Case{Collective: collective, DType: plugin.Float16, Count: 37, World: 3, Root: 1, Split: split, Displ: displ,
					Seed: 11, Family: Exact}
				sent, received := int64(0), int64(0)
				for rank := range c.World {
					l := c.layoutOf(rank)
					for _, b := range l.input {
						sent += b.count
						if b.at < 0 || b.at+b.count > l.send {
							t.Errorf("%s rank %d: input [%d,+%d) of %d", c.Name(), rank, b.at, b.count, l.send)
						}
					}
					for i, b := range l.output {
						received += b.count
						if b.at < 0 || b.at+b.count > l.recv {
							t.Errorf("%s rank %d: output [%d,+%d) of %d", c.Name(), rank, b.at, b.count, l.recv)
						}
						for _, o := range l.output[:i] {
							if b.count > 0 && o.count > 0 && b.at < o.at+o.count && o.at < b.at+b.count {
								t.Errorf("%s rank %d: blocks overlap", c.Name(), rank)
							}
						}
					}
				}
				exchange := collective == plugin.AllToAll || collective == plugin.AllToAllV || collective == plugin.Scatter ||
					collective == plugin.ScatterV || collective == plugin.Gather || collective == plugin.GatherV
				if exchange && sent != received {
					t.Errorf("%s: %d elements sent, %d received", c.Name(), sent, received)
				}
			}
		}
	}
}
