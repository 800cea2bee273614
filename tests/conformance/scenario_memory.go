package conformance

import (
	"context"
	"errors"
	"fmt"
	"unsafe"
)

// freshMemory runs operations on memory that comes and goes: where it is freed the next often lies at its address. A
// transport that registers memory must learn of that in time. Host memory is registered by this scenario, twice over,
// and device memory by the host, before operations that are given it.
func freshMemory(_ context.Context, s *stage) error {
	if s.rank.symmetric {
		return absent("symmetric memory stays allocated")
	}
	collectives, err := s.someWhole()
	if err != nil {
		return err
	}
	for step := range s.c.Repeat {
		h := hash(s.c.Seed, uint64(step))
		if err := errors.Join(s.settle(s.comm), s.rank.arena.close()); err != nil {
			return fmt.Errorf("step %d: freeing: %w", step, err)
		}
		if err := s.registered(h, func() error {
			for i := range 2 {
				c := s.with(2*step+i, collectives[h>>8%uint64(len(collectives))], s.c.Count)
				c.Root = int(h >> 16 % uint64(c.World))
				if err := s.run(step, s.comm, c); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// registered runs f with the arena registered where it is host memory, in part or twice too.
func (s *stage) registered(h uint64, f func() error) error {
	if s.rank.device != nil {
		return f()
	}
	if err := s.rank.arena.reset(1); err != nil {
		return err
	}
	at, bytes := unsafe.Pointer(unsafe.SliceData(s.rank.arena.memory)), int64(len(s.rank.arena.memory))
	lengths := [][]int64{{bytes}, {bytes / 2, bytes}, {bytes, bytes / 2}, {bytes, bytes}}[h%4]
	for _, n := range lengths {
		if err := s.comm.Register(at, n); err != nil {
			return err
		}
	}
	err := f()
	for range lengths {
		err = errors.Join(err, s.comm.Deregister(at))
	}
	return err
}
