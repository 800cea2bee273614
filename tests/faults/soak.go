package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// warmUp is the part of a soak, as one over it, after which the first
// measurement is taken.
const warmUp = 10

// soakCallsHandler makes all_to_all_v calls whose splits change every time.
func soakCallsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	j, err := openJob(ctx, w, r)
	if err != nil {
		return nil, err
	}
	most := r.Bytes / 4 // elements of one block
	size := most * int64(w.World) * 4
	memory, err := unix.Mmap(-1, 0, int(2*size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	send := unsafe.Slice((*uint32)(unsafe.Pointer(&memory[0])), size/4)
	recv := unsafe.Slice((*uint32)(unsafe.Pointer(&memory[size])), size/4)
	for i := range send {
		send[i] = uint32(w.Rank)<<24 | uint32(i)&0xffffff
	}
	// Every rank draws the whole matrix of counts from the same numbers.
	random := rand.New(rand.NewPCG(1, 2))
	world := w.World
	matrix := make([]int64, world*world)
	sendCounts, recvCounts := make([]int64, world), make([]int64, world)
	var a answer
	for call := range r.Rounds {
		if call == r.Rounds/warmUp {
			settle()
			if a.Before, err = Measure(); err != nil {
				return nil, err
			}
		}
		scale := []int64{most, 64, 1024, 8}[call%4]
		for i := range matrix {
			matrix[i] = random.Int64N(min(scale, most) + 1)
			if random.IntN(5) == 0 {
				matrix[i] = 0
			}
		}
		for peer := range world {
			sendCounts[peer], recvCounts[peer] = matrix[w.Rank*world+peer], matrix[peer*world+w.Rank]
		}
		if err := j.comm.AllToAllV(unsafe.Pointer(&send[0]), sendCounts, nil, unsafe.Pointer(&recv[0]), recvCounts, nil, plugin.Uint32, nil); err != nil {
			return nil, fmt.Errorf("call %d: %w", call, err)
		}
		if err := checkBlocks(matrix, recv, w.Rank, world); err != nil {
			return nil, fmt.Errorf("call %d: %w", call, err)
		}
		a.Operations++
	}
	settle()
	if a.After, err = Measure(); err != nil {
		return nil, err
	}
	if err := errors.Join(j.close(), unix.Munmap(memory)); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	return json.Marshal(a)
}

// checkBlocks looks at the first and the last element of every block.
func checkBlocks(matrix []int64, recv []uint32, me, world int) error {
	at := int64(0)
	for from := range world {
		n := matrix[from*world+me]
		if n == 0 {
			continue
		}
		start := int64(0) // of the block at its sender
		for to := range me {
			start += matrix[from*world+to]
		}
		for _, i := range []int64{0, n - 1} {
			if want := uint32(from)<<24 | uint32(start+i)&0xffffff; recv[at+i] != want {
				return fmt.Errorf("element %d of %d from rank %d is 0x%x, want 0x%x", i, n, from, recv[at+i], want)
			}
		}
		at += n
	}
	return nil
}

// soakCommunicatorsHandler makes and closes communicators, by turns whole jobs
// and sub-groups.
func soakCommunicatorsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	var a answer
	var first *job
	for round := range r.Rounds {
		if round == r.Rounds/warmUp {
			settle()
			if a.Before, err = Measure(); err != nil {
				return nil, err
			}
		}
		request := r
		request.ID = fmt.Sprintf("%s-%d", r.ID, round)
		j, err := openJob(ctx, w, request)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if first == nil {
			first = &job{before: j.before}
		}
		sub, err := j.comm.Split(ctx, w.Rank%2, 0)
		if err != nil {
			return nil, fmt.Errorf("round %d: split: %w", round, err)
		}
		var in, out [2]float32
		in[0] = 1
		if err := sub.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), 2, plugin.Float32, plugin.OpSum, nil); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if want := float32(sub.World()); out[0] != want {
			return nil, fmt.Errorf("round %d: sum %g, want %g", round, out[0], want)
		}
		if err := j.operation(round%28, 4096); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if err := errors.Join(sub.Close(), j.close(), j.release()); err != nil {
			return nil, fmt.Errorf("round %d: close: %w", round, err)
		}
		a.Operations++
	}
	settle()
	if a.After, err = Measure(); err != nil {
		return nil, err
	}
	a.Leaks = first.leaks()
	return json.Marshal(a)
}
