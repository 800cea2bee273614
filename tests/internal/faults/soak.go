package faults

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// warmUp is the part of a soak, as one over it, after which the first
// measurement is taken.
const warmUp = 10

// courseStep is after how many communicators a soak looks at what it holds, so
// that what each one leaves tells itself from what the first ones take for good.
const courseStep = 30

// pile is the largest number of calls in the stream at once.
const pile = 8

// soakCallsHandler makes all_to_all_v calls whose splits change every time. With
// counts on the device every call in the stream has its own, which are copied there in
// front of it.
func soakCallsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	r, err := parse(payload)
	if err != nil {
		return nil, err
	}
	most := r.Bytes / 4 // elements of one block
	size := most * int64(w.World) * 4
	r.Bytes = most*4 + 8*pile // and room for counts
	j, err := openRank(ctx, w, r)
	if err != nil {
		return nil, err
	}
	send := unsafe.Slice((*uint32)(unsafe.Pointer(&j.Bytes[0])), size/4)
	recv := unsafe.Slice((*uint32)(unsafe.Pointer(&j.Bytes[size])), size/4)
	for i := range send {
		send[i] = uint32(w.Rank)<<24 | uint32(i)&0xffffff
	}
	if err := errors.Join(j.Push(0, size), j.Settle()); err != nil {
		return nil, err
	}
	// Every rank draws the whole matrix of counts from the same numbers.
	random := rand.New(rand.NewPCG(1, 2))
	world := w.World
	matrix := make([]int64, world*world)
	sendCounts, recvCounts := make([]int64, world), make([]int64, world)
	var a reply
	for call := range r.Rounds {
		if call == r.Rounds/warmUp {
			settle()
			if a.Before, err = measure(j.Job); err != nil {
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
		if r.Counted {
			err = j.onDevice(2*size+int64(call%pile*16*world), most, sendCounts, recvCounts, size)
		} else {
			err = j.Comm.AllToAllV(j.Pointer(0), sendCounts, nil, j.Pointer(size), recvCounts, nil, plugin.Uint32, j.Stream())
		}
		if err != nil {
			return nil, fmt.Errorf("call %d: %w", call, err)
		}
		a.Operations++
		if j.Device != nil {
			// Some calls are left to pile up in the stream.
			if call%pile != pile-1 && call != r.Rounds-1 {
				continue
			}
			total := int64(0)
			for _, n := range recvCounts {
				total += 4 * n
			}
			if err := errors.Join(j.Pull(size, size+total), j.Settle()); err != nil {
				return nil, fmt.Errorf("call %d: %w", call, err)
			}
		}
		if err := checkBlocks(matrix, recv, w.Rank, world); err != nil {
			return nil, fmt.Errorf("call %d: %w", call, err)
		}
	}
	settle()
	if a.After, err = measure(j.Job); err != nil {
		return nil, err
	}
	if err := j.Leave(); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// onDevice makes the call with counts on the device: from the given place in the memory
// on, blocks packed and of at most so many elements, and the receive memory at recv.
func (j *rank) onDevice(at, most int64, sendCounts, recvCounts []int64, recv int64) error {
	end := at
	for _, counts := range [][]int64{sendCounts, recvCounts} {
		for _, n := range counts {
			binary.NativeEndian.PutUint64(j.Bytes[end:], uint64(n))
			end += 8
		}
	}
	if err := j.Push(at, end); err != nil {
		return err
	}
	room := most * int64(len(sendCounts))
	return j.Comm.AllToAllVOnDevice(j.Pointer(0), j.Pointer(recv), host.DeviceCounts{
		SendCounts: j.Pointer(at), RecvCounts: j.Pointer(at + (end-at)/2), SendCapacity: room, RecvCapacity: room,
	}, plugin.Uint32, j.Stream())
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
	const size = 4096 // of an operation
	var a reply
	j, err := newRank(w, r)
	if err != nil {
		return nil, err
	}
	for round := range r.Rounds {
		if round == r.Rounds/warmUp {
			settle()
			if a.Before, err = measure(j.Job); err != nil {
				return nil, err
			}
		}
		request := r.Request
		request.ID = fmt.Sprintf("%s-%d", r.ID, round)
		if err := j.Join(ctx, request); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		sub, err := j.Comm.Split(ctx, w.Rank%2, 0)
		if err != nil {
			return nil, fmt.Errorf("round %d: split: %w", round, err)
		}
		if err := j.Sum(sub); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		first, last := round%(4*kinds), round%(4*kinds)
		if round == 0 { // all of them: what the first call of a kind loads stays
			last = 4*kinds - 1
		}
		err = j.fill(int64(w.World) * size)
		for number := first; number <= last && err == nil; number++ {
			err = j.operation(number, size)
		}
		if err := errors.Join(err, j.Settle()); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		if err := errors.Join(sub.Close(), j.Leave()); err != nil {
			return nil, fmt.Errorf("round %d: close: %w", round, err)
		}
		a.Operations++
		if a.Operations%courseStep == 0 {
			settle()
			now, err := measure(j.Job)
			if err != nil {
				return nil, err
			}
			now.Descriptors, now.Mappings = nil, nil // only their numbers are reported, as a reply is bounded
			a.Course = append(a.Course, now)
		}
	}
	settle()
	if a.After, err = measure(j.Job); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}
