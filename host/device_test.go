package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// buffers are device memory with one float for each element; all are freed by
// the function.
func (r *rank) buffers(counts ...int) (ps []cuda.Ptr, done func(error) error) {
	var failed error
	for i, n := range counts {
		values := make([]float32, n)
		if i == 0 {
			values = ramp(r.Rank(), n)
		}
		p, err := r.floats(values)
		failed = errors.Join(failed, err)
		ps = append(ps, p)
	}
	return ps, func(err error) error { return errors.Join(failed, err, r.sync(), r.free(ps...)) }
}

// expect compares device memory with what it should be.
func (r *rank) expect(p cuda.Ptr, want []float32) error {
	if err := r.sync(); err != nil {
		return err
	}
	got, err := r.read(p, len(want))
	return errors.Join(err, equal(got, want))
}

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
			return done(errors.Join(err, r.AllGather(pointer(own), pointer(b[1]), count, plugin.Float32, r), r.expect(b[1], want), r.free(p)))
		},
		"reduce_scatter": func(r *rank) error {
			b, done := r.buffers(n*count, count)
			want := make([]float32, count)
			for p := range n {
				for i, v := range block(p, r.Rank()*count, count) {
					want[i] += v
				}
			}
			return done(errors.Join(r.ReduceScatter(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r), r.expect(b[1], want)))
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
			return done(errors.Join(r.AllToAllV(pointer(b[0]), sends, nil, pointer(b[1]), recvs, nil, plugin.Float32, r), r.expect(b[1], want)))
		},
		"broadcast and reduce": func(r *rank) error {
			b, done := r.buffers(count, count, count)
			err := r.Broadcast(pointer(b[0]), pointer(b[1]), count, plugin.Float32, 1, r)
			err = errors.Join(err, r.expect(b[1], ramp(1, count)), r.Reduce(pointer(b[1]), pointer(b[2]), count, plugin.Float32, plugin.OpMax, 2, r))
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
			return errors.Join(r.AllReduce(nil, nil, 0, plugin.Float32, plugin.OpSum, r), r.AllGather(nil, nil, 0, plugin.Int8, r), r.sync())
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
				g.Add(host.Operation{Collective: plugin.Recv, Recv: pointer(recv), Count: int64(in), DType: plugin.Float32, Root: p, Stream: r})
				g.Add(host.Operation{Collective: plugin.Send, Send: pointer(send), Count: int64(out), DType: plugin.Float32, Root: p, Stream: r})
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

func TestDeviceGroupRefusesWhatCannotMatch(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(4, 4)
		op := func(c plugin.Collective, count int64, s host.Stream) host.Operation {
			return host.Operation{Collective: c, Send: pointer(b[0]), Recv: pointer(b[1]), Count: count, DType: plugin.Float32, Root: r.Rank(), Stream: s}
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
			{Collective: plugin.AllReduce, Send: pointer(b[0]), Recv: pointer(b[1]), Count: int64(count), DType: plugin.Float32, Op: plugin.OpMax, Stream: r},
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

func TestDeviceGraphsReplayAndOutliveTheCommunicator(t *testing.T) {
	const n, count = 2, 50
	deviceWorld(t, n, func(r *rank) error {
		b, _ := r.buffers(count, count)
		first := b[0]
		// The first call of its kind is captured: what it prepares breaks nothing.
		if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
			return err
		}
		for range 3 { // in place from the second on
			if err := r.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r); err != nil {
				return err
			}
			b[0] = b[1]
		}
		graph, err := r.driver.EndCapture(r.ctx, r.stream)
		if err != nil {
			return err
		}
		exec, err := r.driver.Instantiate(r.ctx, graph)
		if err != nil {
			return err
		}
		for range 4 {
			if err := r.driver.LaunchGraph(r.ctx, exec, r.stream); err != nil {
				return err
			}
			if err := r.Barrier(r); err != nil { // eager calls between replays
				return err
			}
		}
		want := make([]float32, count)
		for i := range want {
			want[i] = 4 * (ramp(0, count)[i] + ramp(1, count)[i])
		}
		if err := r.expect(b[1], want); err != nil {
			return err
		}
		// Closed while the graph lives, which runs on.
		if err := r.Communicator.Close(); err != nil {
			return err
		}
		if err := r.driver.LaunchGraph(r.ctx, exec, r.stream); err != nil {
			return err
		}
		if err := r.driver.SynchronizeStream(r.ctx, r.stream); err != nil {
			return err
		}
		got, err := r.read(b[1], count)
		if err = errors.Join(err, equal(got, want)); err != nil {
			return err
		}
		return errors.Join(r.driver.DestroyGraph(graph), r.driver.DestroyGraphExec(exec), host.Collect(), r.free(first, b[1]))
	})
}

func TestDeviceSplitAndShrink(t *testing.T) {
	var through atomic.Int32 // ranks whose calls before the abort have returned
	deviceWorld(t, 4, func(r *rank) error {
		half, err := r.Split(context.Background(), r.Rank()%2, r.Rank())
		if err != nil {
			return err
		}
		defer half.Close()
		part := &rank{Communicator: half, driver: r.driver, ctx: r.ctx, stream: r.stream}
		if err := errors.Join(deviceSum(part, 100), deviceSum(r, 100), deviceSum(part, 100)); err != nil {
			return err
		}
		through.Add(1)
		if r.Rank() == 0 {
			if err := eventually("the others' calls", func() bool { return through.Load() == 4 }); err != nil {
				return err
			}
			r.Abort("on purpose")
		}
		if err := eventually("the abort to arrive", func() bool { return r.Err() != nil }); err != nil {
			return err
		}
		small, err := r.Shrink(context.Background())
		if err != nil {
			return err
		}
		again := &rank{Communicator: small, driver: r.driver, ctx: r.ctx, stream: r.stream}
		return errors.Join(deviceSum(again, 100), deviceSum(part, 10), small.Close(), half.Close())
	})
}

func TestDeviceIsSharedByNoTwoRanks(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 3), func(rank int, o *host.Options) {
		if rank == 2 {
			o.Device = 0
		}
	}, nil)
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.InvalidArgument, "rank %d", rank)
		require.ErrorContains(t, err, "init: ranks 0 (pid", "rank %d", rank)
		require.ErrorContains(t, err, "both use GPU GPU-", "rank %d", rank)
	}
}

func TestDeviceRanksAgreeOnTheKindOfMemory(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), func(rank int, o *host.Options) {
		if rank == 1 {
			o.Memory, o.Transports = plugin.MemoryKindHost, []string{"builtin:cudaipc"}
		}
	}, nil)
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
	}
}

func TestDeviceOfTheLauncher(t *testing.T) {
	for name, test := range map[string]struct {
		variable, value string
		device          int
		want            string
	}{
		"torchrun":       {"LOCAL_RANK", "1", host.AutoDevice, "ok"},
		"Slurm":          {"SLURM_LOCALID", "3", host.AutoDevice, "ok"}, // of two devices
		"rank":           {"NOTHING", "", host.AutoDevice, "device 0"},
		"none such":      {"NOTHING", "", 2, "device 2 of 2"},
		"negative":       {"NOTHING", "", -2, "device -2 of 2"},
		"not a number":   {"LOCAL_RANK", "x", host.AutoDevice, "device 0"},
		"first one wins": {"LOCAL_RANK", "1", 0, "device 0"},
	} {
		t.Run(name, func(t *testing.T) {
			drivers := gpus(t, 2)
			t.Setenv(test.variable, test.value)
			errs := deviceErrors(t, drivers[1:], func(_ int, o *host.Options) { o.Device = test.device }, func(r *rank) error {
				return fmt.Errorf("device %d", r.Topology().Places[0].GPUs[0].Ordinal)
			})
			if test.want == "ok" {
				test.want = "device 1"
			}
			require.ErrorContains(t, errs[0], test.want)
		})
	}
}

func TestDeviceProbeNamesThePairThatDoesNotWork(t *testing.T) {
	restore, err := failpoint.Arm("device.probe=corrupt@5") // rank and peer are whoever comes fifth
	require.NoError(t, err)
	defer restore()
	errs := deviceErrors(t, gpus(t, 3), nil, nil)
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Device, "rank %d", rank)
		require.ErrorContains(t, err, "peer-to-peer access between the two does not work")
		require.Equal(t, errs[0].Error()[len("init on rank 0"):], err.Error()[len("init on rank 0"):], "all ranks say the same")
	}
}

func TestDeviceInitFailsAlikeEverywhere(t *testing.T) {
	for _, method := range []string{"Devices", "Retain", "AllocHost", "NewEvent", "NewStream", "CreateMemory", "ExportMemory", "ImportMemory", "Copy", "LoadModule", "Function"} {
		t.Run(method, func(t *testing.T) {
			drivers := gpus(t, 3)
			drivers[1].Fail(method, 0, cuda.OutOfMemory)
			for rank, err := range deviceErrors(t, drivers, nil, nil) {
				require.Error(t, err, "rank %d", rank)
				require.Equal(t, plugin.OutOfMemory, plugin.CodeOf(err), "rank %d: %v", rank, err)
				require.ErrorContains(t, err, "rank 1", "rank %d", rank)
			}
		})
	}
}

func TestDeviceTimeoutNamesTheAbsentRank(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 3), func(_ int, o *host.Options) { o.Timeout = 1500 * time.Millisecond }, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		err := r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		err = errors.Join(err, r.sync())
		if err != nil {
			return err
		}
		if r.Rank() != 2 {
			err = errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r), r.sync())
		} else if err = eventually("somebody's timeout", func() bool { return r.Err() != nil }); err == nil {
			err = r.Err()
		}
		return err
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "no answer from peer rank 2", "rank %d", rank)
	}
	require.ErrorContains(t, errs[0], "call Shrink or re-create it")
}

func TestDeviceAbortEndsKernelsThatWait(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), nil, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		err := errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r), r.driver.SynchronizeStream(r.ctx, r.stream), r.Barrier(r))
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			err = r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
			r.Abort("enough")
		} else {
			err = eventually("the abort", func() bool { return r.Err() != nil })
		}
		began := time.Now()
		err = errors.Join(err, r.sync())
		if took := time.Since(began); took > 2*time.Second {
			return fmt.Errorf("the kernel took %v to end", took)
		}
		return err
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Aborted, "rank %d", rank)
		require.ErrorContains(t, err, "rank 0 aborted: enough", "rank %d", rank)
	}
}

func TestDeviceContradictionsAreFound(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.Timeout = 20 * time.Second }, func(r *rank) error {
		b, done := r.buffers(20, 20)
		defer func() { _ = done(nil) }()
		for _, op := range []func() error{
			func() error { return r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r) },
			func() error { return r.Broadcast(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, 0, r) },
		} {
			if err := errors.Join(op(), r.sync()); err != nil {
				return err
			}
		}
		var err error
		if r.Rank() == 0 {
			err = r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		} else {
			err = r.Broadcast(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, 1, r)
		}
		return errors.Join(err, eventually("the verdict", func() bool { return r.Err() != nil }), r.Err())
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.ErrorContains(t, err, "ranks disagree", "rank %d", rank)
	}
}

func TestDeviceFailedCaptureFailsNothingElse(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(10, 10)
		if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
			return err
		}
		r.driver.Fail("Submit", 0, cuda.CaptureInvalid)
		err := r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		if plugin.CodeOf(err) != plugin.Device {
			return fmt.Errorf("capturing gave %w", err)
		}
		g, err := r.driver.EndCapture(r.ctx, r.stream)
		return done(errors.Join(err, r.driver.DestroyGraph(g), r.Err(), deviceSum(r, 10)))
	})
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
			return r.Do(&host.Operation{Collective: c, Window: w, Root: peer, Offset: offset, Count: count, DType: plugin.Float32, Send: pointer(b[0]), Recv: pointer(b[1]), Stream: r})
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
		if len(records) != 1 || records[0].Collective != "all_reduce" || records[0].Count != 7 || records[0].State != "ended" {
			return fmt.Errorf("recorded %+v", records)
		}
		if bytes := r.DeviceBytes(); bytes <= 0 || bytes > 64<<20 {
			return fmt.Errorf("the communicator holds %d bytes", bytes)
		}
		return nil
	})
}
