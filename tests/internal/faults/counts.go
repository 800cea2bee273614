package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults counts", countsHandler) }

// impossible are counts in device memory that cannot be, of a rank that sends each
// rank n elements, and receives as many, with displacements.
var impossible = []struct {
	name   string
	change func(a *arrays, me int, n int64)
	text   func(me int, n, capacity int64) string
}{
	{"a negative send count", func(a *arrays, _ int, n int64) { a[0][0] = -n },
		func(_ int, n, _ int64) string { return fmt.Sprintf("send count %d for rank 0 is negative", -n) }},
	{"a negative receive displacement", func(a *arrays, me int, _ int64) { a[3][me] = -4 },
		func(me int, _, _ int64) string {
			return fmt.Sprintf("receive displacement -4 for rank %d is negative", me)
		}},
	{"a send count past the capacity", func(a *arrays, _ int, n int64) { a[0][0] = math.MaxInt64 },
		func(_ int, _, capacity int64) string {
			return fmt.Sprintf("send count %d at displacement 0 for rank 0 reaches past the capacity of %d",
				math.MaxInt64, capacity)
		}},
	{"a receive displacement past the capacity", func(a *arrays, _ int, n int64) { a[3][0] = n*int64(len(a[3])) - n + 1 },
		func(_ int, n, capacity int64) string {
			return fmt.Sprintf("receive count %d at displacement %d for rank 0 reaches past the capacity of %d", n,
				capacity-n+1, capacity)
		}},
	{"an own count that differs", func(a *arrays, me int, n int64) { a[0][me] = n - 1 },
		func(_ int, n, _ int64) string {
			return fmt.Sprintf("send count %d of this rank to itself differs from receive count %d", n-1, n)
		}},
}

// arrays are send counts and displacements, then receive counts and displacements.
type arrays [4][]int64

// even returns the arrays of n elements from each rank to each.
func even(world int, n int64) (a arrays) {
	for i := range a {
		for p := range int64(world) {
			a[i] = append(a[i], []int64{n, n * p}[i%2])
		}
	}
	return a
}

// countsRequest is an all_to_all_v with counts on the device, in which one rank's
// cannot be.
type countsRequest struct {
	request
	Elements int64 // of each message, uint32
	Wrong    int   // what is impossible
	Who      int   // whose it is
	Captured bool  // the call is a replay
}

// countsHandler makes a communicator, on which calls with counts that can be go well,
// eager ones and replayed ones, and then one with counts that cannot be. Of the rank
// whose they are nothing may arrive anywhere, and nothing there. Another communicator
// works then, in the same stream.
func countsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	var r countsRequest
	j, err := openUsed(ctx, w, payload, &r, &r.request)
	if err != nil {
		return nil, err
	}
	x, err := j.counted(w, r.Elements)
	if err != nil {
		return nil, err
	}
	call, destroy := x.call, func() error { return nil }
	for round := range 4 {
		if err := x.right(byte(round), call); err != nil {
			return nil, fmt.Errorf("round %d, counts that can be: %w", round, err)
		}
		if round == 1 && r.Captured {
			g, err := j.Device.Capture(j.Device.Streams[0], x.call)
			if err != nil {
				return nil, err
			}
			call, destroy = func() error { return g.Launch(j.Device.Streams[0]) }, g.Destroy
		}
	}
	given := even(w.World, r.Elements)
	if w.Rank == r.Who {
		impossible[r.Wrong].change(&given, w.Rank, r.Elements)
	}
	for i := range x.recv.Bytes {
		x.recv.Bytes[i] = untouched
	}
	if err := errors.Join(x.give(given), x.recv.Push(x.Device.Streams[0]), j.Comm.Barrier(j.Stream()),
		x.drained()); err != nil {
		return nil, err
	}
	a, err := j.told(ctx, call)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(x.recv.Pull(x.Device.Streams[0]), x.drained()); err != nil {
		return nil, err
	}
	from, to := int64(r.Who)*4*r.Elements, int64(r.Who+1)*4*r.Elements
	if w.Rank == r.Who {
		from, to = 0, int64(len(x.recv.Bytes))
	}
	if !bytes.Equal(x.recv.Bytes[from:to], bytes.Repeat([]byte{untouched}, int(to-from))) {
		return nil, fmt.Errorf("something has arrived: %w", errWrong)
	}
	if err := destroy(); err != nil {
		return nil, err
	}
	a.closed(j.Leave())
	r.ID += "-again"
	if err := j.Join(ctx, r.Request); err != nil {
		return nil, fmt.Errorf("another communicator: %w", err)
	}
	if err := errors.Join(x.right(77, x.call), j.Leave(), x.image.Free()); err != nil {
		return nil, fmt.Errorf("another communicator: %w", err)
	}
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// untouched is the byte in receive memory where nothing may arrive.
const untouched = 0xA5

// counted is a rank's memory for calls with counts on the device.
type counted struct {
	*rank
	world              int
	each               int64 // elements of a message
	image              *device.Image
	send, recv, counts *device.Image
}

func (j *rank) counted(w *pool.Worker, each int64) (*counted, error) {
	bytes := 4 * each * int64(w.World)
	at := (bytes + 7) &^ 7
	image, err := j.Device.NewSharedImage(2*at + 32*int64(w.World))
	if err != nil {
		return nil, err
	}
	return &counted{j, w.World, each, image, image.Part(0, bytes), image.Part(at, bytes),
		image.Part(2*at, 32*int64(w.World))}, nil
}

// give puts counts where the kernel reads them, in stream order.
func (x *counted) give(a arrays) error {
	for i, array := range a {
		for p, n := range array {
			binary.NativeEndian.PutUint64(x.counts.Bytes[8*(i*x.world+p):], uint64(n))
		}
	}
	return x.counts.Push(x.Device.Streams[0])
}

func (x *counted) call() error {
	capacity := x.each * int64(x.world)
	d := host.DeviceCounts{SendCapacity: capacity, RecvCapacity: capacity}
	array := int64(8 * x.world)
	d.SendCounts, d.SendDispls = x.counts.Pointer(0), x.counts.Pointer(array)
	d.RecvCounts, d.RecvDispls = x.counts.Pointer(2*array), x.counts.Pointer(3*array)
	return x.Comm.AllToAllVOnDevice(x.send.Pointer(0), x.recv.Pointer(0), d, plugin.Uint32, x.Stream())
}

// right makes a call that must succeed, on data of the given round, and checks it.
func (x *counted) right(round byte, call func() error) error {
	me, block := x.Comm.Rank(), 4*int(x.each)
	fill := func(from, to int) byte { return round ^ byte(16*from+to) }
	for to := range x.world {
		copy(x.send.Bytes[to*block:], bytes.Repeat([]byte{fill(me, to)}, block))
	}
	clear(x.recv.Bytes)
	line := x.Device.Streams[0]
	if err := errors.Join(x.give(even(x.world, x.each)), x.send.Push(line), x.recv.Push(line), call(), x.recv.Pull(line),
		x.Settle()); err != nil {
		return err
	}
	for from := range x.world {
		if !bytes.Equal(x.recv.Bytes[from*block:(from+1)*block], bytes.Repeat([]byte{fill(from, me)}, block)) {
			return fmt.Errorf("block of rank %d: %w", from, errWrong)
		}
	}
	return nil
}
