package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// message is one send and its receive. What it holds follows from who sends
// it, who receives it and its number, so a message in the wrong place shows.
type message struct {
	from, to, number int
	count            int64
}

func (s *stage) tableOf(m message, turn uint64) []byte {
	c := *s.c
	c.Seed, c.Turn = hash(s.c.Seed, uint64(m.number)), turn
	return c.inputTable(m.from, m.to, m.count)
}

// point is a message's end at this rank.
type point struct {
	message
	turn       uint64
	collective plugin.Collective
	buffer     *buffer
}

// points makes the buffers of this rank's ends of messages.
func (s *stage) points(messages []message, turn uint64) ([]*point, error) {
	var list []*point
	room := int64(0)
	for _, m := range messages {
		if m.from == s.me {
			list = append(list, &point{message: m, turn: turn, collective: plugin.Send})
			room += need(s.c.DType, m.count, 1)
		}
		if m.to == s.me {
			list = append(list, &point{message: m, turn: turn, collective: plugin.Recv})
			room += need(s.c.DType, m.count, 1)
		}
	}
	if err := s.rank.arena.reset(room); err != nil {
		return nil, err
	}
	for i, p := range list {
		var err error
		name := fmt.Sprintf("%s %d→%d #%d", p.collective, p.from, p.to, p.number)
		if p.buffer, err = s.rank.arena.buffer(name, s.c.DType, p.count, int64(i%2), byte(i*16+s.me)); err != nil {
			return nil, err
		}
		if p.collective == plugin.Send {
			p.buffer.put(block{0, p.count, s.tableOf(p.message, turn)})
		}
	}
	return list, nil
}

func (p *point) peer() int {
	if p.collective == plugin.Send {
		return p.to
	}
	return p.from
}

func (p *point) operation(d plugin.DType, stream host.Stream) host.Operation {
	op := host.Operation{Collective: p.collective, DType: d, Count: p.count, Root: p.peer(), Stream: stream}
	if p.collective == plugin.Send {
		op.Send = p.buffer.pointer(0)
	} else {
		op.Recv = p.buffer.pointer(0)
	}
	return op
}

func (s *stage) checkPoints(list []*point) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, p.buffer.check(s.c, []block{{0, p.count, s.tableOf(p.message, p.turn)}}))
	}
	return errors.Join(errs...)
}

// exchange performs all ends of messages at this rank, in the way that call
// calls them.
func (s *stage) exchange(messages []message, call func(list []*point, stream host.Stream) error) error {
	var list []*point
	return s.rank.perform(s.comm, s.c.Axis, act{
		fill: func(turn uint64) (err error) {
			list, err = s.points(messages, turn)
			return err
		},
		enqueue: func(stream host.Stream) error { return call(list, stream) },
		check:   func() error { return s.checkPoints(list) },
	})
}

// together runs ends of messages as one group.
func (s *stage) together(list []*point, stream host.Stream) error {
	var g host.Group
	called := []*Case{s.with(0, plugin.AllToAllV, 0)} // what groups of messages are
	for _, p := range list {
		g.Add(p.operation(s.c.DType, stream))
		called = append(called, s.with(0, p.collective, p.count))
	}
	return s.rank.notOffered(s.comm, g.Run(s.comm), called...)
}

// each runs ends of messages one by one.
func (s *stage) each(list []*point, stream host.Stream) error {
	for _, p := range list {
		op := p.operation(s.c.DType, stream)
		if err := s.rank.notOffered(s.comm, s.comm.Do(&op), s.with(0, p.collective, p.count)); err != nil {
			return fmt.Errorf("%s #%d: %w", p.collective, p.number, err)
		}
	}
	return nil
}

// group runs all ends of messages at this rank in one group, in the order that
// order gives to them.
func (s *stage) group(messages []message, order func(n int, swap func(i, j int))) error {
	return s.exchange(messages, func(list []*point, stream host.Stream) error {
		if order != nil {
			list = slices.Clone(list)
			order(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		return s.together(list, stream)
	})
}

func sendRecvRing(_ context.Context, s *stage) error {
	world := s.comm.World()
	for round := range s.c.Repeat {
		var messages []message
		for r := range world {
			messages = append(messages, message{r, (r + 1) % world, round, s.c.Count})
		}
		if err := s.group(messages, nil); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func sendRecvPairs(_ context.Context, s *stage) error {
	peer := s.me ^ 1
	if peer >= s.comm.World() {
		return nil // the odd one out has no partner
	}
	for round := range s.c.Repeat {
		count := s.c.Count
		if round%3 == 2 {
			count = 0
		}
		mine, theirs := message{s.me, peer, round, count}, message{peer, s.me, round, count}
		err := s.exchange([]message{mine, theirs}, func(list []*point, stream host.Stream) error {
			list = slices.Clone(list)
			if s.me&1 != 0 { // the odd rank receives first, so no send has to be buffered
				slices.Reverse(list)
			}
			return s.each(list, stream)
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func sendRecvOrder(_ context.Context, s *stage) error {
	world := s.comm.World()
	var messages []message
	for n := range s.c.Repeat {
		count := int64(hash(s.c.Seed, uint64(n)) % uint64(s.c.Count+1))
		for r := range world {
			if world > 1 {
				messages = append(messages, message{r, (r + 1) % world, n, count})
			}
		}
	}
	// Rank 0 sends everything before it receives anything; the others receive
	// one by one and send on afterwards.
	return s.exchange(messages, func(list []*point, stream host.Stream) error {
		var sends, recvs []*point
		for _, p := range list {
			if p.collective == plugin.Send {
				sends = append(sends, p)
			} else {
				recvs = append(recvs, p)
			}
		}
		switch {
		case s.me != 0:
			return s.each(append(recvs, sends...), stream)
		case s.c.Axis.onDevice():
			// A group on a stream ends before the next begins.
			return errors.Join(s.together(sends, stream), s.together(recvs, stream))
		}
		return s.together(append(sends, recvs...), stream)
	})
}

func groupExchange(_ context.Context, s *stage) error {
	world := s.comm.World()
	for round := range s.c.Repeat {
		var messages []message
		for from := range world {
			for to := range world {
				count := int64(hash(s.c.Seed, uint64(round), uint64(from), uint64(to)) % uint64(s.c.Count+1))
				if (from+to+round)%4 == 3 {
					count = 0
				}
				messages = append(messages, message{from, to, round, count})
			}
		}
		if err := s.group(messages, s.random.Shuffle); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}
