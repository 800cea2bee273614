package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
)

// scenario is a case of more than one operation. Its run is called on every
// rank; an absence is a skip.
type scenario struct {
	name     string
	doc      string
	counts   []int64
	dtypes   []plugin.DType
	everySet bool  // also with every algorithm forced
	rounds   int   // full run; a short run does a quarter
	where    where // axes that it is for
	run      func(ctx context.Context, s *stage) error
}

// where says on which axes a scenario runs.
type where int

const (
	everywhere where = iota // on every axis
	eagerly                 // on all but those with graphs
	onDevices               // on device memory alone; it makes graphs and streams of its own
	onHost                  // on host memory alone, where ranks can be delayed
)

func (s *scenario) on(axis Axis) bool {
	switch s.where {
	case eagerly:
		return axis.eager() == axis
	case onDevices:
		return axis.onDevice() && axis.eager() == axis
	case onHost:
		return !axis.onDevice()
	}
	return true
}

// in says whether a scenario runs on a kind of memory.
func (s *scenario) in(memory plugin.MemoryKind) bool {
	return s.where != onHost && s.where != onDevices || (s.where == onDevices) == (memory == plugin.MemoryKindCuda)
}

func (s *scenario) repeat(short bool) int {
	if short {
		return max(s.rounds/4, min(s.rounds, 4))
	}
	return s.rounds
}

var (
	someBytes = []plugin.DType{plugin.Uint8}
	someTypes = []plugin.DType{plugin.Float32, plugin.Bfloat16}
	someSizes = []plugin.DType{plugin.Float32, plugin.Bfloat16, plugin.Int64}

	someFloats = []plugin.DType{plugin.Float32}
)

// scenarioList is the table of scenarios; the functions stand in the files
// named after what they are about.
var scenarioList = []scenario{
	{"send_recv_ring", "every rank sends to the next and receives from the one before, as a group",
		[]int64{1, 4097, 262145, 0}, someTypes, true, 4, everywhere, sendRecvRing},
	{"send_recv_pairs", "neighbours exchange messages with blocking calls", []int64{1, 4097, 262145, 0}, someTypes, true,
		4, everywhere, sendRecvPairs},
	{"send_recv_order", "messages of many sizes to one peer arrive in the order they were sent", []int64{33, 65537},
		someSizes, true, 12, everywhere, sendRecvOrder},
	{"group_exchange", "a group sends and receives between all pairs, itself too, in an order of each rank's own",
		[]int64{5, 4099, 131071}, someSizes, true, 4, everywhere, groupExchange},
	{"zero_mix", "empty operations among full ones: every rank signals and waits all the same", []int64{513, 16385},
		someTypes, true, 40, everywhere, zeroMix},
	{"changing_splits", "all_to_all_v with other counts in every call", []int64{33, 4097, 65537}, someTypes, true, 60,
		everywhere, changingSplits},
	{"changing_roots", "rooted operations whose root changes while ranks run at different speeds",
		[]int64{7, 4097, 131071}, someTypes, true, 40, everywhere, changingRoots},
	{"mixed_sequence", "a random sequence of all collectives, sizes and dtypes", []int64{1025, 65537}, someBytes, true, 60,
		everywhere, mixedSequence},
	{"fresh_memory", "operations on memory that is freed and allocated anew between them", []int64{33, 4097}, someTypes,
		true, 24, eagerly, freshMemory},
	{"barrier_order", "no rank leaves a barrier before every rank has entered it", []int64{1}, someBytes, true, 50,
		everywhere, barrierOrder},
	{"non_blocking", "operations that were started together end in order, and Test and Wait agree", []int64{33, 16385},
		someTypes, false, 4, eagerly, nonBlocking},
	{"two_communicators", "two communicators of the same ranks are used at the same time", []int64{33, 16385}, someTypes,
		true, 20, eagerly, twoCommunicators},
	{"split", "sub-groups by color and key, of all sizes, and the parent beside them", []int64{33, 16385}, someTypes,
		false, 2, eagerly, splitGroups},
	{"abort", "a rank aborts a communicator while the others wait for it in a call", []int64{33, 65537}, someFloats, true,
		5, eagerly, abortedCall},
	{"put_signal_wait", "puts are visible once their signal has been waited for", []int64{1, 4097, 262145}, someTypes,
		false, 16, eagerly, putSignalWait},
	{"get", "gets read what the peer's part holds", []int64{1, 4097, 262145}, someTypes, false, 8, eagerly, getWindow},
	{"window_exchange", "every rank puts to every rank, several windows open", []int64{7, 4097}, someTypes, false, 8,
		eagerly, windowExchange},
	{"page_end", "memory whose last byte, or first, is beside an address that nobody may touch", []int64{7, 4099},
		someBytes, true, 1, onHost, pageEnd},
	{"far_blocks", "a block lies 4 GiB behind the others", []int64{5, 4099}, someFloats, true, 1, onHost, farBlocks},
	{"lives", "communicators and windows are made, used and closed, and nothing of them stays", []int64{33}, someFloats,
		false, 24, onHost, lives},
	{"mistakes", "a rank calls something else than the others: no call succeeds that needs it", []int64{4098}, someFloats,
		false, 1, onHost, mistakes},
	{"late_rank", "one rank at a time is late between the steps of every collective, empty ones among them",
		[]int64{9, 5003, 40009}, someFloats, true, 1, onHost, lateRank},
	{"late_large", "the same with messages of many pieces", []int64{400009}, someFloats, true, 1, onHost, lateLarge},
	{"run_ahead", "one rank is late in a long row of operations that only the others could get ahead in", []int64{3, 5003},
		someBytes, true, 1, onHost, runAhead},
	{"late_sequence", "mixed_sequence with delays on all ranks", []int64{1025, 65537}, someBytes, true, 40, onHost,
		delayed(mixedSequence)},
	{"late_groups", "group_exchange with delays on all ranks", []int64{5, 4099}, someBytes, true, 8, onHost,
		delayed(groupExchange)},
	{"late_barriers", "barrier_order with delays on all ranks", []int64{1}, someBytes, true, 40, onHost,
		delayed(barrierOrder)},
	{"late_communicators", "two_communicators with delays on all ranks", []int64{33, 16385}, someBytes, false, 8, onHost,
		delayed(twoCommunicators)},
	{"late_windows", "put_signal_wait with delays on all ranks", []int64{7, 4097}, someBytes, false, 8, onHost,
		delayed(putSignalWait)},
	{"stream_switch", "operations of one communicator follow each other on changing streams", []int64{1025, 65537},
		someBytes, true, 8, onDevices, streamSwitch},
	{"graph_hundred", "a graph of a hundred operations is replayed many times between eager calls", []int64{4097, 16385},
		someBytes, true, 400, onDevices, graphHundred},
	{"two_graphs", "two graphs of one communicator and eager calls in changing order", []int64{4097, 65537}, someBytes,
		true, 12, onDevices, twoGraphs},
	{"graph_lives", "graphs and their communicator end in either order, and nothing stays", []int64{4097, 16385},
		someBytes, false, 4, onDevices, graphLives},
}

// briefly says whether a scenario is one that small worlds alone have in a short run: what it finds is wrong in every
// world.
func (s *scenario) briefly() bool {
	return slices.Contains([]string{"page_end", "far_blocks", "lives", "mistakes"}, s.name)
}

func scenarioNamed(name string) *scenario {
	for i := range scenarioList {
		if scenarioList[i].name == name {
			return &scenarioList[i]
		}
	}
	return nil
}

// stage has the communicator and the memory that a scenario runs on.
type stage struct {
	rank   *rank
	comm   *host.Communicator
	c      *Case
	me     int
	random *rand.Rand // differs from rank to rank

	capturing cuda.Stream // what is called goes into this stream, and with it into a graph; 0: there is none
}

// with derives the case of one operation, the same on every rank.
func (s *stage) with(step int, collective plugin.Collective, count int64) *Case {
	return &Case{
		Collective: collective, DType: s.c.DType, Count: count, World: s.comm.World(), Family: Exact, Axis: s.c.Axis,
		Split: Ragged, Displ: NoDispl, Seed: hash(s.c.Seed, uint64(step)),
	}
}

// onDevice says whether an operation of a scenario has its counts on the device, as h
// decides where the transport takes them.
func (s *stage) onDevice(collective plugin.Collective, h uint64) bool {
	return s.rank.counts && collective == plugin.AllToAllV && h&1 != 0
}

// whole returns every collective that all ranks call together and that the transport
// can do. What it cannot do is skipped, by name, among the single operations.
func (s *stage) whole() []plugin.Collective {
	return slices.DeleteFunc(whole(), func(v plugin.Collective) bool { return !s.rank.serves[v] })
}

// someWhole is whole, for scenarios that show nothing without any.
func (s *stage) someWhole() ([]plugin.Collective, error) {
	list := s.whole()
	if len(list) == 0 {
		return nil, absent("no collective that all ranks call together")
	}
	return list, nil
}

// run does one operation on a communicator and checks it.
func (s *stage) run(step int, comm *host.Communicator, c *Case) error {
	if err := s.rank.single(comm, c); err != nil {
		return fmt.Errorf("step %d (%s): %w", step, c.Name(), err)
	}
	return nil
}

// prepare makes the buffers of several operations that are in flight together.
func (s *stage) prepare(comm *host.Communicator, cases []*Case) ([]*prepared, error) {
	layouts := make([]*layout, len(cases))
	room := int64(0)
	for i, c := range cases {
		layouts[i] = c.layoutOf(comm.Rank())
		room += layouts[i].room(c)
	}
	if err := s.rank.arena.reset(room); err != nil {
		return nil, err
	}
	list := make([]*prepared, len(cases))
	for i, c := range cases {
		var err error
		if list[i], err = s.rank.prepare(c, comm.Rank(), layouts[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// line returns the stream of the stage's axis: the default stream, and on host
// memory none, which are both 0.
func (s *stage) line() cuda.Stream {
	if s.capturing != 0 {
		return s.capturing
	}
	if _, kind := s.c.Axis.parts(); kind == ownStream {
		return s.rank.device.Streams[s.rank.place(s.comm)]
	}
	return 0
}

// settle waits for the stage's stream; on host memory there is nothing to wait
// for.
func (s *stage) settle(comm *host.Communicator) error {
	return comm.Synchronize(device.Stream(s.line()))
}

// push copies the buffers of several operations to the device, and pull copies
// them back, in the order of a stream.
func push(list []*prepared, s cuda.Stream) error {
	for _, p := range list {
		if err := p.each(func(b *buffer) error { return b.push(s) }); err != nil {
			return err
		}
	}
	return nil
}

func pull(list []*prepared, s cuda.Stream) error {
	for _, p := range list {
		if err := p.each(func(b *buffer) error { return b.pull(s) }); err != nil {
			return err
		}
	}
	return nil
}

func verifyAll(list []*prepared) error {
	var errs []error
	for i, p := range list {
		if err := p.verify(); err != nil {
			errs = append(errs, fmt.Errorf("operation %d (%s): %w", i, p.c.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// linger is dawdle for longer: others go on as far as they can meanwhile.
func (s *stage) linger() {
	for range 100 {
		s.dawdle()
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// dawdle makes ranks run at different speeds without a clock: about 0 to 40
// microseconds of arithmetic.
func (s *stage) dawdle() {
	h := s.random.Uint64()
	for range h % 16384 {
		h = mix(h)
	}
	if h == 0 {
		s.random = rand.New(rand.NewPCG(h, h)) // keeps the loop from being removed
	}
}
