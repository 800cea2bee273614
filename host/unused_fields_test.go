package host_test

import (
	"testing"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// TestUnusedFields: ranks agree although one of them has left something in every
// field of an Operation that its collective does not use.
func TestUnusedFields(t *testing.T) {
	const n = 2
	for _, collective := range plugin.Collectives() {
		if collective.PointToPoint() {
			continue
		}
		t.Run(collective.String(), func(t *testing.T) {
			world(t, n, func(c *host.Communicator) error {
				send, recv := make([]int32, 2*n), make([]int32, 2*n)
				counts := []int64{2, 2}
				op := &host.Operation{Collective: collective, DType: plugin.Int32, Send: at(send), Recv: at(recv), Count: 2,
					SendCounts: counts, RecvCounts: counts}
				if collective == plugin.Barrier {
					op = &host.Operation{Collective: collective}
				}
				if c.Rank() == 1 {
					spoil(op)
				}
				for range 3 { // the later ones may take quicker ways
					if err := c.Do(op); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// spoil fills what the collective does not use.
func spoil(op *host.Operation) {
	op.Scalar, op.Offset = 3, 5
	if !op.Collective.Reduces() {
		op.Op = plugin.OpMax
	}
	if !op.Collective.Rooted() {
		op.Root = 1
	}
	switch op.Collective {
	case plugin.Barrier:
		op.DType, op.Count, op.SendCounts, op.RecvCounts = plugin.Float64, 7, []int64{1}, []int64{2}
	case plugin.AllToAllV, plugin.ReduceScatterV:
		op.Count = 9
	}
}
