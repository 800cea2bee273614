package device_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// What other kernels on the same GPUs do to operations: rule 16.
const (
	held       = 2 * time.Second        // how long multiprocessors are held, at most
	unhindered = 500 * time.Millisecond // an operation that waits for a held one takes longer
)

// besideSizes is a message of each protocol: packets, lines, direct and staged.
var besideSizes = []int64{8, 8 << 10, 512 << 10, 4 << 20, 32 << 20}

// elements is memory for operations: elements of int32 that all have one value.
type elements struct {
	*job.Job
	send, recv cuda.Ptr
	bytes      int64
}

func newElements(j *job.Job, bytes int64) (_ *elements, err error) {
	e := &elements{Job: j, bytes: bytes}
	d := j.Device
	if e.send, err = d.Driver.Alloc(d.Context, bytes); err != nil {
		return nil, err
	}
	if e.recv, err = d.Driver.Alloc(d.Context, bytes); err != nil {
		return nil, errors.Join(err, d.Driver.Free(d.Context, e.send))
	}
	return e, nil
}

func (e *elements) free() error {
	d := e.Device
	return errors.Join(d.Driver.Free(d.Context, e.send), d.Driver.Free(d.Context, e.recv))
}

// word returns a rank's element: every byte is the same.
func word(rank int) int32 { return int32(rank+1) * 0x01010101 }

// operations returns every collective on so many bytes of a rank's message, all told,
// with the first and the last element that this rank must receive; 0: it receives none.
func (e *elements) operations(bytes int64) (ops []host.Operation, first, last []int32) {
	rank, world := e.Comm.Rank(), e.Comm.World()
	all, block := bytes/4, max(bytes/4/int64(world), 1)
	sum := int32(0)
	for r := range world {
		sum += word(r)
	}
	add := func(o host.Operation, from, to int32) {
		o.DType, o.Op, o.Send, o.Recv, o.Stream = plugin.Int32, plugin.OpSum, device.Pointer(e.send), device.Pointer(e.recv),
			e.Stream()
		ops, first, last = append(ops, o), append(first, from), append(last, to)
	}
	at := func(root int, v int32) int32 {
		if rank == root {
			return v
		}
		return 0
	}
	// Blocks of all_to_all_v: rank r sends r+1 parts of a unit to each.
	var send, recv []int64
	unit := max(block/int64(world), 1)
	for r := range world {
		send, recv = append(send, unit*int64(rank+1)), append(recv, unit*int64(r+1))
	}
	fits := unit*int64(world*world) <= e.bytes/4
	add(host.Operation{Collective: plugin.AllReduce, Count: all}, sum, sum)
	add(host.Operation{Collective: plugin.Reduce, Count: all, Root: world - 1}, at(world-1, sum), at(world-1, sum))
	add(host.Operation{Collective: plugin.Broadcast, Count: all, Root: 0}, word(0), word(0))
	add(host.Operation{Collective: plugin.AllGather, Count: block}, word(0), word(world-1))
	add(host.Operation{Collective: plugin.ReduceScatter, Count: block}, sum, sum)
	add(host.Operation{Collective: plugin.AllToAll, Count: block}, word(0), word(world-1))
	add(host.Operation{Collective: plugin.Gather, Count: block, Root: 0}, at(0, word(0)), at(0, word(world-1)))
	add(host.Operation{Collective: plugin.Scatter, Count: block, Root: 1}, word(1), word(1))
	if fits {
		add(host.Operation{Collective: plugin.AllToAllV, SendCounts: send, RecvCounts: recv}, word(0), word(world-1))
	}
	add(host.Operation{Collective: plugin.Barrier}, 0, 0)
	return ops, first, last
}

// received returns the number of elements that an operation receives on this rank.
func received(o *host.Operation, world int) int64 {
	switch o.Collective {
	case plugin.AllGather, plugin.AllToAll, plugin.Gather:
		return o.Count * int64(world)
	case plugin.AllToAllV:
		n := int64(0)
		for _, c := range o.RecvCounts {
			n += c
		}
		return n
	}
	return o.Count
}

// check compares the first and the last element that an operation has received.
func (e *elements) check(o *host.Operation, first, last int32) error {
	if first == 0 {
		return nil
	}
	d, n := e.Device, received(o, e.Comm.World())
	for _, place := range []struct {
		index int64
		want  int32
	}{{0, first}, {n - 1, last}} {
		var b [4]byte
		if err := d.Driver.Read(d.Context, b[:], e.recv+cuda.Ptr(4*place.index)); err != nil {
			return err
		}
		if have := int32(b[0]) | int32(b[1])<<8 | int32(b[2])<<16 | int32(b[3])<<24; have != place.want {
			return fmt.Errorf("%s of %d elements: element %d is %#x, want %#x", o.Collective, n, place.index, have, place.want)
		}
	}
	return nil
}

// besideRequest says how ranks join, and what occupies their GPUs meanwhile.
type besideRequest struct {
	job.Request
	MaxSMs        int
	Free          int // multiprocessors that are not held
	Communicators int
	Rounds        int
	Bytes         int64
}

// took is the longest operation and its name.
type took struct {
	Longest time.Duration
	Name    string
	Count   int
}

func init() {
	pool.Handle("beside held", handleBesideHeld)
	pool.Handle("beside communicators", handleBesideCommunicators)
}

func handleBesideHeld(ctx context.Context, w *pool.Worker, payload []byte) (_ []byte, err error) {
	var r besideRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	j, err := job.New(w, plugin.MemoryKindCuda, 8)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.Join(ctx, r.Request); err != nil {
		return nil, err
	}
	d := j.Device
	e, err := newElements(j, 2*r.Bytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.free()) }()
	h, err := d.NewHolder()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if err := d.Driver.Set(d.Context, e.send, byte(w.Rank+1), e.bytes, d.Streams[0]); err != nil {
		return nil, err
	}
	var result took
	for _, bytes := range besideSizes {
		if bytes > r.Bytes {
			continue
		}
		ops, first, last := e.operations(bytes)
		for i := range ops {
			// The first call prepares and lets peers map the memory.
			run := func() error {
				if err := j.Comm.Do(&ops[i]); err != nil {
					return err
				}
				return j.Settle()
			}
			if err := run(); err != nil {
				return nil, err
			}
			if err := h.Hold(h.Multiprocessors()-r.Free, held); err != nil {
				return nil, err
			}
			begin := time.Now()
			err := run()
			elapsed := time.Since(begin)
			still, asked := h.Held()
			if err = errors.Join(err, asked, h.Release()); err != nil {
				return nil, err
			}
			name := fmt.Sprintf("%s of %d bytes", ops[i].Collective, bytes)
			if !still || elapsed > unhindered {
				return nil, fmt.Errorf("%s took %v with %d multiprocessors free and the others held by another kernel, which had ended: %t", name, elapsed, r.Free, !still)
			}
			if err := e.check(&ops[i], first[i], last[i]); err != nil {
				return nil, err
			}
			if elapsed > result.Longest {
				result.Longest, result.Name = elapsed, name
			}
			result.Count++
		}
	}
	return json.Marshal(result)
}

// handleBesideCommunicators runs an all_reduce on each of many communicators, each on a
// stream of its own, in an order of each rank's own, and waits for none meanwhile.
func handleBesideCommunicators(ctx context.Context, w *pool.Worker, payload []byte) (_ []byte, err error) {
	var r besideRequest
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	j, err := job.New(w, plugin.MemoryKindCuda, 8)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.JoinWithin(ctx, r.Request, r.MaxSMs); err != nil {
		return nil, err
	}
	d := j.Device
	type line struct {
		comm   *host.Communicator
		memory cuda.Ptr
		stream cuda.Stream
	}
	lines := make([]line, r.Communicators)
	defer func() {
		for _, l := range lines {
			if l.comm != nil {
				err = errors.Join(err, l.comm.Close())
			}
			if l.memory != 0 {
				err = errors.Join(err, d.Driver.Free(d.Context, l.memory))
			}
			if l.stream != 0 {
				err = errors.Join(err, d.Driver.DestroyStream(d.Context, l.stream))
			}
		}
	}()
	call := func(l *line) error { // max: repeated, it changes nothing
		return l.comm.AllReduce(device.Pointer(l.memory), device.Pointer(l.memory), r.Bytes/4, plugin.Int32, plugin.OpMax,
			device.Stream(l.stream))
	}
	for i := range lines {
		l := &lines[i]
		if l.comm, err = j.Comm.Split(ctx, 0, w.Rank); err != nil {
			return nil, err
		}
		if l.memory, err = d.Driver.Alloc(d.Context, r.Bytes); err != nil {
			return nil, err
		}
		if l.stream, err = d.Driver.NewStream(d.Context, 0); err != nil {
			return nil, err
		}
		if err := d.Driver.Set(d.Context, l.memory, byte(w.Rank+1), r.Bytes, l.stream); err != nil {
			return nil, err
		}
		if err := errors.Join(call(l), l.comm.Synchronize(device.Stream(l.stream))); err != nil {
			return nil, err
		}
	}
	random := rand.New(rand.NewPCG(uint64(w.Rank), 1))
	begin := time.Now()
	for range r.Rounds {
		for _, i := range random.Perm(len(lines)) {
			if err := call(&lines[i]); err != nil {
				return nil, err
			}
		}
	}
	for i := range lines {
		if err := lines[i].comm.Synchronize(device.Stream(lines[i].stream)); err != nil {
			return nil, fmt.Errorf("communicator %d of %d: %w", i, len(lines), err)
		}
	}
	elapsed := time.Since(begin)
	for i := range lines {
		for _, at := range []int64{0, r.Bytes / 2, r.Bytes - 4} {
			var b [1]byte
			if err := d.Driver.Read(d.Context, b[:], lines[i].memory+cuda.Ptr(at)); err != nil {
				return nil, err
			}
			if int(b[0]) != w.World {
				return nil, fmt.Errorf("communicator %d: byte %d is %d, want %d", i, at, b[0], w.World)
			}
		}
	}
	return json.Marshal(took{Longest: elapsed, Name: "all", Count: r.Rounds * len(lines)})
}

// beside runs a handler on as many ranks as there are GPUs. request returns its payload, as JSON.
func beside(t *testing.T, handler string, request func(job.Request) any, env ...string) {
	t.Helper()
	n := size(t)
	ranks, err := newRanks(n, env...)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(request(job.Request{ID: "file://" + filepath.Join(t.TempDir(), "meet"),
		Transport: machine.Builtin, Memory: plugin.MemoryKindCuda, Timeout: 5 * time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	result, err := ranks.Run(t.Context(), pool.Case{Handler: handler, Payloads: [][]byte{payload},
		Timeout: 2 * time.Minute})
	if err == nil {
		err = errors.Join(result.Err(), ranks.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range result.Outcomes {
		var m took
		if err := json.Unmarshal(o.Payload, &m); err != nil {
			t.Fatal(err)
		}
		t.Logf("rank %d of %d: %d operations, the longest took %v: %s", o.Rank, n, m.Count, m.Longest, m.Name)
	}
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// besideBytes returns the longest message, shorter on GPUs in memory.
func besideBytes() int64 {
	if machine.Real() {
		return 32 << 20
	}
	return 8 << 10
}

// Rule 16: whatever fills the GPUs, an operation ends as long as one multiprocessor of
// each is free.
func TestOperationsBesideAKernelThatHoldsMultiprocessors(t *testing.T) {
	for _, free := range []int{32, 12, 1} {
		t.Run(fmt.Sprintf("%d free", free), func(t *testing.T) {
			beside(t, "beside held", func(r job.Request) any {
				return besideRequest{Request: r, Free: free, Bytes: besideBytes()}
			})
		})
	}
}

// Communicators that every rank uses in another order, on streams of their own: as many
// as the guide says fit. More streams than the driver has connections wait for each
// other whatever their kernels need.
func TestCommunicatorsInAnotherOrderOnEveryRank(t *testing.T) {
	bytes := 2 * besideBytes()
	for _, test := range []besideRequest{
		{Communicators: 2, Rounds: 20, Bytes: 8}, {Communicators: 2, Rounds: 20, Bytes: bytes},
		{Communicators: 6, Rounds: 20, Bytes: bytes, MaxSMs: 24}, {Communicators: 16, Rounds: 20, Bytes: bytes, MaxSMs: 8},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", test.Communicators, test.Bytes), func(t *testing.T) {
			beside(t, "beside communicators", func(r job.Request) any {
				test.Request = r
				return test
			}, "CUDA_DEVICE_MAX_CONNECTIONS=32")
		})
	}
}
