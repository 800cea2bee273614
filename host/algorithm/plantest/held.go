package plantest

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// Held is the result of RunHeld.
type Held struct {
	// Ended says for each rank whether it had ended all its operations before
	// the held rank began its first.
	Ended []bool
}

// RunHeld is like Run, with one rank that begins its first operation only when every
// other rank has ended all of its own or is stuck waiting. Plans that leave out a wait,
// or reuse memory without back-pressure, run ahead of the held rank and then show it the
// wrong bytes.
func (w *World) RunHeld(operations []Operation, held int) (Held, error) {
	ended := make([]atomic.Bool, w.Size)
	saw := Held{Ended: make([]bool, w.Size)}
	err := w.Each(func(rank int) error {
		defer ended[rank].Store(true)
		if rank == held {
			for !w.othersStuck(held, ended) {
				runtime.Gosched()
			}
			for r := range ended {
				saw.Ended[r] = ended[r].Load()
			}
		}
		return w.runAll(rank, operations, nil)
	})
	return saw, err
}

// stuck is the time after which a waiting rank counts as stuck.
const stuck = 3 * time.Millisecond

func (w *World) othersStuck(held int, ended []atomic.Bool) bool {
	for r, m := range w.ranks {
		if r == held || ended[r].Load() {
			continue
		}
		if waiting, _, since, _ := m.engine.Waiting(); !waiting || since < stuck {
			return false
		}
	}
	return true
}

// Words reads the 64-bit words at the given offsets of a rank's region.
func (w *World) Words(region uint32, rank int, offsets []int64) []int64 {
	base := w.memory[place{region, rank}].Base
	values := make([]int64, len(offsets))
	for i, offset := range offsets {
		values[i] = atomic.LoadInt64((*int64)(unsafe.Add(base, offset)))
	}
	return values
}
