package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// gpus are GPUs in memory, one for each rank of the test that runs.
var gpus [2]*cudatest.Driver

// inMemory is cudaipc on them, beside the one that the library has registered.
type inMemory struct{ cudaipctest.Transport }

func (t inMemory) Info() plugin.Info {
	info := t.Transport.Info()
	info.Name = "in_memory"
	return info
}

func init() {
	host.Register(inMemory{cudaipctest.Transport{Drivers: func(device int) cuda.Driver { return gpus[device] }}})
}

// operation is shunt_operation.
type operation struct {
	size                                           uintptr
	collective                                     plugin.Collective
	dtype                                          plugin.DType
	op                                             plugin.Op
	root                                           int32
	scalar                                         float64
	send, recv                                     unsafe.Pointer
	count                                          int64
	sendCounts, sendDispls, recvCounts, recvDispls unsafe.Pointer
	window                                         unsafe.Pointer
	offset                                         int64
	stream                                         unsafe.Pointer
	countsOnDevice, reserved                       uint32
	sendCapacity, recvCapacity                     int64
}

// of returns an operation as an export takes it.
func of[N ~uint64, O any, S ~int32](_ func(N, *O) S, op *operation) *O {
	var c O
	if op.size = unsafe.Sizeof(*op); unsafe.Sizeof(c) != op.size {
		panic(fmt.Sprintf("shunt_operation has %d bytes, the test's has %d", unsafe.Sizeof(c), op.size))
	}
	return (*O)(unsafe.Pointer(op))
}

// runs is shunt_run behind the check of its struct, and the message.
func runs[N ~uint64, O any, S ~int32](export func(N, *O) S, h handle, op *operation) (plugin.Code, string) {
	code := plugin.Code(export(N(h), of(export, op)))
	return code, communicators.get(h).last.get()
}

// onGPU is a rank on a GPU in memory.
type onGPU struct {
	handle
	well   *sync.WaitGroup // of the ranks whose good calls have ended
	rank   int
	driver *cudatest.Driver
	ctx    cuda.Context
	stream cuda.Stream
}

func pointer(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// put allocates memory of the GPU that has these numbers.
func (r *onGPU) put(values ...int64) cuda.Ptr {
	p, err := r.driver.Alloc(r.ctx, int64(8*len(values)))
	if err != nil {
		panic(err)
	}
	r.write(p, values...)
	return p
}

func (r *onGPU) write(p cuda.Ptr, values ...int64) {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	if err := r.driver.Write(r.ctx, p, b); err != nil {
		panic(err)
	}
}

func (r *onGPU) read(p cuda.Ptr, count int) []int64 {
	b := make([]byte, 8*count)
	if err := r.driver.Read(r.ctx, b, p); err != nil {
		panic(err)
	}
	values := make([]int64, count)
	for i := range values {
		values[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return values
}

// join makes the rank's communicator and stream.
func (r *onGPU) join(id string) (err error) {
	r.driver = gpus[r.rank]
	c, err := host.Init(context.Background(), host.Options{
		ID: id, Rank: r.rank, World: len(gpus), Transports: []string{"builtin:in_memory"}, Timeout: time.Minute,
		Memory: plugin.MemoryKindCuda, Device: r.rank, Driver: r.driver,
	})
	if err != nil {
		return err
	}
	if r.handle, err = communicators.add(&communicator{host: c, rank: r.rank, world: len(gpus)}); err != nil {
		return err
	}
	if r.ctx, err = r.driver.Retain(r.rank); err != nil {
		return err
	}
	r.stream, err = r.driver.NewStream(r.ctx, 0)
	return err
}

func (r *onGPU) leave() error {
	c, err := communicators.remove(r.handle)
	if err != nil {
		return err
	}
	return errors.Join(c.host.Close(), r.driver.DestroyStream(r.ctx, r.stream), r.driver.Release(r.rank))
}

// synchronize is shunt_synchronize.
func synchronize[N ~uint64, S ~int32](export func(N, unsafe.Pointer) S, r *onGPU) plugin.Code {
	return plugin.Code(export(N(r.handle), pointer(cuda.Ptr(r.stream))))
}

// start is shunt_start and shunt_request_wait.
func start[N ~uint64, O any, S ~int32](begin func(N, *O, *N) S, wait func(N) S, h handle, op *operation) plugin.Code {
	var request N
	if code := plugin.Code(begin(N(h), of(func(N, *O) S { return 0 }, op), &request)); code != plugin.OK {
		return code
	}
	return plugin.Code(wait(request))
}

// The memory of a rank: blocks of at most 3 elements for each rank, at displacements
// of which the packed ones are another form.
const room = 8

func (r *onGPU) exchange() error {
	send, recv := r.put(make([]int64, room)...), r.put(make([]int64, room)...)
	counts := r.put(make([]int64, 8)...) // send counts and displacements, receive counts and displacements
	array := func(i int) unsafe.Pointer { return unsafe.Add(pointer(counts), 16*i) }
	good := operation{
		collective: plugin.AllToAllV, dtype: plugin.Int64, send: pointer(send), recv: pointer(recv),
		stream:         pointer(cuda.Ptr(r.stream)),
		countsOnDevice: 1, sendCounts: array(0), recvCounts: array(2), sendCapacity: room, recvCapacity: room,
	}
	err := errors.Join(r.refusals(good), r.exchanges(good, send, recv, counts))
	r.well.Done() // what a rank still does here would report a failure
	r.well.Wait()
	if err = errors.Join(err, r.impossible(good, recv, counts)); err != nil {
		return err
	}
	for _, p := range []cuda.Ptr{send, recv, counts} {
		if err := r.driver.Free(r.ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// refusals makes the calls that the host rejects by itself. Nothing runs.
func (r *onGPU) refusals(good operation) error {
	for text, change := range map[string]func(op *operation){
		"send counts in device memory are null":    func(op *operation) { op.sendCounts = nil },
		"receive counts in device memory are null": func(op *operation) { op.recvCounts = nil },
		"all_to_all_v on rank %d: send counts in device memory are null": func(op *operation) {
			*op = operation{collective: plugin.AllToAllV, dtype: plugin.Int64, countsOnDevice: 1}
		},
		"are not aligned to 8 bytes":                                               func(op *operation) { op.recvDispls = unsafe.Add(op.recvCounts, 4) },
		"lie in the receive memory":                                                func(op *operation) { op.sendCounts = unsafe.Add(op.recv, 8) },
		"send capacity -1 is negative":                                             func(op *operation) { op.sendCapacity = -1 },
		"receive capacity -9223372036854775808 is negative":                        func(op *operation) { op.recvCapacity = math.MinInt64 },
		"send capacity 4611686018427387904 of int64 overflows":                     func(op *operation) { op.sendCapacity = 1 << 62 },
		"recv memory is null":                                                      func(op *operation) { op.recv = nil },
		"all_gather_v on rank %d: only all_to_all_v takes counts in device memory": func(op *operation) { op.collective = plugin.AllGatherV },
		"send on rank %d: only all_to_all_v takes":                                 func(op *operation) { op.collective = plugin.Send },
		"unknown collective 77":                                                    func(op *operation) { op.collective = 77 },
	} {
		op := good
		change(&op)
		if strings.Contains(text, "%d") {
			text = fmt.Sprintf(text, r.rank)
		}
		if code, said := runs(go_run, r.handle, &op); code != plugin.InvalidArgument || !strings.Contains(said, text) {
			return fmt.Errorf("want %q; have %v: %s", text, code, said)
		}
	}
	return nil
}

// value returns element i of what from sends to.
func value(from, to, i int) int64 { return int64(100*from + 10*to + i + 1) }

// exchanges moves 1 + from + to elements, packed and spread out, in a call and as a
// started operation.
func (r *onGPU) exchanges(op operation, send, recv, counts cuda.Ptr) error {
	for turn := range 4 {
		spread := turn%2 == 1
		places := [2]int64{0, int64(1 + r.rank)}
		if op.sendDispls, op.recvDispls = nil, nil; spread {
			places = [2]int64{4, 0}
			op.sendDispls, op.recvDispls = unsafe.Add(op.sendCounts, 16), unsafe.Add(op.recvCounts, 16)
		}
		many := [2]int64{int64(1 + r.rank), int64(2 + r.rank)} // the same both ways
		from, want := make([]int64, room), slices.Repeat([]int64{-1}, room)
		for peer := range 2 {
			for i := range int(many[peer]) {
				from[int(places[peer])+i], want[int(places[peer])+i] = value(r.rank, peer, i), value(peer, r.rank, i)
			}
		}
		r.write(send, from...)
		r.write(recv, slices.Repeat([]int64{-1}, room)...)
		r.write(counts, many[0], many[1], places[0], places[1], many[0], many[1], places[0], places[1])
		var code plugin.Code
		if turn < 2 {
			code, _ = runs(go_run, r.handle, &op)
		} else {
			code = start(go_start, go_request_wait, r.handle, &op)
		}
		if code == plugin.OK {
			code = synchronize(go_synchronize, r)
		}
		if code != plugin.OK {
			return fmt.Errorf("turn %d: %v: %s", turn, code, communicators.get(r.handle).last.get())
		}
		if have := r.read(recv, room); !slices.Equal(have, want) {
			return fmt.Errorf("turn %d: have %v, want %v", turn, have, want)
		}
	}
	return nil
}

// impossible passes a count that the kernel of rank 1 rejects, which every rank must
// return.
func (r *onGPU) impossible(op operation, recv, counts cuda.Ptr) error {
	untouched := slices.Repeat([]int64{-1}, room)
	r.write(recv, untouched...)
	r.write(counts, 1, 1, 0, 0, 1, 1)
	if r.rank == 1 {
		r.write(counts, -3)
	}
	op.sendDispls, op.recvDispls = nil, nil
	const want = "counts in device memory on rank 1: send count -3 for rank 0 is negative"
	code, said := runs(go_run, r.handle, &op) // rank 1 may have failed before rank 0 calls
	if code != plugin.OK && code != plugin.InvalidArgument {
		return fmt.Errorf("%v: %s", code, said)
	}
	if code = synchronize(go_synchronize, r); code != plugin.InvalidArgument ||
		!strings.Contains(communicators.get(r.handle).last.get(), want) {
		return fmt.Errorf("synchronize returned %v: %s", code, communicators.get(r.handle).last.get())
	}
	if result, failed := ask(go_get_async_error, r.handle); result != plugin.OK || failed != plugin.InvalidArgument {
		return fmt.Errorf("get_async_error returned %v and %v", result, failed)
	}
	if said := communicators.get(r.handle).last.get(); !strings.Contains(said, want) {
		return fmt.Errorf("asked, it says %s", said)
	}
	if code, said := runs(go_run, r.handle, &op); code != plugin.InvalidArgument || !strings.Contains(said, want) {
		return fmt.Errorf("the next call returned %v: %s", code, said)
	}
	if have := r.read(recv, room); r.rank == 1 && !slices.Equal(have, untouched) {
		return fmt.Errorf("the receive memory was written: %v", have)
	}
	return nil
}

// Two ranks of this process on GPUs in memory, through the exports that C calls.
func TestCountsOnTheDevice(t *testing.T) {
	for i := range gpus {
		gpus[i] = cudatest.New(cudatest.Options{Devices: len(gpus), Kernels: cudaipctest.Kernels()})
		defer gpus[i].Close()
	}
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	var all, well sync.WaitGroup
	var errs [len(gpus)]error
	well.Add(len(gpus))
	for rank := range gpus {
		all.Go(func() {
			r := &onGPU{well: &well, rank: rank}
			if errs[rank] = r.join(id.String()); errs[rank] != nil {
				well.Done()
				return
			}
			errs[rank] = r.exchange()
			errs[rank] = errors.Join(errs[rank], r.leave())
		})
	}
	all.Wait()
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
		require.Empty(t, gpus[rank].Leaks(), "rank %d", rank)
	}
}
