package host_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

// Messages without a wait: one thread is both ends, which sends what it then
// receives. It is the work of the two, whatever the machine does besides.
func BenchmarkMessageInTurn(b *testing.B) {
	benchmarkMessages(b, inTurn)
}

// Collectives of 8 bytes without a wait, from one thread that is both ends: what a
// call costs, marks included. A broadcast that repeats itself has a short form, a
// reduce has none.
func BenchmarkCollectiveInTurn(b *testing.B) {
	for name, collective := range map[string]plugin.Collective{"broadcast": plugin.Broadcast, "reduce": plugin.Reduce} {
		b.Run(name, func(b *testing.B) {
			benchmarkEnds(b, []int{8}, func(b *testing.B, ends [2]*host.Communicator, x, y []byte) error {
				first, root := 0, 0
				if collective == plugin.Reduce { // the other ranks only write
					first = 1
				}
				ops := [2]host.Operation{}
				for rank, memory := range [2][]byte{x, y} {
					ops[rank] = host.Operation{Collective: collective, Send: at(memory), Recv: at(memory), Count: 2,
						DType: plugin.Float32, Root: root}
				}
				prepared := make(chan error) // the first call of its kind is an agreement
				go func() { prepared <- ends[1].Do(&ops[1]) }()
				if err := errors.Join(ends[0].Do(&ops[0]), <-prepared); err != nil {
					return err
				}
				b.ResetTimer()
				for range b.N {
					for _, rank := range [2]int{first, 1 - first} {
						if err := ends[rank].Do(&ops[rank]); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
	}
}

// Messages there and back between two threads.
func BenchmarkMessageThereAndBack(b *testing.B) {
	benchmarkMessages(b, func(b *testing.B, ends [2]*host.Communicator, x, y []byte) error {
		var back sync.WaitGroup
		var err error
		n := int64(len(x))
		back.Go(func() {
			runtime.LockOSThread()
			for i := 0; i < b.N && err == nil; i++ {
				if err = ends[1].Recv(at(y), n, plugin.Uint8, 0, nil); err == nil {
					err = ends[1].Send(at(y), n, plugin.Uint8, 0, nil)
				}
			}
		})
		for range b.N {
			if err := ends[0].Send(at(x), n, plugin.Uint8, 1, nil); err != nil {
				return err
			}
			if err := ends[0].Recv(at(x), n, plugin.Uint8, 1, nil); err != nil {
				return err
			}
		}
		back.Wait()
		return err
	})
}

// Messages one way, the receiver behind the sender.
func BenchmarkMessageStream(b *testing.B) {
	benchmarkMessages(b, func(b *testing.B, ends [2]*host.Communicator, x, y []byte) error {
		var receiver sync.WaitGroup
		var err error
		n := int64(len(x))
		receiver.Go(func() {
			runtime.LockOSThread()
			for i := 0; i < b.N && err == nil; i++ {
				err = ends[1].Recv(at(y), n, plugin.Uint8, 0, nil)
			}
		})
		for range b.N {
			if err := ends[0].Send(at(x), n, plugin.Uint8, 1, nil); err != nil {
				return err
			}
		}
		receiver.Wait()
		return err
	})
}

func inTurn(b *testing.B, ends [2]*host.Communicator, x, y []byte) error {
	n := int64(len(x))
	for range b.N {
		if err := ends[0].Send(at(x), n, plugin.Uint8, 1, nil); err != nil {
			return err
		}
		if err := ends[1].Recv(at(y), n, plugin.Uint8, 0, nil); err != nil {
			return err
		}
	}
	return nil
}

func benchmarkMessages(b *testing.B, run func(b *testing.B, ends [2]*host.Communicator, x, y []byte) error) {
	benchmarkEnds(b, []int{8, 64, 512, 4096}, run)
}

// benchmarkEnds runs something with the two ends of a communicator, for messages of
// each of some sizes.
func benchmarkEnds(b *testing.B, sizes []int, run func(b *testing.B, ends [2]*host.Communicator, x, y []byte) error) {
	id, root, err := bootstrap.NewID("")
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	var ends [2]*host.Communicator
	var ready sync.WaitGroup
	for rank := range ends {
		ready.Go(func() {
			var err error
			if ends[rank], err = host.Init(context.Background(), options(id, rank, 2)); err != nil {
				b.Error(err)
			}
		})
	}
	ready.Wait()
	if b.Failed() {
		return
	}
	for _, n := range sizes {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) {
			b.ReportAllocs()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := run(b, ends, make([]byte, n), make([]byte, n)); err != nil {
				b.Error(err)
			}
		})
	}
	for _, c := range ends {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}
}
