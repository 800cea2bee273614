package shm

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Every algorithm gives every rank the same bits: those of a sum in rank order,
// each product rounded before it is summed. The inputs are chosen so that
// another order, or a product that is not rounded, gives other bits.
func TestReductionBits(t *testing.T) {
	const world, n = 3, 100003
	for _, name := range names(t, plugin.AllReduce, world) {
		t.Run(name, func(t *testing.T) { reductionBits(t, openWorld(t, world), name, n) })
	}
}

func reductionBits(t *testing.T, w *plantest.World, name string, n int) {
	input := func(rank, i int) float32 {
		return float32(math.Sin(float64(i*7+rank))) * float32(int64(1)<<(i*(rank+1)%40))
	}
	scalars := []float64{0.1, 1.7, -0.3}
	want := make([]byte, 4*n)
	for i := range n {
		sum := input(0, i) * float32(scalars[0])
		for r := 1; r < w.Size; r++ {
			sum += float32(input(r, i) * float32(scalars[r])) // converted, so that Go rounds it before it is summed
		}
		binary.LittleEndian.PutUint32(want[4*i:], math.Float32bits(sum))
	}
	err := w.Each(func(rank int) error {
		send := make([]byte, 4*n)
		for i := range n {
			binary.LittleEndian.PutUint32(send[4*i:], math.Float32bits(input(rank, i)))
		}
		got, err := w.AllReduce(rank, name, plugin.Float32, plugin.OpPremulSum, scalars[rank], send)
		if err != nil {
			return err
		}
		for i := range got {
			if got[i] != want[i] {
				return fmt.Errorf("rank %d: byte %d is %#x, want %#x", rank, i, got[i], want[i])
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
