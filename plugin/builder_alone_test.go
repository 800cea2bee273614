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

// CopyOwn copies by slots that the host fills in for the collective; where a rank has no block of its own there is no
// plan, in place of one that leaves its part of the result unwritten.
func TestCopyOwn(t *testing.T) {
	const world, rank = 3, 1
	for _, c := range Collectives() {
		b := NewBuilder(Request{Collective: c, DType: Float32, World: world, Rank: rank}, "own")
		b.Track(b.CopyOwn)
		p, err := b.Plan()
		var count int
		switch c {
		case AllGather, AllGatherV, Gather, GatherV:
			count = SlotRecvCount(world, rank)
		case AllToAll, AllToAllV, Scatter, ScatterV:
			count = SlotSendCount(world, rank)
		default:
			if err == nil {
				t.Errorf("%s: got a plan:\n%s", c, p.Text())
			}
			continue
		}
		if err != nil || len(p.Steps) != 1 || p.Steps[0].Kind != StepCopy || int(p.Steps[0].N) != count {
			t.Errorf("%s: %v, %+v; want one copy of as many bytes as slot %d says", c, err, p, count)
		}
	}
}
