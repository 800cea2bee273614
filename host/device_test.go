package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestDeviceCollectives(t *testing.T) {
	const n, count = 3, 5
	block := func(rank, from, length int) []float32 { return ramp(rank, from+length)[from:] }
	cases := map[string]func(r *rank) error{
		"all_gather": func(r *rank) error {
			b, done := r.buffers(count, n*count)
			var want []float32
			for p := range n {
				want = append(want, ramp(p, count)...)
			}
			return done(errors.Join(r.AllGather(pointer(b[0]), pointer(b[1]), count, plugin.Float32, r), r.expect(b[1], want)))
		},
		"all_gather in place": func(r *rank) error {
			b, done := r.buffers(1, n*count)
			own := b[1] + cuda.Ptr(4*count*r.Rank())
			p, err := r.floats(ramp(r.Rank(), count))
			err = errors.Join(err, r.driver.Copy(r.ctx, own, p, 4*count, r.stream))
			var want []float32
			for p := range n {
				want = append(want, ramp(p, count)...)
			}
			return done(errors.Join(err, r.AllGather(pointer(own), pointer(b[1]), count, plugin.Float32, r),
				r.expect(b[1], want), r.free(p)))
		},
		"reduce_scatter": func(r *rank) error {
			b, done := r.buffers(n*count, count)
			want := make([]float32, count)
			for p := range n {
				for i, v := range block(p, r.Rank()*count, count) {
					want[i] += v
				}
			}
			return done(errors.Join(r.ReduceScatter(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r),
				r.expect(b[1], want)))
		},
		"all_to_all": func(r *rank) error {
			b, done := r.buffers(n*count, n*count)
			var want []float32
			for p := range n {
				want = append(want, block(p, r.Rank()*count, count)...)
			}
			return done(errors.Join(r.AllToAll(pointer(b[0]), pointer(b[1]), count, plugin.Float32, r), r.expect(b[1], want)))
		},
		"all_to_all_v": func(r *rank) error {
			// Rank r sends r+p+1 elements to rank p, packed.
			var sends, recvs []int64
			total := 0
			var want []float32
			for p := range n {
				sends, recvs = append(sends, int64(r.Rank()+p+1)), append(recvs, int64(r.Rank()+p+1))
				total += r.Rank() + p + 1
				offset := 0
				for q := range r.Rank() {
					offset += p + q + 1
				}
				want = append(want, block(p, offset, r.Rank()+p+1)...)
			}
			b, done := r.buffers(total, total)
			return done(errors.Join(r.AllToAllV(pointer(b[0]), sends, nil, pointer(b[1]), recvs, nil, plugin.Float32, r),
				r.expect(b[1], want)))
		},
		"broadcast and reduce": func(r *rank) error {
			b, done := r.buffers(count, count, count)
			err := r.Broadcast(pointer(b[0]), pointer(b[1]), count, plugin.Float32, 1, r)
			err = errors.Join(err, r.expect(b[1], ramp(1, count)),
				r.Reduce(pointer(b[1]), pointer(b[2]), count, plugin.Float32, plugin.OpMax, 2, r))
			if r.Rank() == 2 {
				err = errors.Join(err, r.expect(b[2], ramp(1, count)))
			}
			return done(err)
		},
		"gather and scatter": func(r *rank) error {
			b, done := r.buffers(count, n*count, count)
			err := r.Gather(pointer(b[0]), pointer(b[1]), count, plugin.Float32, 0, r)
			err = errors.Join(err, r.Scatter(pointer(b[1]), pointer(b[2]), count, plugin.Float32, 0, r))
			return done(errors.Join(err, r.expect(b[2], ramp(r.Rank(), count))))
		},
		"send, recv and barrier": func(r *rank) error {
			b, done := r.buffers(count, count)
			var err error
			switch r.Rank() {
			case 0:
				err = r.Send(pointer(b[0]), count, plugin.Float32, 2, r)
			case 2:
				err = errors.Join(r.Recv(pointer(b[1]), count, plugin.Float32, 0, r), r.expect(b[1], ramp(0, count)))
			}
			return done(errors.Join(err, r.Barrier(r)))
		},
		"on the default stream": func(r *rank) error {
			b, done := r.buffers(count, count)
			err := r.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpMin, nil)
			return done(errors.Join(err, r.Synchronize(nil), r.expect(b[1], ramp(0, count))))
		},
		"nothing": func(r *rank) error {
			return errors.Join(r.AllReduce(nil, nil, 0, plugin.Float32, plugin.OpSum, r),
				r.AllGather(nil, nil, 0, plugin.Int8, r), r.sync())
		},
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) { deviceWorld(t, n, body) })
	}
}

func TestDeviceGroupKeepsTheOrderOfEachPair(t *testing.T) {
	const n, messages = 3, 4
	deviceWorld(t, n, func(r *rank) error {
		// Every rank sends several messages of different lengths to everyone,
		// itself included, and receives as many.
		var g host.Group
		var free []cuda.Ptr
		type arrival struct {
			at   cuda.Ptr
			want []float32
		}
		var arrivals []arrival
		length := func(from, to, k int) int { return 1 + from + 10*to + 100*k }
		for k := range messages {
			for p := range n {
				out, in := length(r.Rank(), p, k), length(p, r.Rank(), k)
				send, err := r.floats(ramp(r.Rank()+k, out))
				if err != nil {
					return err
				}
				recv, err := r.floats(make([]float32, in))
				if err != nil {
					return err
				}
				free = append(free, send, recv)
				arrivals = append(arrivals, arrival{recv, ramp(p+k, in)})
				g.Add(host.Operation{Collective: plugin.Recv, Recv: pointer(recv), Count: int64(in), DType: plugin.Float32, Root: p,
					Stream: r})
				g.Add(host.Operation{Collective: plugin.Send, Send: pointer(send), Count: int64(out), DType: plugin.Float32,
					Root: p, Stream: r})
			}
		}
		if err := g.Run(r.Communicator); err != nil {
			return err
		}
		for i, a := range arrivals {
			if err := r.expect(a.at, a.want); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		return r.free(free...)
	})
}

// In a world of one, too, an operation on another stream waits for a group.
func TestDeviceGroupOfARankAloneIsInOrder(t *testing.T) {
	deviceWorld(t, 1, func(r *rank) error {
		b, done := r.buffers(8, 8, 8)
		word, err := r.driver.AllocHost(r.ctx, 8)
		if err != nil {
			return err
		}
		other, err := r.driver.NewStream(r.ctx, 0)
		if err != nil {
			return err
		}
		on := &rank{Communicator: r.Communicator, driver: r.driver, ctx: r.ctx, stream: other}
		err = errors.Join(r.driver.WaitValue(r.ctx, r.stream, word.Device, 1), r.toItself(b[0], b[1], 8, 1),
			on.AllReduce(pointer(b[1]), pointer(b[2]), 8, plugin.Float32, plugin.OpSum, on))
		for begun := time.Now(); err == nil && time.Since(begun) < 20*time.Millisecond; {
			var ended bool
			if ended, err = r.driver.StreamDone(r.ctx, other); ended {
				err = errors.New("the operation on the other stream did not wait")
			}
		}
		err = errors.Join(err, r.driver.WriteValue(r.ctx, 0, word.Device, 1), r.sync(), on.sync(), r.expect(b[2], ramp(0, 8)))
		return done(errors.Join(err, r.driver.DestroyStream(r.ctx, other), r.driver.FreeHost(r.ctx, word)))
	})
}

// toItself sends count numbers to the rank itself, in one group as often as times says.
func (r *rank) toItself(from, to cuda.Ptr, count int64, times int) error {
	var g host.Group
	for range times {
		g.Add(host.Operation{Collective: plugin.Send, Send: pointer(from), Count: count, DType: plugin.Float32,
			Root: r.Rank(), Stream: r})
		g.Add(host.Operation{Collective: plugin.Recv, Recv: pointer(to), Count: count, DType: plugin.Float32,
			Root: r.Rank(), Stream: r})
	}
	return g.Run(r.Communicator)
}

// A group may have more messages than one operation may have kernels.
func TestDeviceGroupMayBeLong(t *testing.T) {
	for world := 1; world <= 2; world++ {
		deviceWorld(t, world, func(r *rank) error {
			b, done := r.buffers(8, 8)
			err := r.toItself(b[0], b[1], 8, 10_000)
			return done(errors.Join(err, r.sync(), r.expect(b[1], ramp(r.Rank(), 8))))
		})
	}
}

func TestDeviceGroupRefusesWhatCannotMatch(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(4, 4)
		op := func(c plugin.Collective, count int64, s host.Stream) host.Operation {
			return host.Operation{Collective: c, Send: pointer(b[0]), Recv: pointer(b[1]), Count: count, DType: plugin.Float32,
				Root: r.Rank(), Stream: s}
		}
		for want, operations := range map[string][]host.Operation{
			"1 sends to itself but 0 receives":           {op(plugin.Send, 4, r)},
			"sends 16 bytes to itself but receives 12":   {op(plugin.Send, 4, r), op(plugin.Recv, 3, r)},
			"a group's operations are of one stream":     {op(plugin.Send, 4, r), op(plugin.Recv, 4, nil)},
			"a group takes send, recv and one-sided ope": {op(plugin.AllReduce, 4, r)},
		} {
			var g host.Group
			for _, o := range operations {
				g.Add(o)
			}
			if err := g.Run(r.Communicator); err == nil {
				return fmt.Errorf("nothing was said about %q", want)
			} else if !contains(err, want) {
				return err
			}
		}
		return done(nil)
	})
}

func TestDeviceOneThreadDrivesAllGPUs(t *testing.T) {
	const n, count = 3, 100
	ranks := make(chan *rank, n)
	release := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		var all []*rank
		for range n {
			all = append(all, <-ranks)
		}
		defer close(release)
		result <- driveAll(all, count)
	}()
	deviceWorld(t, n, func(r *rank) error {
		ranks <- r
		<-release
		return nil
	})
	require.NoError(t, <-result)
}

// driveAll runs the first operation of each kind, which is agreed, for all ranks
// from one goroutine.
func driveAll(ranks []*rank, count int) error {
	var parts []host.Part
	var checks []func() error
	for _, r := range ranks {
		b, done := r.buffers(count, count, count)
		next, before := (r.Rank()+1)%len(ranks), (r.Rank()+len(ranks)-1)%len(ranks)
		parts = append(parts, host.Part{Comm: r.Communicator, Operations: []host.Operation{
			{Collective: plugin.AllReduce, Send: pointer(b[0]), Recv: pointer(b[1]), Count: int64(count), DType: plugin.Float32,
				Op: plugin.OpMax, Stream: r},
			{Collective: plugin.Send, Send: pointer(b[0]), Count: int64(count), DType: plugin.Float32, Root: next, Stream: r},
			{Collective: plugin.Recv, Recv: pointer(b[2]), Count: int64(count), DType: plugin.Float32, Root: before, Stream: r},
		}})
		checks = append(checks, func() error {
			return done(errors.Join(r.expect(b[1], ramp(len(ranks)-1, count)), r.expect(b[2], ramp(before, count))))
		})
	}
	err := host.RunTogether(parts...)
	for _, check := range checks {
		err = errors.Join(err, check())
	}
	return err
}

func TestDeviceWindows(t *testing.T) {
	const n, count = 3, 100
	deviceWorld(t, n, func(r *rank) error {
		w, err := r.NewWindow(context.Background(), n*count*4)
		if err != nil {
			return err
		}
		b, done := r.buffers(count, n*count)
		one := func(c plugin.Collective, peer int, offset, count int64) error {
			return r.Do(&host.Operation{Collective: c, Window: w, Root: peer, Offset: offset, Count: count,
				DType: plugin.Float32, Send: pointer(b[0]), Recv: pointer(b[1]), Stream: r})
		}
		for p := range n {
			if p != r.Rank() {
				err = errors.Join(err, one(plugin.Put, p, int64(r.Rank()*count*4), count), one(plugin.Signal, p, 0, 0))
			}
		}
		for p := range n {
			if p != r.Rank() {
				err = errors.Join(err, one(plugin.Wait, p, 1, 0))
			}
		}
		if err = errors.Join(err, r.sync()); err != nil {
			return err
		}
		local := w.Local()
		for p := range n {
			if p != r.Rank() {
				at := cuda.Ptr(uintptr(local)) + cuda.Ptr(p*count*4)
				err = errors.Join(err, r.expect(at, ramp(p, count)))
			}
		}
		// What a peer's part holds, of what this rank put there, comes back.
		peer := (r.Rank() + 1) % n
		err = errors.Join(err, one(plugin.Get, peer, int64(r.Rank()*count*4), count), r.expect(b[1], ramp(r.Rank(), count)))
		return done(errors.Join(err, r.Barrier(r), r.sync(), w.Close()))
	})
}

func TestDeviceRecordsItsOperations(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		if err := deviceSum(r, 7); err != nil {
			return err
		}
		records := r.Records()
		if len(records) != 1 || records[0].Collective != "all_reduce" || records[0].Count != 7 ||
			records[0].State != "enqueued" {
			return fmt.Errorf("recorded %+v", records)
		}
		if bytes := r.DeviceBytes(); bytes <= 0 || bytes > 64<<20 {
			return fmt.Errorf("the communicator holds %d bytes", bytes)
		}
		return nil
	})
}
