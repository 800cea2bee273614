package shm

import (
	"testing"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Broadcasts by an offer and through the ring take turns, with other roots and
// lengths in between: both ends change the protocol at the same length.
func TestSingleCopyBroadcastsAroundTheCachedLength(t *testing.T) {
	const world = 3
	w := openWorld(t, world)
	var operations []plantest.Operation
	for i, bytes := range []int64{cachedBytes + 4, cachedBytes, 4, cachedBytes + largeBytes*largeSlots, 0, cachedBytes - 4,
		2*cachedBytes + 4} {
		for _, inPlace := range []bool{false, true} {
			operations = append(operations, plantest.Operation{
				Collective: plugin.Broadcast, DType: plugin.Int32, Algorithm: "single_copy",
				Count: bytes / 4, Root: i % world, InPlace: inPlace,
			})
		}
	}
	if err := w.Run(operations, nil); err != nil {
		t.Fatal(err)
	}
}
