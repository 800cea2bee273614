package plugin

import "testing"

// Every collective of a world of one has one step, a copy; what is not a
// collective gets no plan from Alone.
func TestAlone(t *testing.T) {
	for _, c := range Collectives() {
		b := NewBuilder(Request{Collective: c, DType: Float32, World: 1}, "local")
		b.Alone()
		p, err := b.Plan()
		if c == Barrier || c.PointToPoint() {
			if err == nil && len(p.Steps) != 0 {
				t.Errorf("%s: steps %v", c, p.Steps)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		if len(p.Steps) != 1 || p.Steps[0].Kind != StepCopy {
			t.Errorf("%s: steps %v", c, p.Steps)
		}
	}
}
