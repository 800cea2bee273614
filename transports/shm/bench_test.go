package shm

import (
	"fmt"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

// BenchmarkCollectives measures every algorithm with ranks as threads of one
// process and reports the best of several runs, in microseconds. Sizes are
// bytes of one rank's message, as in Request.Bytes.
func BenchmarkCollectives(b *testing.B) {
	collectives := []plugin.Collective{
		plugin.AllReduce, plugin.AllGather, plugin.AllToAll, plugin.Broadcast, plugin.ReduceScatter,
		plugin.Reduce, plugin.AllToAllV, plugin.Gather, plugin.Scatter, plugin.Barrier,
	}
	for _, c := range collectives {
		for _, world := range []int{2, 4} {
			for _, name := range names(b, c, world) {
				b.Run(fmt.Sprintf("%s/world=%d/%s", c, world, name), func(b *testing.B) {
					w := openWorld(b, world)
					for bytes := int64(8); bytes <= 16<<20; bytes *= 8 {
						b.Run(fmt.Sprint(bytes), func(b *testing.B) { bestOf(b, w, c, name, bytes) })
					}
				})
			}
		}
	}
}

func bestOf(b *testing.B, w *plantest.World, c plugin.Collective, name string, bytes int64) {
	o := plantest.Operation{Collective: c, DType: plugin.Float32, Algorithm: name, Count: bytes / 4}
	o.Matrix = make([][]int64, w.Size)
	for r := range o.Matrix {
		o.Matrix[r] = make([]int64, w.Size)
		for p := range o.Matrix[r] {
			o.Matrix[r][p] = o.Count
		}
	}
	n := int(max(3, min(2000, (4<<20)/bytes)))
	best := time.Duration(1 << 62)
	for range b.N {
		took, err := w.Repeat(&o, n)
		if err != nil {
			b.Fatal(err)
		}
		best = min(best, took)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(best.Microseconds())/float64(n), "best-us")
}
