package host

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// alone lists the collectives whose plans are prepared when the communicator is
// made, because the ranks cannot agree on them later: groups of send and recv run as
// all_to_all_v. A rank without peers copies.
func (d *device) alone() []plugin.Collective {
	if d.comm.world == 1 {
		return nil
	}
	return []plugin.Collective{plugin.Send, plugin.Recv, plugin.AllToAllV}
}

// batch turns the sends and receives of a group into rounds: the k-th message of
// each ordered pair of ranks belongs to round k, on both ends. A round is one
// all_to_all_v, whose displacements are addresses: each message has memory of
// its own. Messages of one pair thus stay in order, and within a round nobody
// waits for anybody's turn. It is reused from group to group.
type batch struct {
	rounds []round
	used   int
	next   []int // round of the next message, by peer and direction
	peers  []int // of partners
	launch []executor.DeviceLaunch
}

// round holds the messages of one round, at most one to and one from each rank.
type round struct{ arrays []int64 }

// begin empties the batch.
func (b *batch) begin(world int) {
	if b.next == nil {
		b.next, b.peers = make([]int, 2*world), make([]int, 0, world)
	}
	clear(b.next)
	b.used = 0
}

// add puts a message into its round.
func (b *batch) add(world int, call *call.Call) {
	direction := 0
	if call.Collective == plugin.Recv {
		direction = 1
	}
	k := b.next[2*call.Root+direction]
	b.next[2*call.Root+direction]++
	if k >= len(b.rounds) {
		b.rounds = append(b.rounds, round{make([]int64, 4*world)})
	}
	for b.used <= k {
		clear(b.rounds[b.used].arrays)
		b.used++
	}
	arrays := b.rounds[k].arrays
	bytes, at := call.Slots[plugin.SlotBytes], int64(uintptr(call.Send))
	if direction == 1 {
		at = int64(uintptr(call.Recv))
	}
	arrays[2*direction*world+call.Root] = bytes
	arrays[(2*direction+1)*world+call.Root] = at
}

// partners returns the ranks that the batch has messages to or from. Others may make no call at all.
func (b *batch) partners(world int) []int {
	b.peers = b.peers[:0]
	for peer := range world {
		if b.next[2*peer]+b.next[2*peer+1] > 0 {
			b.peers = append(b.peers, peer)
		}
	}
	return b.peers
}

// runGroup enqueues operations that were checked, as one group: sends and
// receives together, everything else behind them in the order given.
func (d *device) runGroup(operations []Operation, calls []call.Call) error {
	c := d.comm
	stream := streamOf(operations[0].Stream)
	for i := range operations {
		if s := streamOf(operations[i].Stream); s != stream {
			return c.checker.Invalid(operations[i].Collective,
				"a group's operations are of one stream; this one is of %#x, the first of %#x", uint64(s), uint64(stream))
		}
	}
	b := &d.batch
	b.begin(c.world)
	var rest []*call.Call
	first := (*call.Call)(nil)
	for i := range calls {
		switch calls[i].Collective {
		case plugin.Send, plugin.Recv:
			if first == nil {
				first = &calls[i]
			}
			if err := d.inspect(&calls[i]); err != nil {
				return err
			}
			if d.buffers != nil {
				d.buffers.ValidateRanges(&calls[i])
			}
			b.add(c.world, &calls[i])
		default:
			rest = append(rest, &calls[i])
		}
	}
	if err := b.matchSelf(c); err != nil {
		return err
	}
	if first != nil {
		d.buffers.TakeGroup(calls, false)
		if err := d.runBatch(first, stream); err != nil {
			return err
		}
		d.buffers.TakeGroup(calls, true)
		for i := range calls {
			d.countMessage(&calls[i])
		}
	}
	for _, call := range rest {
		if err := d.inspect(call); err != nil {
			return err
		}
		program, err := c.programs(call)
		if err != nil {
			return err
		}
		a := executor.Arguments{Send: call.Send, Recv: call.Recv, Slots: call.Slots, Arrays: call.Arrays}
		if err := d.run(call, nil, program, &a, stream); err != nil {
			return err
		}
	}
	return nil
}

// matchSelf checks the messages of a rank to itself, which nobody else looks at.
func (b *batch) matchSelf(c *Communicator) error {
	if sends, recvs := b.next[2*c.rank], b.next[2*c.rank+1]; sends != recvs {
		return plugin.Errorf(plugin.InvalidArgument, "group on rank %d: %d sends to itself but %d receives from itself",
			c.rank, sends, recvs)
	}
	for _, r := range b.rounds[:b.used] {
		if n, m := r.arrays[c.rank], r.arrays[2*c.world+c.rank]; n != m {
			return plugin.Errorf(plugin.Mismatch, "group on rank %d: sends %d bytes to itself but receives %d", c.rank, n, m)
		}
	}
	return nil
}

// runBatch enqueues the batch's rounds. first is its first message, for records.
func (d *device) runBatch(first *call.Call, stream cuda.Stream) error {
	c, b := d.comm, &d.batch
	if c.world == 1 {
		for _, r := range b.rounds[:b.used] {
			if err := d.driver.Copy(d.context, cuda.Ptr(r.arrays[3]), cuda.Ptr(r.arrays[1]), r.arrays[0], stream); err != nil {
				return c.failRun("group", err)
			}
		}
		return nil
	}
	round := call.Call{Collective: plugin.AllToAllV, DType: plugin.Uint8}
	p, err := c.programs(&round)
	if err != nil {
		return err
	}
	b.launch = b.launch[:0]
	for _, r := range b.rounds[:b.used] {
		b.launch = append(b.launch, executor.DeviceLaunch{
			Program: p.Kernels, Arguments: executor.Arguments{Send: unsafe.Pointer(nil), Recv: unsafe.Pointer(nil),
				Arrays: r.arrays, Absolute: true},
		})
	}
	c.publish(first)
	c.engine.Announce()
	if err := d.makeDeferred(p, b.partners(c.world)); err != nil {
		return d.explain("group", err, stream)
	}
	d.flights.Begin(c.sequence.Number, c.sequence.Collectives, first, p.Kernels.Title())
	if err = c.engines.BeforeRounds(p.Base, b.launch, stream); err == nil {
		err = d.exec.RunBatch(b.launch, stream)
		c.engines.AfterRounds(p.Base, b.launch, stream)
	}
	d.flights.Enqueued(c.sequence.Number, err != nil)
	if err != nil {
		return d.explain("group", err, stream)
	}
	return nil
}
