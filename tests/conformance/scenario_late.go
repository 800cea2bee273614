package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// Scenarios with delays. A rank that is late between two steps of a plan gives all others the time to do whatever they
// may do before it continues: to overwrite what it has not read, or to read what it has not written. A transport that
// keeps the rules lets them do neither. See executor.Delays for how long a delay lasts: until all other ranks wait, as
// they do in a good transport soon.

// under runs body with delays, which it names if body fails. What a transport cannot do at
// all is no failure.
func (s *stage) under(d executor.Delays, body func() error) error {
	text := d.String()
	if err := s.delay(text); err != nil {
		return err
	}
	err := body()
	if err == nil || isAbsent(err) {
		return errors.Join(err, s.delay(""))
	}
	return fmt.Errorf("with SHUNT_DELAYS=%s: %w", text, err)
}

func (s *stage) delay(text string) error {
	for _, comm := range s.rank.comms {
		if err := comm.SetDelays(text); err != nil {
			return err
		}
	}
	return nil
}

// meet ends a part of a scenario. A rank that is ahead waits here, and not outside of any
// operation, where a late rank could not know that nothing more comes.
func (s *stage) meet() error { return s.run(-1, s.comm, s.with(-1, plugin.Barrier, 0)) }

// delayed returns a scenario with random delays on all ranks.
func delayed(run func(context.Context, *stage) error) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		d := executor.Delays{Probability: 0.03, Longest: time.Millisecond, Seed: hash(s.c.Seed, 0xde1a)}
		return s.under(d, func() error { return run(ctx, s) })
	}
}

// isLate says whether a scenario goes through all algorithms of a set.
func isLate(name string) bool {
	return name == "late_rank" || name == "late_large" || name == "run_ahead"
}

// smallWorld is the largest world where every rank is late in turn, and rows are long.
// In larger ones, which take longer, chance names the rank.
const smallWorld = 3

func lateRank(_ context.Context, s *stage) error {
	world := s.comm.World()
	if world == 1 { // no peer waits for a late rank
		return nil
	}
	for round := range s.c.Repeat {
		h := hash(s.c.Seed, uint64(round))
		for i := range world {
			if i > 0 && world > smallWorld {
				break
			}
			late := int(h%uint64(world)) + i
			d := executor.Delays{Ranks: []int{late % world}, Probability: 0.2, Longest: 3 * time.Millisecond,
				Seed: hash(h, uint64(i))}
			if err := s.under(d, func() error { return s.everyStreak(round*world+i, late%world) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// everyStreak runs streaks of every collective that one rank's lateness could spoil.
func (s *stage) everyStreak(number, late int) error {
	for i, collective := range s.whole() {
		for part := range 2 {
			h := hash(s.c.Seed, uint64(number), uint64(i), uint64(part))
			c := s.with(0, collective, s.c.Count)
			// Of what the seed decides, rank seed % world is the one that differs.
			c.Seed = h - h%uint64(c.World) + uint64(late)
			c.Split = []Split{Absent, Ragged, Sparse, Single}[uint64(part)*(1+h>>8%3)]
			if part == 1 && c.Split == Single {
				c.Seed++
			}
			c.Displ = []Displ{NoDispl, Gapped}[h>>16%2]
			c.Root = (late + part) % c.World
			if err := s.streak(number*1000+i, c); err != nil {
				return err
			}
		}
	}
	return s.meet()
}

// streak runs one operation several times, back to back and with other data each time.
// Every other one of those without counts of their own is empty. Alignment and place
// differ between ranks and from time to time, as they may.
func (s *stage) streak(step int, c *Case) error {
	const length = 5
	for turn := range length {
		now := c.at(uint64(turn))
		if !c.Collective.Varying() && turn%2 == 1 {
			now.Count = 0
		}
		h := hash(c.Seed, uint64(turn), uint64(s.me))
		now.SendShift, now.RecvShift = int64(h%7), int64(h>>8%7)
		now.InPlace = canBeInPlace(c.Collective) && h>>16%4 == 0
		if err := s.run(step, s.comm, now); err != nil {
			return err
		}
	}
	return nil
}

// lateLarge is lateRank for messages of many pieces, which are on their way at once. Of
// each collective one rank is late, another one in each case.
func lateLarge(_ context.Context, s *stage) error {
	world := s.comm.World()
	if world == 1 || world > smallWorld+1 { // larger ones move no other pieces
		return nil
	}
	for i, collective := range s.whole() {
		h := hash(s.c.Seed, uint64(i))
		late := int(h >> 8 % uint64(world))
		d := executor.Delays{Ranks: []int{late}, Probability: 0.1, Longest: 3 * time.Millisecond, Seed: h}
		c := s.with(i, collective, 2*s.c.Count/int64(world))
		c.Seed = h - h%uint64(world) + uint64(late)
		c.Split = []Split{Absent, Even, Ragged}[h>>16%3]
		c.Root = (late + int(h>>24%2)) % world
		err := s.under(d, func() error {
			for turn := range 2 {
				if err := s.run(turn, s.comm, c.at(uint64(turn))); err != nil {
					return err
				}
			}
			return s.meet()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runAhead delays ranks that receive, rarely but for long; ranks that only send can be
// ahead by as much as the transport holds.
func runAhead(_ context.Context, s *stage) error {
	if s.comm.World() == 1 {
		return nil
	}
	oneWay := []plugin.Collective{plugin.Broadcast, plugin.Scatter, plugin.ScatterV, plugin.Reduce, plugin.Gather,
		plugin.GatherV, plugin.Send}
	world := s.comm.World()
	for i, collective := range oneWay {
		// A rank that is ahead is to use the same slot again. What one writes for all
		// may have many.
		length := 80
		switch {
		case s.c.Count > 1024 || world > smallWorld:
			length = 30
		case collective == plugin.Broadcast:
			length = 300
		}
		if collective != plugin.Send && !s.rank.serves[collective] {
			continue
		}
		h := hash(s.c.Seed, uint64(i))
		late := int(h >> 8 % uint64(world))
		d := executor.Delays{Ranks: []int{late}, Probability: 2 / float64(length), Longest: 20 * time.Millisecond, Seed: h}
		err := s.under(d, func() error {
			if collective == plugin.Send {
				return s.stream(length, late)
			}
			for step := range length {
				c := s.with(i*length+step, collective, s.c.Count)
				c.Split = Even
				switch collective {
				case plugin.Reduce, plugin.Gather, plugin.GatherV:
					c.Root = late
				default:
					c.Root = (late + 1) % world
				}
				if err := s.run(step, s.comm, c); err != nil {
					return err
				}
			}
			return s.meet()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stream sends messages from every other rank to one.
func (s *stage) stream(length, to int) error {
	for step := range length {
		for i := 1; i < s.comm.World(); i++ {
			from := (to + i) % s.comm.World()
			if s.me != from && s.me != to {
				continue
			}
			m := []message{{from, to, step, s.c.Count}}
			if err := s.exchange(m, s.each); err != nil {
				return fmt.Errorf("message %d of %d from rank %d to rank %d: %w", step, length, from, to, err)
			}
		}
	}
	return s.meet()
}
