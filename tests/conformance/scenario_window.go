package conformance

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// part is this rank's bytes of a window as a buffer that can be checked: its
// guards are the window's own first and last bytes, which nobody writes.
func part(w *host.Window, c *Case, count int64) *buffer {
	all := unsafe.Slice((*byte)(w.Local()), w.Bytes())
	b := &buffer{name: "window", all: all, data: all[guard : guard+count*c.DType.Bytes()], salt: 3, dtype: c.DType}
	tile(b.all, noiseTable(b.salt))
	return b
}

func windowBytes(c *Case, count int64) int64 { return 2*guard + count*c.DType.Bytes() }

// source is a buffer that holds a block to be put.
func (s *stage) source(c *Case, count int64, table []byte) (*buffer, error) {
	b, err := s.rank.arena.buffer("source", c.DType, count, 1, byte(s.me))
	if err == nil {
		b.put(block{0, count, table})
	}
	return b, err
}

func putSignalWait(ctx context.Context, s *stage) (err error) {
	world, n := s.comm.World(), s.c.Count
	w, err := s.comm.NewWindow(ctx, windowBytes(s.c, n))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	next, previous := (s.me+1)%world, (s.me+world-1)%world
	mine := part(w, s.c, n)
	if err := s.run(0, s.comm, s.with(0, plugin.Barrier, 0)); err != nil { // everybody has filled its part
		return err
	}
	bytes := n * s.c.DType.Bytes()
	for round := range s.c.Repeat {
		c := s.with(round, plugin.AllToAllV, n)
		if err := s.rank.arena.reset(need(c.DType, n, 1)); err != nil {
			return err
		}
		from, err := s.source(c, n, c.inputTable(s.me, next))
		if err != nil {
			return err
		}
		s.dawdle()
		// In two halves, in the wrong order, under one signal.
		half := bytes / 2 / c.DType.Bytes() * c.DType.Bytes()
		if err := w.Put(next, guard+half, unsafe.Add(from.pointer(0), half), bytes-half); err != nil {
			return err
		}
		if err := w.Put(next, guard, from.pointer(0), half); err != nil {
			return err
		}
		if err := w.Signal(next); err != nil {
			return err
		}
		if err := w.Wait(previous, 1); err != nil {
			return err
		}
		if err := mine.check(c, []block{{0, n, c.inputTable(previous, s.me)}}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		// The part may be overwritten: tell the one who writes to it.
		if err := w.Signal(previous); err != nil {
			return err
		}
		if err := w.Wait(next, 1); err != nil {
			return err
		}
	}
	return nil
}

func getWindow(ctx context.Context, s *stage) (err error) {
	world, n := s.comm.World(), s.c.Count
	w, err := s.comm.NewWindow(ctx, windowBytes(s.c, n))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	mine := part(w, s.c, n)
	for round := range s.c.Repeat {
		c := s.with(round, plugin.AllToAllV, n)
		mine.put(block{0, n, c.inputTable(s.me, 0)})
		if err := s.run(round, s.comm, s.with(0, plugin.Barrier, 0)); err != nil {
			return err
		}
		for peer := range world {
			if err := s.rank.arena.reset(need(c.DType, n, 1)); err != nil {
				return err
			}
			into, err := s.rank.arena.buffer("destination", c.DType, n, 1, byte(peer))
			if err != nil {
				return err
			}
			if err := w.Get(peer, guard, into.pointer(0), n*c.DType.Bytes()); err != nil {
				return err
			}
			if err := into.check(c, []block{{0, n, c.inputTable(peer, 0)}}); err != nil {
				return fmt.Errorf("round %d, from rank %d: %w", round, peer, err)
			}
		}
		if err := s.run(round, s.comm, s.with(0, plugin.Barrier, 0)); err != nil {
			return err
		}
	}
	return mine.check(s.c, []block{{0, n, s.with(s.c.Repeat-1, plugin.AllToAllV, n).inputTable(s.me, 0)}})
}

func windowExchange(ctx context.Context, s *stage) (err error) {
	world, n := s.comm.World(), s.c.Count
	const windows = 3
	var open []*host.Window
	var parts []*buffer
	defer func() {
		for _, w := range open {
			err = errors.Join(err, w.Close())
		}
	}()
	for range windows {
		w, err := s.comm.NewWindow(ctx, windowBytes(s.c, n*int64(world)))
		if err != nil {
			return err
		}
		open = append(open, w)
		parts = append(parts, part(w, s.c, n*int64(world)))
	}
	if err := s.run(0, s.comm, s.with(0, plugin.Barrier, 0)); err != nil {
		return err
	}
	for round := range s.c.Repeat {
		for i, w := range open {
			c := s.with(round*windows+i, plugin.AllToAllV, n)
			if err := s.rank.arena.reset(need(c.DType, n, 1) * int64(world)); err != nil {
				return err
			}
			for peer := range world {
				from, err := s.source(c, n, c.inputTable(s.me, peer))
				if err != nil {
					return err
				}
				if err := w.Put(peer, guard+int64(s.me)*n*c.DType.Bytes(), from.pointer(0), n*c.DType.Bytes()); err != nil {
					return err
				}
				if err := w.Signal(peer); err != nil {
					return err
				}
			}
			var expected []block
			for peer := range world {
				if err := w.Wait(peer, 1); err != nil {
					return err
				}
				expected = append(expected, block{int64(peer) * n, n, c.inputTable(peer, s.me)})
			}
			if err := parts[i].check(c, expected); err != nil {
				return fmt.Errorf("round %d, window %d: %w", round, i, err)
			}
			if err := s.run(round, s.comm, s.with(0, plugin.Barrier, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}
