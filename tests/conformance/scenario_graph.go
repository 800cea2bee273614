package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
)

// score is operations in parts, each of which is called eagerly or captured,
// with all buffers in the arena together. No operation is in place, so a part
// may run any number of times on the same input.
type score struct {
	stage *stage
	comm  *host.Communicator
	line  cuda.Stream
	parts [][]*Case
	list  [][]*prepared
}

// score draws parts of the given numbers of operations from the case's seed.
func (s *stage) score(comm *host.Communicator, salt int, sizes ...int) *score {
	o := &score{stage: s, comm: comm, line: s.rank.device.Streams[s.rank.place(comm)]}
	collectives := s.whole()
	for number, size := range sizes {
		var part []*Case
		for i := range size {
			h := hash(s.c.Seed, uint64(salt), uint64(number), uint64(i))
			c := s.with(salt<<20+number<<10+i, collectives[h%uint64(len(collectives))], 0)
			c.World = comm.World()
			c.DType, c.Op = plugin.DTypes()[h>>8%12], plugin.Ops()[h>>16%6]
			if c.Count = int64(h >> 24 % uint64(s.c.Count+1)); h>>60&3 != 0 {
				c.Count %= 1025 // most are small
			}
			c.Root = int(h >> 32 % uint64(c.World))
			c.Split, c.Displ = []Split{Ragged, Even, Sparse, Single}[h>>44%4],
				[]Displ{NoDispl, Gapped, Packed, Reversed}[h>>48%4]
			c.OnDevice = s.onDevice(c.Collective, h>>56)
			part = append(part, c)
		}
		o.parts = append(o.parts, part)
	}
	return o
}

// fill carves and fills all buffers, the same ones every time.
func (o *score) fill(turn uint64) error {
	var all []*Case
	for _, part := range o.parts {
		for _, c := range part {
			all = append(all, c.at(turn))
		}
	}
	list, err := o.stage.prepare(o.comm, all)
	if err != nil {
		return err
	}
	o.list = nil
	for _, part := range o.parts {
		o.list = append(o.list, list[:len(part)])
		list = list[len(part):]
	}
	return nil
}

// play calls a part's operations.
func (o *score) play(part int, line cuda.Stream) error {
	for _, p := range o.list[part] {
		p.op.Stream = device.Stream(line)
		if err := o.stage.rank.notOffered(o.comm, o.comm.Do(&p.op), p.c); err != nil {
			return fmt.Errorf("%s: %w", p.c.Name(), err)
		}
	}
	return nil
}

// capture makes a graph of a part.
func (o *score) capture(part int) (*device.Graph, error) {
	return o.stage.rank.device.Capture(o.line, func() error { return o.play(part, o.line) })
}

// captured makes a graph of the calls of a stage.
func (s *stage) captured(calls func(s *stage) error) (*device.Graph, error) {
	inner := *s
	inner.capturing = s.rank.device.Streams[s.rank.place(s.comm)]
	return s.rank.device.Capture(inner.capturing, func() error { return calls(&inner) })
}

// perform runs everything that play puts into the stream on fresh input, and
// checks the result of every operation; all parts must have run.
func (o *score) perform(turn uint64, play func() error) error {
	if err := o.fill(turn); err != nil {
		return err
	}
	r := o.stage.rank
	if err := r.inStream(o.comm, o.line, play); err != nil {
		return fmt.Errorf("turn %d: %w", turn, err)
	}
	for part, list := range o.list {
		if err := verifyAll(list); err != nil {
			return fmt.Errorf("turn %d, part %d: %w", turn, part, err)
		}
	}
	return nil
}

// batch is the most replays between two checks of the result.
const batch = 50

// graphHundred replays one long graph many times, with eager calls in between: as many times as the case says, or as an
// engine that is slow does in half of the case's time. The first batch is one replay, which shows how slow it is.
func graphHundred(ctx context.Context, s *stage) (err error) {
	o := s.score(s.comm, 1, 100, 3)
	if err := o.fill(0); err != nil {
		return err
	}
	g, err := o.capture(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Destroy()) }()
	end := halfway(ctx)
	turn := uint64(0)
	for left, replays := s.c.Repeat, min(1, s.c.Repeat); replays > 0; {
		begun := time.Now()
		turn++
		err := o.perform(turn, func() error {
			for range replays {
				if err := g.Launch(o.line); err != nil {
					return err
				}
			}
			return o.play(1, o.line)
		})
		if err != nil {
			return err
		}
		left -= replays
		each := time.Since(begun) / time.Duration(replays)
		if replays, err = s.agree(ctx, min(left, batch, fitting(time.Until(end), each))); err != nil {
			return err
		}
	}
	return nil
}

// halfway is half of the time that is left until a context's deadline.
func halfway(ctx context.Context) time.Time {
	now := time.Now()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = now.Add(time.Hour)
	}
	return now.Add(deadline.Sub(now) / 2)
}

// fitting returns how many times something fits into a time.
func fitting(time, each time.Duration) int { return int(max(time, 0) / max(each, 1)) }

// agree returns rank 0's number, up to 255, on all ranks.
func (s *stage) agree(ctx context.Context, n int) (int, error) {
	numbers, err := s.comm.Exchange(ctx, []byte{byte(n)})
	if err != nil {
		return 0, err
	}
	return int(numbers[0][0]), nil
}

// twoGraphs launches two graphs of one communicator and eager calls in an order
// that the seed decides.
func twoGraphs(_ context.Context, s *stage) (err error) {
	o := s.score(s.comm, 2, 12, 9, 2)
	if err := o.fill(0); err != nil {
		return err
	}
	var graphs []*device.Graph
	defer func() {
		for _, g := range graphs {
			err = errors.Join(err, g.Destroy())
		}
	}()
	for part := range 2 {
		g, err := o.capture(part)
		if err != nil {
			return err
		}
		graphs = append(graphs, g)
	}
	for round := range s.c.Repeat {
		err := o.perform(uint64(round+1), func() error {
			ran := [3]bool{}
			for i := 0; i < 8 || ran != [3]bool{true, true, true}; i++ {
				part := hash(s.c.Seed, uint64(round), uint64(i)) % 3
				ran[part] = true
				if part == 2 {
					if err := o.play(2, o.line); err != nil {
						return err
					}
				} else if err := graphs[part].Launch(o.line); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// graphLives lets graphs and their communicator end in either order, and looks
// for device memory and descriptors that stay.
func graphLives(ctx context.Context, s *stage) error {
	const warmUp = 2
	round := 0
	row := func(rounds int, before holdings) (holdings, error) {
		for range rounds {
			for _, commFirst := range []bool{false, true} {
				if err := s.graphLife(ctx, round, commFirst); err != nil {
					return before, fmt.Errorf("round %d, communicator closed first %t: %w", round, commFirst, err)
				}
			}
			round++
		}
		// What a closed communicator left to its graph is freed by the next one.
		sub, err := s.comm.Split(ctx, 0, s.me)
		if err == nil {
			err = sub.Close()
		}
		if err != nil {
			return before, err
		}
		return s.quiet(before)
	}
	before, err := row(warmUp, holdings{})
	if err != nil {
		return err
	}
	left, err := s.leftBehind(ctx, func() (left []string, err error) {
		now, err := row(s.c.Repeat, before)
		if now.more(before) {
			left = []string{fmt.Sprintf("%d descriptors, then %d; %d bytes of device memory free, then %d", before.descriptors,
				now.descriptors, before.available, now.available)}
		}
		before = now
		return left, err
	})
	if err != nil || len(left) == 0 {
		return err
	}
	return fmt.Errorf("after %d rounds, time after time: %s", s.c.Repeat, left[0])
}

// leakLimit is below what one communicator takes on a device.
const leakLimit = 2 << 20

func (s *stage) graphLife(ctx context.Context, round int, commFirst bool) error {
	sub, err := s.comm.Split(ctx, 0, s.me)
	if err != nil {
		return err
	}
	o := s.score(sub, 100+round, 6, 1)
	closed := false
	run := func() error {
		if err := o.fill(0); err != nil {
			return err
		}
		g, err := o.capture(0)
		if err != nil {
			return err
		}
		play := func() error {
			for range 2 {
				if err := g.Launch(o.line); err != nil {
					return err
				}
			}
			if closed {
				return nil
			}
			return o.play(1, o.line)
		}
		err = o.perform(1, play)
		if err == nil && commFirst {
			closed = true
			// All ranks have closed before any replays.
			if err = sub.Close(); err == nil {
				err = s.run(round, s.comm, s.with(round, plugin.Barrier, 0))
			}
			if err == nil {
				o.parts = o.parts[:1]
				err = o.performAlone(2, play)
			}
		}
		return errors.Join(err, g.Destroy())
	}
	if err = run(); err == nil && !closed {
		err = o.perform(3, func() error { return errors.Join(o.play(0, o.line), o.play(1, o.line)) })
	}
	return errors.Join(err, sub.Close())
}

// performAlone is perform once the communicator is closed.
func (o *score) performAlone(turn uint64, play func() error) error {
	open := *o
	open.comm = o.stage.comm // of the same ranks in the same order
	return open.perform(turn, play)
}

// holdings counts the resources of a rank that could leak.
type holdings struct {
	descriptors int
	available   int64 // bytes of device memory
}

func (h holdings) more(before holdings) bool {
	return h.descriptors > before.descriptors || h.available < before.available-leakLimit
}

// quiet measures while no rank does anything, as ranks may share a process; and
// measures again for a while if there is more than before, as connections take
// their time to end.
func (s *stage) quiet(before holdings) (h holdings, err error) {
	barrier := s.with(0, plugin.Barrier, 0)
	if err := s.run(0, s.comm, barrier); err != nil {
		return h, err
	}
	deadline := time.Now().Add(2 * time.Second)
	for h, err = s.holdings(); err == nil && before != (holdings{}) && h.more(before) && time.Now().Before(deadline); h,
		err = s.holdings() {
		runtime.Gosched()
	}
	return h, errors.Join(err, s.run(0, s.comm, barrier))
}

func (s *stage) holdings() (h holdings, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return h, err
	}
	h.descriptors = len(entries)
	h.available, _, err = s.rank.device.Driver.MemoryInfo(s.rank.device.Context)
	return h, err
}

// streamSwitch lets a communicator's operations follow each other on changing
// streams. Buffers belong to one operation each; only what the communicator
// itself keeps goes from stream to stream.
func streamSwitch(_ context.Context, s *stage) error {
	lines := append([]cuda.Stream{0}, s.rank.device.Streams[:]...)
	for round := range s.c.Repeat {
		o := s.score(s.comm, 1000+round, 16)
		if err := o.fill(0); err != nil {
			return err
		}
		for i, p := range o.list[0] {
			line := lines[hash(s.c.Seed, uint64(round), uint64(i))%uint64(len(lines))]
			p.op.Stream = device.Stream(line)
			one := []*prepared{p}
			err := push(one, line)
			if err == nil {
				err = s.rank.notOffered(s.comm, s.comm.Do(&p.op), p.c)
			}
			if err == nil {
				err = pull(one, line)
			}
			if err != nil {
				return fmt.Errorf("round %d, operation %d: %w", round, i, err)
			}
		}
		for _, line := range lines {
			if err := s.comm.Synchronize(device.Stream(line)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		if err := verifyAll(o.list[0]); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}
