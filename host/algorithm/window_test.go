package algorithm

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestWindowBytes(t *testing.T) {
	for _, test := range []struct {
		world        int
		user         int64
		total, start int64
	}{
		{1, 0, 4096, 4096}, {1, 1, 8192, 4096}, {32, 4096, 8192, 4096}, {33, 4097, 16384, 8192}, {1024, 0, 131072, 131072},
	} {
		total, start := WindowBytes(test.world, test.user)
		if total != test.total || start != test.start {
			t.Errorf("WindowBytes(%d, %d) = %d, %d; want %d, %d", test.world, test.user, total, start, test.total, test.start)
		}
	}
}

// A ring of ranks: each puts into its right neighbour's window, signals it,
// waits for its left one, and reads the neighbour's window back. Rounds reuse
// the window, so a signal that did not follow its puts, or a wait that counted
// wrong, shows old bytes.
func TestOneSided(t *testing.T) {
	for world := 1; world <= 4; world++ {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) { oneSided(t, world) })
	}
}

func oneSided(t *testing.T, world int) {
	const user, window, rounds = 100_000, 3, 50
	endpoints := plantest.ScratchEndpoints(t, world, testScratch)
	w := plantest.Open(t, endpoints, func(req plugin.Request, name string) (*plugin.Plan, error) {
		return Plan(req, name, 0, testScratch)
	})
	total, start := WindowBytes(world, user)
	local := make([][]byte, world)
	for r, e := range endpoints {
		region, err := e.Allocate(context.Background(), window, total)
		if err != nil {
			t.Fatal(err)
		}
		memory := w.Window(region, r)
		local[r] = unsafe.Slice((*byte)(unsafe.Add(memory.Base, start)), user)
	}
	do := func(rank int, c plugin.Collective, peer int, offset int64, send, recv []byte) error {
		o := plantest.Operation{Collective: c, DType: plugin.Uint8, Algorithm: Prefix + "/put_direct", Peer: peer}
		return w.OneSided(rank, &o, window, offset, send, recv)
	}
	err := w.Each(func(rank int) error {
		right, left := (rank+1)%world, (rank+world-1)%world
		for round := range rounds {
			offset := int64(round * 13 % 500)
			message := func(from int) []byte { return bytes.Repeat([]byte{byte(from*rounds + round)}, 3000+round) }
			send := message(rank)
			half := len(send) / 2
			if err := do(rank, plugin.Put, right, offset, send[:half], nil); err != nil {
				return err
			}
			if err := do(rank, plugin.Put, right, offset+int64(half), send[half:], nil); err != nil {
				return err
			}
			for range 2 {
				if err := do(rank, plugin.Signal, right, 0, nil, nil); err != nil {
					return err
				}
			}
			if err := do(rank, plugin.Wait, left, 2, nil, nil); err != nil {
				return err
			}
			want := message(left)
			if got := local[rank][offset:][:len(want)]; !bytes.Equal(got, want) {
				return fmt.Errorf("rank %d, round %d: the window is not what rank %d put", rank, round, left)
			}
			back := make([]byte, len(send))
			if err := do(rank, plugin.Get, right, offset, nil, back); err != nil {
				return err
			}
			if !bytes.Equal(back, send) {
				return fmt.Errorf("rank %d, round %d: get from rank %d differs from what was put", rank, round, right)
			}
			// Both neighbours are done with this round before anyone puts again.
			barrier := plantest.Operation{Collective: plugin.Barrier, DType: plugin.Uint8, Algorithm: Prefix + "/put_direct"}
			if err := w.OneSided(rank, &barrier, 0, 0, nil, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What lies outside the window is refused, not written.
func TestPutOutsideWindow(t *testing.T) {
	endpoints := plantest.ScratchEndpoints(t, 1, testScratch)
	w := plantest.Open(t, endpoints, func(req plugin.Request, name string) (*plugin.Plan, error) {
		return Plan(req, name, 0, testScratch)
	})
	total, _ := WindowBytes(1, 100)
	region, err := endpoints[0].Allocate(context.Background(), 3, total)
	if err != nil {
		t.Fatal(err)
	}
	w.Window(region, 0)
	o := plantest.Operation{Collective: plugin.Put, DType: plugin.Uint8, Algorithm: Prefix + "/put_direct"}
	for _, offset := range []int64{4096, 1 << 62, -5000} {
		if err := w.OneSided(0, &o, 3, offset, make([]byte, 8), nil); err == nil {
			t.Errorf("a put at offset %d succeeded", offset)
		}
	}
}
