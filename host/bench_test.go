package host_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

// The hot path: one small operation from Go, ranks being goroutines on threads of
// their own. It must not allocate.

func BenchmarkAllReduce8B(b *testing.B) {
	benchmark8B(b, func(c *host.Communicator, x, y []float32) error {
		return c.AllReduce(at(x), at(y), 2, plugin.Float32, plugin.OpSum, nil)
	})
}

func BenchmarkBroadcast8B(b *testing.B) {
	benchmark8B(b, func(c *host.Communicator, x, _ []float32) error {
		return c.Broadcast(at(x), at(x), 2, plugin.Float32, 0, nil)
	})
}

func benchmark8B(b *testing.B, do func(c *host.Communicator, x, y []float32) error) {
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("world=%d", n), func(b *testing.B) {
			id, root, err := bootstrap.NewID("")
			if err != nil {
				b.Fatal(err)
			}
			defer root.Close()
			b.ReportAllocs()
			var ready, done sync.WaitGroup
			start := make(chan struct{})
			ready.Add(n)
			for rank := range n {
				done.Add(1)
				go func() {
					defer done.Done()
					runtime.LockOSThread()
					c, err := host.Init(context.Background(), options(id, rank, n))
					if err != nil {
						b.Error(err)
						ready.Done()
						return
					}
					x, y := []float32{1, 2}, []float32{0, 0}
					call := func() bool {
						if err := do(c, x, y); err != nil {
							b.Error(err)
							return false
						}
						return true
					}
					ok := call()
					ready.Done()
					<-start
					for i := 0; ok && i < b.N; i++ {
						ok = call()
					}
					if err := c.Close(); err != nil {
						b.Error(err)
					}
				}()
			}
			ready.Wait()
			b.ResetTimer()
			close(start)
			done.Wait()
		})
	}
}
