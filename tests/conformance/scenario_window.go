package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
)

// part returns this rank's bytes of a window as a buffer that can be checked: its
// guards are the window's own first and last bytes, which no rank writes. On a
// device its image lies in the side arena, which has room.
func (s *stage) part(w *host.Window, c *Case, count int64) (*buffer, error) {
	b := &buffer{name: "window", salt: 3, dtype: c.DType}
	if s.rank.device == nil {
		b.all = unsafe.Slice((*byte)(w.Local()), w.Bytes())
	} else if err := s.rank.side.show(b, w.Local(), w.Bytes()); err != nil {
		return nil, err
	}
	b.data = b.all[guard : guard+count*c.DType.Bytes()]
	if err := errors.Join(b.pull(s.line()), s.settle(s.comm)); err != nil {
		return nil, err
	}
	if at := slices.IndexFunc(b.all, func(v byte) bool { return v != 0 }); at >= 0 {
		return nil, fmt.Errorf("byte %d of a new window is 0x%02x, want memory filled with zeros", at, b.all[at])
	}
	tile(b.all, noiseTable(b.salt))
	return b, b.push(s.line())
}

// put, get, signal and wait are the window's, on the stage's stream.
func (s *stage) put(w *host.Window, peer int, offset int64, src unsafe.Pointer, bytes int64) error {
	if s.rank.device == nil {
		return w.Put(peer, offset, src, bytes)
	}
	return s.comm.Do(&host.Operation{Collective: plugin.Put, Window: w, Root: peer, Offset: offset, Send: src,
		Count: bytes, DType: plugin.Uint8, Stream: device.Stream(s.line())})
}

func (s *stage) get(w *host.Window, peer int, offset int64, dst unsafe.Pointer, bytes int64) error {
	if s.rank.device == nil {
		return w.Get(peer, offset, dst, bytes)
	}
	return s.comm.Do(&host.Operation{Collective: plugin.Get, Window: w, Root: peer, Offset: offset, Recv: dst,
		Count: bytes, DType: plugin.Uint8, Stream: device.Stream(s.line())})
}

func (s *stage) signal(w *host.Window, peer int) error {
	if s.rank.device == nil {
		return w.Signal(peer)
	}
	return s.comm.Do(&host.Operation{Collective: plugin.Signal, Window: w, Root: peer, DType: plugin.Uint8,
		Stream: device.Stream(s.line())})
}

func (s *stage) wait(w *host.Window, peer int, times int64) error {
	if s.rank.device == nil {
		return w.Wait(peer, times)
	}
	return s.comm.Do(&host.Operation{Collective: plugin.Wait, Window: w, Root: peer, Offset: times, DType: plugin.Uint8,
		Stream: device.Stream(s.line())})
}

// look brings a buffer back, in stream order, and checks it.
func (s *stage) look(b *buffer, c *Case, expected ...block) error {
	if err := b.pull(s.line()); err != nil {
		return err
	}
	if err := s.settle(s.comm); err != nil {
		return err
	}
	return b.check(c, expected)
}

// room returns the bytes that the images of windows take.
func room(windows ...*host.Window) int64 {
	total := int64(0)
	for _, w := range windows {
		total += w.Bytes() + 64
	}
	return total
}

func windowBytes(c *Case, count int64) int64 { return 2*guard + count*c.DType.Bytes() }

// source returns a buffer that holds a block to be put.
func (s *stage) source(c *Case, count int64, table []byte) (*buffer, error) {
	b, err := s.rank.arena.buffer("source", c.DType, count, 1, byte(s.me))
	if err == nil {
		b.put(block{0, count, table})
		err = b.push(s.line())
	}
	return b, err
}

// inHalves puts a message to one rank in two halves, in the wrong order, under one signal or under one each, and waits
// for as many of another rank: after too short a wait a half is not there.
func (s *stage) inHalves(w *host.Window, from *buffer, bytes int64, to, of int, each bool) error {
	half := bytes / 2 / s.c.DType.Bytes() * s.c.DType.Bytes()
	if err := s.put(w, to, guard+half, unsafe.Add(from.pointer(0), half), bytes-half); err != nil {
		return err
	}
	times := int64(1)
	if each {
		times = 2
		if err := s.signal(w, to); err != nil {
			return err
		}
		s.linger()
	}
	if err := s.put(w, to, guard, from.pointer(0), half); err != nil {
		return err
	}
	if err := s.signal(w, to); err != nil {
		return err
	}
	return s.wait(w, of, times)
}

func putSignalWait(ctx context.Context, s *stage) (err error) {
	world, n := s.comm.World(), s.c.Count
	w, err := s.newWindow(ctx, windowBytes(s.c, n))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	next, previous := (s.me+1)%world, (s.me+world-1)%world
	if err := s.rank.side.reset(room(w)); err != nil {
		return err
	}
	mine, err := s.part(w, s.c, n)
	if err != nil {
		return err
	}
	if err := s.run(0, s.comm, s.with(0, plugin.Barrier, 0)); err != nil { // all ranks have filled their parts
		return err
	}
	bytes := n * s.c.DType.Bytes()
	var graph *device.Graph // of the calls of one round, for others: their buffers lie where its lay
	defer func() {
		if graph != nil {
			err = errors.Join(err, graph.Destroy())
		}
	}()
	for round := range s.c.Repeat {
		c := s.with(round, plugin.AllToAllV, n)
		if err := s.rank.arena.reset(need(c.DType, n, 1)); err != nil {
			return err
		}
		from, err := s.source(c, n, c.inputTable(s.me, next, n))
		if err != nil {
			return err
		}
		s.dawdle()
		calls := func(s *stage) error { return s.inHalves(w, from, bytes, next, previous, round%3 == 2) }
		switch {
		case s.rank.device == nil || round%2 == 0 || round%3 == 2:
			err = calls(s)
		case graph == nil:
			if graph, err = s.captured(calls); err != nil {
				break
			}
			fallthrough
		default:
			err = graph.Launch(s.line())
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if err := s.look(mine, c, block{0, n, c.inputTable(previous, s.me, n)}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		// The part may be overwritten: tell the rank that writes to it.
		if err := s.signal(w, previous); err != nil {
			return err
		}
		if err := s.wait(w, next, 1); err != nil {
			return err
		}
	}
	return nil
}

func getWindow(ctx context.Context, s *stage) (err error) {
	world, n := s.comm.World(), s.c.Count
	w, err := s.newWindow(ctx, windowBytes(s.c, n))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := s.rank.side.reset(room(w)); err != nil {
		return err
	}
	mine, err := s.part(w, s.c, n)
	if err != nil {
		return err
	}
	for round := range s.c.Repeat {
		c := s.with(round, plugin.AllToAllV, n)
		mine.put(block{0, n, c.inputTable(s.me, 0, n)})
		if err := mine.push(s.line()); err != nil {
			return err
		}
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
			if err := into.push(s.line()); err != nil {
				return err
			}
			if err := s.get(w, peer, guard, into.pointer(0), n*c.DType.Bytes()); err != nil {
				return err
			}
			if err := s.look(into, c, block{0, n, c.inputTable(peer, 0, n)}); err != nil {
				return fmt.Errorf("round %d, from rank %d: %w", round, peer, err)
			}
		}
		if err := s.run(round, s.comm, s.with(0, plugin.Barrier, 0)); err != nil {
			return err
		}
	}
	return s.look(mine, s.c, block{0, n, s.with(s.c.Repeat-1, plugin.AllToAllV, n).inputTable(s.me, 0, n)})
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
		w, err := s.newWindow(ctx, windowBytes(s.c, n*int64(world)))
		if err != nil {
			return err
		}
		open = append(open, w)
	}
	if err := s.rank.side.reset(room(open...)); err != nil {
		return err
	}
	for _, w := range open {
		p, err := s.part(w, s.c, n*int64(world))
		if err != nil {
			return err
		}
		parts = append(parts, p)
	}
	if err := s.run(0, s.comm, s.with(0, plugin.Barrier, 0)); err != nil {
		return err
	}
	for round := range s.c.Repeat {
		if err := s.rank.arena.reset(need(s.c.DType, n, 1) * int64(world*windows)); err != nil {
			return err
		}
		inWindow := func(i int) *Case { return s.with(round*windows+i, plugin.AllToAllV, n) }
		for i, w := range open {
			c := inWindow(i)
			if i == windows-1 { // which one rank is late with when all have signalled the others
				if _, err := s.comm.Exchange(ctx, nil); err != nil {
					return err
				}
				if s.me == round%world {
					s.linger()
				}
			}
			for peer := range world {
				from, err := s.source(c, n, c.inputTable(s.me, peer, n))
				if err != nil {
					return err
				}
				if err := s.put(w, peer, guard+int64(s.me)*n*c.DType.Bytes(), from.pointer(0), n*c.DType.Bytes()); err != nil {
					return err
				}
				if err := s.signal(w, peer); err != nil {
					return err
				}
			}
		}
		// In the reverse order: the signals of one window are not those of another.
		for i, w := range slices.Backward(open) {
			c := inWindow(i)
			var expected []block
			for peer := range world {
				if err := s.wait(w, peer, 1); err != nil {
					return err
				}
				expected = append(expected, block{int64(peer) * n, n, c.inputTable(peer, s.me, n)})
			}
			if err := s.look(parts[i], c, expected...); err != nil {
				return fmt.Errorf("round %d, window %d: %w", round, i, err)
			}
		}
		if err := s.run(round, s.comm, s.with(0, plugin.Barrier, 0)); err != nil {
			return err
		}
	}
	return nil
}
