package rules

// Mutations break every rule that the host and the shm transport must keep, but
// for that about waits, which no edit of a line breaks alone. Those of plans are
// found by delays; tests/internal/fragile has more of them.
var Mutations = []Mutation{
	{
		Rule: 1, Why: "a receiver leaves out empty messages",
		File: "transports/shm/ring.go",
		Old: `			w.consume(r, next, source)
		})
		w.Store(counter, cut.end(before, next))`,
		New: `			w.consume(r, next, source)
		})
		w.Store(counter, w.Add(before, w.Min(n, w.Sub(cut.end(before, next), before))))`,
		Guard: Test{inRules, "TestRule01AlwaysSignalAlwaysWait"},
	},
	{
		Rule: 1, Why: "readers of all_gather_v do not wait for empty blocks",
		File: "transports/shm/allgather.go",
		Old: `						w.Wait(w.of(p, b.staged), b.epoch, p.reg)
						n := w.piece(count(p.known), offset, w.Const(capacity))`,
		New: `						n := w.piece(count(p.known), offset, w.Const(capacity))
						w.If(n, func() { w.Wait(w.of(p, b.staged), b.epoch, p.reg) })`,
		Guard: Test{inRules, "TestRule01AlwaysSignalAlwaysWait"},
	},
	{
		Rule: 3, Why: "a slot is signalled before it is written",
		File: "transports/shm/exchange.go",
		Old: `		publish(r)
		// The semaphore releases the data that was copied into the slot; a
		// peer's wait acquires it.
		w.SignalAll(w.own(slot), epoch)`,
		New: `		w.SignalAll(w.own(slot), epoch)
		publish(r)`,
		Guard: Test{inRules, "TestRule03DataBeforeFlag"},
	},
	{
		Rule: 13, Why: "a rank has one slot less than there are blocks in flight",
		File:  "transports/shm/blocks.go",
		Old:   `const blocksInFlight = 4`,
		New:   `const blocksInFlight = 3`,
		Guard: Test{inRules, "TestRule13ScratchIsReusedUnderBackPressure"},
	},
	{
		Rule: 2, Why: "an operation puts its counter back to where it began",
		File:  "transports/shm/exchange.go",
		Old:   `	w.Store(counter, w.Add(before, rounds.count))`,
		New:   `	w.Store(counter, before)`,
		Guard: Test{inRules, "TestRule02CountersOnlyGrow"},
	},
	{
		Rule: 4, Why: "launches of one batch share an argument block",
		File:  "host/executor/device_emit.go",
		Old:   `	begin := (len(b) + 15) &^ 15`,
		New:   `	begin := 0`,
		Guard: Test{inExecutor, "TestRule04ArgumentBlocksAreNotSharedByCallsInFlight"},
	},
	{
		Rule: 5, Why: "what is to be freed does not wait for graphs",
		File:  "host/executor/graph.go",
		Old:   `	d.held = append(d.held, held{registry.next, d.queued.Add(1), free})`,
		New:   `	d.held = append(d.held, held{0, d.queued.Add(1), free})`,
		Guard: Test{inExecutor, "TestRule05WhatAGraphCapturedStaysUntilItIsDestroyed"},
	},
	{
		Rule: 5, Why: "the memory of peers that graphs copy to is unmapped when it is deregistered",
		File: "host/internal/buffers/symmetric.go",
		Old: `	for _, m := range r.held {
		errs = append(errs, t.exec.Later(m.Close))`,
		New: `	for _, m := range r.held {
		errs = append(errs, m.Close())`,
		Guard: Test{inHost, "TestGraphsKeepSymmetricMemoryMapped"},
	},
	{
		Rule: 6, Why: "every eager operation asks the driver for captures first",
		File: "host/executor/device_run.go",
		Old: `	for {
		if err := d.build(ls, stream, same, c); err != nil {`,
		New: `	if _, err := d.driver.CaptureInfo(d.ctx, stream); err != nil {
		return err
	}
	for {
		if err := d.build(ls, stream, same, c); err != nil {`,
		Guard: Test{inExecutor, "TestRule06ReplaysBypassTheHost"},
	},
	{
		Rule: 6, Why: "commands are posted when the host submits, and not where they stand in the stream",
		File:  "host/executor/device_proxy.go",
		Old:   `Stream: r.stream, Handle: uint64(d.proxy.kernel)`,
		New:   `Stream: 0, Handle: uint64(d.proxy.kernel)`,
		Guard: Test{inExecutor, "TestRule06CommandsAreInTheOrderOfStreams"},
	},
	{
		Rule: 7, Why: "an operation waits for another stream before it looks for a capture",
		File: "host/executor/device_run.go",
		Old: `	for {
		if err := d.build(ls, stream, same, c); err != nil {`,
		New: `	if d.order.used && !same {
		if err := d.driver.Record(d.ctx, d.order.tail, stream); err != nil {
			return err
		}
	}
	for {
		if err := d.build(ls, stream, same, c); err != nil {`,
		Guard: Test{inExecutor, "TestRule07NothingButStreamWorkUnderCapture"},
	},
	{
		Rule: 10, Why: "whether counts are on the device is a rank's own affair",
		File:  "host/internal/diagnosis/state.go",
		Old:   `mine.DeviceCounts == theirs.DeviceCounts && `,
		New:   ``,
		Guard: Test{inHost, "TestCountsAreOnTheDeviceOnAllRanksOrNone"},
	},
	{
		Rule: 11, Why: "an operation does not wait for the one before it on another stream",
		File:  "host/executor/device_order.go",
		Old:   `	d.put(cuda.Work{Kind: cuda.WorkWait, Stream: s, Handle: uint64(o.tail)})`,
		New:   `	_ = o.tail`,
		Guard: Test{inExecutor, "TestRule11OperationsOfTwoStreamsAreOrdered"},
	},
	{
		Rule: 9, Why: "a rank withdraws its handles once it has everybody else's",
		File: "host/memory/mapall.go",
		Old:  `	world := x.share.group.World()`,
		New: `	world := x.share.group.World()
	defer x.share.withdraw(x.tag)`,
		Guard: Test{inMemory, "TestRule09BatchedHandleExchange"},
	},
	{
		Rule: 10, Why: "a rank that cannot open its endpoint keeps that to itself",
		File:  "host/init.go",
		Old:   `round.Agreement(c.Rank(), err),`,
		New:   `round.Agreement(c.Rank(), nil),`,
		Guard: Test{inRules, "TestRule10LocalFailureIsEverybodys"},
	},
	{
		Rule: 10, Why: "a rank that is in place by itself keeps that to itself",
		File:  "transports/cudaipc/copies.go",
		Old:   `w.Mul(inPlace, w.Const(plugin.InPlace))`,
		New:   `w.Mul(inPlace, w.Const(0))`,
		Guard: Test{inHost, "TestInPlaceOnOneRankAloneIsNamed"},
	},
	{
		Rule: 13, Why: "a writer reuses a slot without waiting for its readers",
		File:  "transports/shm/ring.go",
		Old:   `		consumed := w.Sub(number, half)`,
		New:   `		consumed := w.Sub(number, w.Const(1<<40))`,
		Guard: Test{inShm, "TestRule13CreditsBoundScratchReuse"},
	},
	{
		Rule: 14, Why: "an endpoint that fails to close panics",
		File: "host/internal/endpoints/endpoints.go",
		Old:  `		errs = append(errs, s.end(e))`,
		New: `		if err := s.end(e); err != nil {
			panic(err)
		}`,
		Guard: Test{inRules, "TestRule14TeardownNeverFailsUpward"},
	},
	{
		Rule: 15, Why: "a communicator that fails half-way is not released",
		File:  "host/init.go",
		Old:   `			err = errors.Join(err, c.Close())`,
		New:   `			err = errors.Join(err)`,
		Guard: Test{inRules, "TestRule15CleanupOnEveryPath"},
	},
	{
		Rule: 16, Why: "the two ends of a pair are served by blocks of different numbers",
		File:  "transports/cudaipc/kernels/all_to_all_v.cu",
		Old:   `peer((at / blocks - a.rank + a.world) % a.world)`,
		New:   `peer((a.rank + at / blocks) % a.world)`,
		Guard: Test{inEmulate, "TestRule16OneResidentBlockIsEnough"},
	},
	{
		Rule: 17, Why: "packets follow a wait that was given up",
		File:  "transports/cudaipc/kernels/exchange.cuh",
		Old:   `if (!ll_wait_all(a, e, flags, words)) break;`,
		New:   `(void)ll_wait_all(a, e, flags, words);`,
		Guard: Test{inEmulate, "TestRule17WhoHasGivenUpPublishesNothing"},
	},
	{
		Rule: 5, Why: "a registration that graphs replay with is ended when there are many",
		File:  "host/internal/buffers/engines_keep.go",
		Old:   `		case !r.leaving || r.captured():`,
		New:   `		case !r.leaving:`,
		Guard: Test{inHost, "TestGraphsKeepRegistrations"},
	},
	{
		Rule: 7, Why: "memory is registered with engines while a graph is captured",
		File:  "host/internal/buffers/engines.go",
		Old:   `err != nil || c.Status != cuda.CaptureNone {`,
		New:   `err != nil && c.Status != cuda.CaptureNone {`,
		Guard: Test{inHost, "TestNothingIsRegisteredUnderCapture"},
	},
	{
		Rule: 9, Why: "a registration is known by its address alone",
		File:  "host/internal/buffers/engines.go",
		Old:   `	return !t.gpu.freed(`,
		New:   `	return from <= to || t.gpu.freed(`,
		Guard: Test{inHost, "TestNewMemoryAtAnAddressIsRegisteredAnew"},
	},
	{
		Rule: 18, Why: "registrations of freed memory wait for the next call",
		File:  "host/internal/buffers/engines_keep.go",
		Old:   `			next = t.look(next)`,
		New:   `			next++`,
		Guard: Test{inHost, "TestMemoryIsRegisteredOnFirstUse"},
	},
}
