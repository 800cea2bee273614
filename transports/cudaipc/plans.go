package cudaipc

import (
	"math/bits"
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/internal/parts"
)

// localName is the algorithm of a world of one.
const localName = "local"

// local reports whether a world of one can do a collective.
func local(c plugin.Collective) bool {
	switch c {
	case plugin.Send, plugin.Recv, plugin.Put, plugin.Get, plugin.Signal, plugin.Wait:
		return false
	}
	return true
}

// Prepare builds the plan of one algorithm: a kernel launch, or for a world of
// one a copy.
func (e *endpoint) Prepare(_ context, r plugin.Request, name string) (*plugin.Plan, error) {
	if r.World != e.world || r.Rank != e.rank {
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"the endpoint of rank %d of %d cannot prepare a plan for rank %d of %d", e.rank, e.world, r.Rank, r.World)
	}
	w := e.newWriter(r, name)
	if oneSided(r.Collective) && name == windowName && r.Memory == plugin.MemoryKindCuda {
		return w.windowPlan()
	}
	if r.World == 1 && name == localName && local(r.Collective) {
		return w.localPlan()
	}
	if r.Memory == plugin.MemoryKindCuda && slices.ContainsFunc(copied(r),
		func(a plugin.Algorithm) bool { return a.Name == name }) {
		return w.copyPlan(name)
	}
	a, ok := find(r.Collective, name, r.World)
	if !ok || r.World == 1 || r.Memory != plugin.MemoryKindCuda || (a.grid == blocks && !isHot(r.DType)) {
		return nil, plugin.Errorf(plugin.Unsupported, "there is no algorithm %q for %s in a world of %d", name, r.Collective,
			r.World)
	}
	w.Track(func() {
		switch bytes := w.Slot(plugin.SlotBytes); a.grid {
		case pairs:
			switch {
			case r.DeviceCounts:
				w.exchangeOnDevice(a)
			case r.Collective == plugin.AllGatherV && r.World > 2:
				w.gatherBlocks(a)
			default:
				w.exchange(a, w.messages())
			}
		case blocks:
			w.reduceBlocks(a)
		case roots:
			w.reduceToEach(nil)
		default:
			w.run(a, bytes, w.Send(w.Const(0)), w.arguments(bytes))
		}
	})
	return w.Plan()
}

// localPlan returns the plan of a world of one: a copy from send to recv, scaled by
// premul_sum.
func (w writer) localPlan() (*plugin.Plan, error) {
	r := w.r
	w.Track(func() {
		zero, bytes := w.Const(0), w.Slot(plugin.SlotBytes)
		switch {
		case r.DeviceCounts:
			a, _ := find(plugin.AllToAllV, "ll128", r.World)
			w.exchangeOnDevice(a)
		case r.Collective == plugin.Barrier:
			w.If(zero, func() { w.Copy(w.Recv(zero), w.Send(zero), zero) }) // nothing; a track is not empty
		case r.Collective.Reduces():
			// The kernel without peers; it also scales.
			a, _ := find(plugin.AllReduce, "one_shot_ll", r.World)
			args := w.arguments(bytes)
			if r.Collective == plugin.ReduceScatterV {
				args[argSend] = plugin.Address(w.Send(w.Mul(w.SendDispl(0), w.Lt(zero, bytes))))
			}
			blocks, threads := w.size(packets, bytes)
			w.launch(a, blocks, threads, args)
		default:
			from, to, count := zero, zero, bytes
			switch r.Collective {
			case plugin.AllToAllV:
				from, to, count = w.SendDispl(0), w.RecvDispl(0), w.SendCount(0)
			case plugin.AllGatherV:
				to = w.RecvDispl(0)
			case plugin.Gather, plugin.GatherV:
				to, count = w.RecvDispl(0), w.SendCount(0)
			case plugin.Scatter, plugin.ScatterV:
				from, count = w.SendDispl(0), w.RecvCount(0)
			}
			w.Copy(w.Recv(to), w.Send(from), count)
		}
	})
	return w.Plan()
}

// writer builds plans for one request.
type writer struct {
	*plugin.Builder
	r      plugin.Request
	most   int64      // blocks of a grid
	budget bool       // that is what the communicator's budget allows
	met    bool       // all ranks have begun the call
	plain  bool       // kernels wait until the one before them has ended
	uses   *parts.Set // of the region, by the kernels so far
}

// newWriter returns a writer of plans within the endpoint's budget. A block has a
// multiprocessor to itself.
func (e *endpoint) newWriter(r plugin.Request, name string) writer {
	w := writer{Builder: plugin.NewBuilder(r, name), r: r, most: maxBlocks, budget: e.maxSMs > 0, uses: new(parts.Set)}
	if w.budget {
		w.most = int64(min(e.maxSMs, maxBlocks))
	}
	return w
}

// Plan returns the plan, which names the parts of the region that its kernels use.
func (w writer) Plan() (*plugin.Plan, error) {
	for i := range uint32(parts.Count) {
		if *w.uses>>i&1 != 0 {
			w.Needs(firstDeferred + i)
		}
	}
	return w.Builder.Plan()
}

// Launch is like Builder.Launch.
func (w writer) Launch(image, kernel string, blocks, threads plugin.Reg, args ...plugin.KernelArg) {
	*w.uses |= parts.Of(kernel)
	w.Builder.Launch(image, kernel, blocks, threads, args...)
}

// LaunchGrid is like Builder.LaunchGrid.
func (w writer) LaunchGrid(image, kernel string, grid [2]plugin.Reg, threads plugin.Reg, args ...plugin.KernelArg) {
	*w.uses |= parts.Of(kernel)
	w.Builder.LaunchGrid(image, kernel, grid, threads, args...)
}

// LaunchDependent is like Builder.LaunchDependent, but within a budget, or plain, a kernel waits until the one before
// it has ended: beside it, it would take as many multiprocessors again.
func (w writer) LaunchDependent(image, kernel string, blocks, threads plugin.Reg, args ...plugin.KernelArg) {
	if w.budget || w.plain {
		w.Launch(image, kernel, blocks, threads, args...)
		return
	}
	*w.uses |= parts.Of(kernel)
	w.Builder.LaunchDependent(image, kernel, blocks, threads, args...)
}

// beside returns the largest grid of a kernel while another track has a kernel of one block.
func (w writer) beside() int64 {
	if w.budget {
		return max(w.most-1, 1)
	}
	return w.most
}

// names returns the image and the kernel of an algorithm. One that reduces is the dtype's
// own, in an image of the dtype's own.
func (w writer) names(a algorithm) (image, kernel string) {
	if a.typed {
		return a.image + "_" + w.r.DType.String(), a.kernel + "_" + w.r.DType.String()
	}
	return a.image, a.kernel
}

// launch launches an algorithm's kernel in a grid of so many blocks.
func (w writer) launch(a algorithm, blocks, threads plugin.Reg, args []plugin.KernelArg) {
	image, kernel := w.names(a)
	w.LaunchDependent(image, kernel, blocks, threads, args...)
}

// unitBytes is what a warp stores at once in LL128, kUnit of kernels/ll128.cuh.
const unitBytes = 480

// halfUpTo is the number of bytes, in all, up to which all_gather and reduce_scatter among more than
// two leave half of the blocks' multiprocessors to computation.
const halfUpTo = 160 * mib

// spreadFrom is the number of bytes from which on kernels that store over links are spread.
const spreadFrom = 16 * mib

// fewBlocks is the number of blocks that reach 98 % of the bandwidth between two GPUs.
// Fewer blocks leave more multiprocessors to computation beside them, and cost it less
// while they wait for a peer; see docs/decisions/0017-budget.md.
const fewBlocks = 16

// spread launches a kernel in a grid of two columns, of which one ends at once, so
// that the blocks of the other have a cluster of multiprocessors each; see
// kernels/device.cuh. Not as a dependent launch: a kernel that begins before this one
// has ended takes places between them.
//
// Within a budget kernels are not spread: the blocks that end at once need a place, too.
func (w writer) spread(image, kernel string, blocks, threads plugin.Reg, args []plugin.KernelArg) {
	if w.budget {
		w.LaunchDependent(image, kernel, blocks, threads, args...)
		return
	}
	w.LaunchGrid(image, kernel, [2]plugin.Reg{w.Const(2), blocks}, threads, args...)
}

// From an algorithm to its launch there are six steps, each of which may leave the choice between two kernels to the
// launch: run (a budget may prefer direct), runEither and runTwin (memory that is aligned or not), runAs (a gate before
// it), runAlone (the grid, and whether it is spread) and launch.

// run launches an algorithm's kernel for a message of so many bytes, which are sent from there, or within a
// budget the one that is better with so few blocks.
func (w writer) run(a algorithm, bytes plugin.Reg, send plugin.RefID, args []plugin.KernelArg) {
	direct, ok := find(a.collective, "direct", w.r.World)
	if !ok || w.most == maxBlocks || w.r.World > 2 || (a.name != "staged" && a.grid != units && a.grid != unitsPart) {
		w.runEither(a, bytes, send, args)
		return
	}
	from := int64(0)
	if a.name != "staged" {
		from = w.most * 48 * kib // where a unit a warp takes as long as the barriers of the other
	}
	long := w.Le(w.Const(from), bytes)
	w.If(long, func() { w.runEither(direct, bytes, send, args) })
	w.If(w.Eq(long, w.Const(0)), func() { w.runEither(a, bytes, send, args) })
}

// runEither launches the kernel for memory that is aligned or that for any, where an algorithm has both. Ranks need
// not launch the same one, but both in the same grid.
func (w writer) runEither(a algorithm, bytes plugin.Reg, send plugin.RefID, args []plugin.KernelArg) {
	if !a.hasAny(w.r.DType) {
		w.runAs(a, bytes, args)
		return
	}
	vector, none := w.Const(16), w.Const(0)
	misses := w.Mod(w.Address(send), vector)
	if a.collective != plugin.ReduceScatter || a.name != "staged" { // which stores results into this rank's memory alone
		misses = w.Max(misses, w.Mod(w.Address(w.Recv(none)), vector))
	}
	if a.collective == plugin.ReduceScatter {
		// A rank's block begins where the one before it ends. That is every rank's matter; so all have all blocks of the
		// grid, each of which moves less where it puts vectors together.
		odd := w.Mod(bytes, vector)
		w.If(odd, func() {
			all := a
			all.kernel, all.grid = a.kernel+anySuffix, full
			w.runAs(all, bytes, args)
		})
		w.If(w.Eq(odd, none), func() { w.runTwin(a, bytes, misses, args) })
		return
	}
	w.runTwin(a, bytes, misses, args)
}

// runTwin launches the kernel for memory that is aligned, or where misses is not 0 the one for any.
func (w writer) runTwin(a algorithm, bytes, misses plugin.Reg, args []plugin.KernelArg) {
	w.If(w.Eq(misses, w.Const(0)), func() { w.runAs(a, bytes, args) })
	a.kernel += anySuffix
	w.If(misses, func() { w.runAs(a, bytes, args) })
}

// runAlone launches an algorithm's kernel in its grid, without a gate.
func (w writer) runAlone(a algorithm, bytes plugin.Reg, args []plugin.KernelArg) {
	blocks, threads := w.size(a.grid, bytes)
	if !a.spreads() {
		w.launch(a, blocks, threads, args)
		return
	}
	long := w.Le(w.Const(spreadFrom), bytes)
	switch a.grid { // with its longest grid
	case some:
		long = w.Le(w.Const(2*spreadFrom), bytes)
	case half:
		long = w.Lt(w.Const(halfUpTo/int64(w.r.World)), bytes)
	}
	wish := w.Const(0)
	if a.grid == staging && !w.budget { // which is agreed already
		wish, args = w.wish(bytes, args)
		w.If(wish, func() { w.behind().launch(a, blocks, threads, args) })
	}
	w.If(w.Lt(wish, long), func() {
		image, kernel := w.names(a)
		w.spread(image, kernel, blocks, threads, args)
	})
	w.If(w.Eq(w.Max(wish, long), w.Const(0)), func() { w.launch(a, blocks, threads, args) })
}

// argSend, argRecv, argBytes and argRoot are the places of some arguments.
const (
	argSend  = 0
	argRecv  = 1
	argBytes = 2
	argOp    = 8 // and what else the kernel must know of the request
	argRoot  = 9

	commonArgs = 10 + maxRanks // of every kernel
)

// arguments returns the fields of shunt_kernel_args, in order.
func (w writer) arguments(bytes plugin.Reg) []plugin.KernelArg {
	zero := w.Const(0)
	what := int64(plugin.NewCallWord(w.r.Collective, w.r.Op, w.r.DType, 0, 0).What())
	op := int64(w.r.Op) | what<<whatShift
	if !w.r.NVLink {
		op |= 1 << fencedShift
	}
	ops := w.Const(op)
	if w.r.Collective.Rooted() {
		ops = w.Add(ops, w.Mul(w.Slot(plugin.SlotRoot), w.Const(1<<whatShift)))
	}
	args := []plugin.KernelArg{
		plugin.Address(w.Send(zero)),
		plugin.Address(w.Recv(zero)),
		plugin.Value(bytes, 8),
		plugin.Value(w.Slot(plugin.SlotScalar), 8),
		plugin.Address(w.Abort()),
		plugin.Value(zero, 8), // no deadline of its own: the host's watch aborts
		plugin.Value(w.Const(int64(w.r.Rank)), 4),
		plugin.Value(w.Const(int64(w.r.World)), 4),
		plugin.Value(ops, 4),
		plugin.Value(w.Slot(plugin.SlotRoot), 4),
	}
	for rank := range maxRanks {
		if rank < w.r.World {
			args = append(args, plugin.Address(w.Region(zero, w.Const(int64(rank)), zero)))
		} else {
			args = append(args, plugin.Value(zero, 8))
		}
	}
	return args
}

// clamp returns x, at least lo and at most hi.
func (w writer) clamp(x plugin.Reg, lo, hi int64) plugin.Reg {
	return w.Max(w.Min(x, w.Const(hi)), w.Const(lo))
}

// size computes blocks and threads at launch, for a message of so many bytes.
func (w writer) size(g grid, bytes plugin.Reg) (blocks, threads plugin.Reg) {
	world := int64(w.r.World)
	switch g {
	case packets:
		n := w.CeilDiv(bytes, w.Const(8))
		// 256 threads a block until the grid is full, then all there are.
		short := w.Le(n, w.Const(256*w.most))
		most := w.Select(short, w.Const(256), w.Const(maxThreads))
		threads = w.Mul(w.CeilDiv(w.Max(w.Min(n, most), w.Const(1)), w.Const(32)), w.Const(32))
		return w.clamp(w.CeilDiv(n, threads), 1, w.most), threads
	case units, unitsPart, unitsRooted:
		switch {
		case g == unitsPart, g == unitsRooted && world == 2:
			bytes = w.CeilDiv(bytes, w.Const(world))
		case g == unitsRooted:
			bytes = w.CeilDiv(bytes, w.Const(world-1))
		}
		n := w.CeilDiv(bytes, w.Const(unitBytes))
		// 4 warps a block until the grid is full, then 8, then 16.
		most := w.Select(w.Le(n, w.Const(4*w.most)), w.Const(4),
			w.Select(w.Le(n, w.Const(8*w.most)), w.Const(8), w.Const(16)))
		warps := w.clamp(w.Min(n, most), 1, 16)
		blocks = w.clamp(w.CeilDiv(n, warps), 1, w.most)
		if g == unitsRooted && world > 2 {
			// All the others store to the root at once: with half of the blocks its link carries more.
			blocks = w.Select(w.Le(n, w.Const(16*maxBlocks)), blocks, w.Const(min(w.most, maxBlocks/2)))
		}
		return blocks, w.Mul(warps, w.Const(32))
	case owners:
		// A warp for each unit of an owner, as broadcast_blocks of kernels/broadcast.cu deals them.
		n := w.Max(w.CeilDiv(w.CeilDiv(bytes, w.Const(unitBytes)), w.Const(world-1)), w.Const(1))
		each := w.Const(min(channelBlocks, maxBlocks/(world-1)))
		if world == 2 {
			each = w.Select(w.Le(n, w.Const(channelBlocks*maxThreads/32)), each, w.Const(2*channelBlocks))
		}
		each = w.Min(n, each)
		warps := w.Min(w.CeilDiv(n, each), w.Const(maxThreads/32))
		return w.Min(w.Mul(w.Const(world-1), each), w.Const(w.most)), w.Mul(warps, w.Const(32))
	case reducers:
		return w.Const(min(w.most, (world-1)*min(channelBlocks, maxBlocks/(world-1)))), w.Const(maxThreads)
	case few:
		return w.Const(min(fewBlocks, w.most)), w.Const(maxThreads)
	case some:
		return w.Select(w.Lt(bytes, w.Const(2*spreadFrom)), w.Const(min(fewBlocks, w.most)),
			w.Const(min(2*fewBlocks, w.most))), w.Const(maxThreads)
	case half:
		return w.Select(w.Le(bytes, w.Const(halfUpTo/world)), w.Const(min(maxBlocks/2, w.most)), w.Const(w.most)),
			w.Const(maxThreads)
	case staging:
		blocks = w.Select(w.Le(bytes, w.Const(128*mib)), w.Const(min(maxBlocks*3/4, w.most)), w.Const(w.most))
		return w.Select(w.Le(bytes, w.Const(32*mib)), w.Const(min(maxBlocks/2, w.most)), blocks), w.Const(maxThreads)
	case single:
		return w.Const(1), w.Const(32)
	}
	return w.Const(w.most), w.Const(maxThreads)
}

// longExchange returns the grid of the kernels of all_to_all_v that make offers: a power of
// two, equal on all ranks, as offers are made from block to block.
func (w writer) longExchange() int64 { return 1 << (bits.Len64(uint64(w.most)) - 1) }

// exchangeOnDevice launches the all_to_all_v that reads counts and displacements from
// device memory. How long messages may be follows from the capacities alone.
func (w writer) exchangeOnDevice(a algorithm) {
	sendBytes, recvBytes, unit := w.Slot(plugin.SlotSendBytes), w.Slot(plugin.SlotRecvBytes), w.Slot(plugin.SlotBytes)
	args := append(w.arguments(w.Const(0)), // then the fields of shunt_kernel_args_on_device
		plugin.Value(w.SendCount(0), 8), plugin.Value(w.SendDispl(0), 8), plugin.Value(w.RecvCount(0), 8),
		plugin.Value(w.RecvDispl(0), 8),
		plugin.Value(unit, 8), plugin.Value(w.Div(sendBytes, unit), 8), plugin.Value(w.Div(recvBytes, unit), 8))
	kernel := a.kernel + "_on_device"
	spread := w.Le(w.Const(spreadFrom*int64(w.r.World)), w.Max(sendBytes, recvBytes))
	blocks := w.Const(w.longExchange())
	w.If(spread, func() { w.spread(a.image, kernel, blocks, w.Const(maxThreads), args) })
	w.If(w.Eq(spread, w.Const(0)), func() { w.LaunchDependent(a.image, kernel, blocks, w.Const(maxThreads), args...) })
}

// messages are the registers of an exchange's counts and displacements.
type messages struct{ sendCount, sendDispl, recvCount, recvDispl [maxRanks]plugin.Reg }

// messages returns those that the collective means.
func (w writer) messages() (m messages) {
	zero, bytes, root := w.Const(0), w.Slot(plugin.SlotBytes), w.Slot(plugin.SlotRoot)
	for p := range maxRanks {
		m.sendCount[p], m.sendDispl[p], m.recvCount[p], m.recvDispl[p] = zero, zero, zero, zero
		if p >= w.r.World {
			continue
		}
		switch w.r.Collective {
		case plugin.Send:
			m.sendCount[p] = w.Select(w.Eq(root, w.Const(int64(p))), bytes, zero)
		case plugin.Recv:
			m.recvCount[p] = w.Select(w.Eq(root, w.Const(int64(p))), bytes, zero)
		case plugin.AllGatherV:
			m.sendCount[p] = bytes
			m.recvCount[p], m.recvDispl[p] = w.RecvCount(p), w.RecvDispl(p)
		default:
			m.sendCount[p], m.sendDispl[p] = w.SendCount(p), w.SendDispl(p)
			m.recvCount[p], m.recvDispl[p] = w.RecvCount(p), w.RecvDispl(p)
		}
	}
	return m
}

// exchange launches all_to_all_v: the long kernel if any pair's message is long.
func (w writer) exchange(a algorithm, m messages) {
	zero := w.Const(0)
	longest, own := zero, m.sendCount[w.r.Rank]
	for p := range w.r.World {
		if p != w.r.Rank {
			longest = w.Max(longest, w.Max(m.sendCount[p], m.recvCount[p]))
		}
	}
	args := w.arguments(w.Slot(plugin.SlotBytes))
	for _, array := range [][maxRanks]plugin.Reg{m.sendCount, m.sendDispl, m.recvCount, m.recvDispl} {
		for _, r := range array {
			args = append(args, plugin.Value(r, 8))
		}
	}
	// No more blocks and warps for a rank than the longest message has units. If they may be more than a kernel that makes
	// offers has within the budget, all ranks launch as many as that of a kernel that goes through them in turns: peers,
	// which may launch either, take turns in the same order.
	most, world := int64(min(channelBlocks, maxBlocks/w.r.World)), int64(w.r.World)
	n := w.clamp(w.CeilDiv(w.Max(longest, own), w.Const(unitBytes)), 1, most*maxThreads/32)
	each := w.Min(n, w.Const(most))
	blocks, kernel := w.Mul(w.Const(world), each), a.kernel
	if world*most > w.longExchange() {
		each, blocks, kernel = w.Const(most), w.Const(w.longExchange()), a.kernel+"_in_turns"
	}
	args[argRoot] = plugin.Value(each, 4)
	threads := w.Mul(w.CeilDiv(n, w.Const(most)), w.Const(32))
	long, spread := w.Le(w.Const(longMessage(w.r.World)), longest), w.Le(w.Const(spreadFrom), longest)
	all := w.Const(w.longExchange())
	w.If(spread, func() { w.spread(a.image, a.kernel+"_long", all, w.Const(maxThreads), args) })
	w.If(w.Lt(spread, long), func() { w.LaunchDependent(a.image, a.kernel+"_long", all, w.Const(maxThreads), args...) })
	w.If(w.Eq(long, zero), func() { w.LaunchDependent(a.image, kernel, blocks, threads, args...) })
}
