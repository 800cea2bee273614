package nccl

// #include "nccl.h"
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
)

// Staged is the transport where NCCL cannot reach the caller's memory: in a process of its own. Its plans copy that
// memory to staging memory of the endpoint, post a command that runs NCCL there, and copy the result back; what the
// staging memory does not hold at once goes in pieces.
type Staged struct {
	Transport
	Bytes int64 // of staging memory for each endpoint, equal on all ranks; 0: StagingBytes
}

const (
	// StagingBytes is the staging memory of an endpoint.
	StagingBytes = 64 << 20

	stagedName     = "staged"
	stagedMaxWorld = 64 // a plan has a copy for each rank in each piece
)

// Info describes the transport.
func (s Staged) Info() plugin.Info {
	info := s.Transport.Info()
	info.Features &^= plugin.FeatureRegistration
	info.MaxWorld = stagedMaxWorld
	info.Doc = "GPUs of one host or several through NVIDIA's NCCL in a process of its own"
	return info
}

// stagedCost is no estimate: it is more than that of anything else, so that it runs where nothing else can and where
// the user names it.
var stagedCost = cost{latency: 1e9, bandwidth: 1}

// Supports offers what the library of this process does, in messages of as many pieces as a plan may have.
func (s Staged) Supports(r plugin.Request) plugin.Support {
	support := s.Transport.Supports(r)
	for i := range support.Algorithms {
		a := &support.Algorithms[i]
		a.Name, a.MaxBytes = stagedName, longest(r.Collective, r.World, s.bytes())
		a.Latency, a.Bandwidth = stagedCost.latency, stagedCost.bandwidth
	}
	return support
}

func (s Staged) bytes() int64 {
	if s.Bytes > 0 {
		return s.Bytes
	}
	return StagingBytes
}

// staged is an endpoint whose plans post commands.
type staged struct {
	*endpoint
	ring    *ring.Ring
	staging cuda.Mapping
	regions []plugin.Region
	bytes   int64

	plansMu sync.Mutex // commands run beside Prepare
	plans   []stagedPlan
	counts  []int64 // of the operation in progress: all that each rank gets, and sends, in bytes
}

// stagedPlan has the call that the commands of one plan run.
type stagedPlan struct {
	call       *C.nl_call
	collective plugin.Collective
	piece      int64
}

// Open makes an endpoint with its ring and its staging memory.
func (s Staged) Open(_ context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	if c.World > stagedMaxWorld {
		return nil, plugin.Errorf(plugin.Unsupported, "nccl: in a process of its own it serves %d ranks at most, the world has %d",
			stagedMaxWorld, c.World)
	}
	if least := 2 * int64(max(c.World, 1)) * alignment; s.bytes() < least {
		return nil, plugin.Errorf(plugin.InvalidArgument, "nccl: %d bytes of staging memory for a world of %d, want at least %d",
			s.bytes(), c.World, least)
	}
	base, err := s.open(c)
	if err != nil {
		return nil, err
	}
	if base.registers {
		slog.Warn(RegisterVariable + " is on, but in a process of its own NCCL does not reach the memory of the caller, so none is registered")
	}
	e := &staged{endpoint: base, bytes: s.bytes(), counts: make([]int64, 2*c.World)}
	if err := e.stage(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.ring.Serve(e.do)
	return e, nil
}

// Regions of an endpoint.
const (
	stagingRegion = iota
	ringRegion
)

// stage makes the ring and the staging memory.
func (e *staged) stage() error {
	var err error
	if e.ring, err = ring.New(ringRegion, e.config.World, 0); err != nil {
		return err
	}
	m, err := e.driver.CreateMemory(e.ctx, e.config.Device, e.bytes)
	if err != nil {
		return err
	}
	e.staging = m
	if err = e.driver.Set(e.ctx, m.Address, 0, m.Bytes, e.stream); err == nil {
		err = e.driver.SynchronizeStream(e.ctx, e.stream)
	}
	if err != nil {
		return err
	}
	fd, err := e.driver.ExportMemory(e.ctx, m.Handle)
	if err != nil {
		return err
	}
	e.regions = []plugin.Region{{
		ID: stagingRegion, Role: plugin.RegionRoleLocal, Memory: plugin.MemoryKindCuda, Bytes: e.bytes,
		Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: rand.Uint64() | 1, Bytes: m.Bytes, FD: fd},
	}, e.ring.Region()}
	return nil
}

// Regions are the staging memory and the ring.
func (e *staged) Regions() []plugin.Region { return e.regions }

// Publish is like that of the transport in the rank's process, and says that this one is another.
func (e *staged) Publish(ctx context.Context, x plugin.Exchange) ([]byte, error) {
	if x.Algorithm == "" {
		return fmt.Appendf(nil, "%s in a process of its own with %d bytes of staging memory", e.library, e.bytes), nil
	}
	return e.endpoint.Publish(ctx, x)
}

// Prepare writes a plan that copies, posts commands and copies back.
func (e *staged) Prepare(_ context.Context, r plugin.Request, algorithm string) (*plugin.Plan, error) {
	call, err := e.newCall(r, algorithm, stagedName)
	if err != nil {
		return nil, err
	}
	e.plansMu.Lock()
	e.plans = append(e.plans, stagedPlan{call, r.Collective, pieceOf(r.Collective, r.World, e.bytes)})
	number := len(e.plans)
	e.plansMu.Unlock()
	return writeStaged(e.ring, r, algorithm, int64(number), e.bytes)
}

// do runs a command: 0 says what the operation moves in all, any other number is that of a plan and runs one piece.
func (e *staged) do(ctx context.Context, c *ring.Command) error {
	e.plansMu.Lock()
	if c.Operation == opCounts {
		defer e.plansMu.Unlock()
		if len(c.Args) < 1 || c.Args[0] < 0 || c.Args[0] > int64(len(e.counts)-(len(c.Args)-1)) {
			return plugin.Errorf(plugin.Protocol, "nccl: a command has %d counts from %v on, in a world of %d", len(c.Args)-1, c.Args,
				e.config.World)
		}
		copy(e.counts[c.Args[0]:], c.Args[1:])
		return nil
	}
	if c.Operation < 1 || c.Operation > int64(len(e.plans)) || len(c.Args) != pieceArgs {
		e.plansMu.Unlock()
		return plugin.Errorf(plugin.Protocol, "nccl: there is no command %d with %d arguments", c.Operation, len(c.Args))
	}
	plan := e.plans[c.Operation-1]
	if c.Args[0] < 0 || c.Args[0] > plan.piece || c.Args[1] < 0 || c.Args[1] > math.MaxInt64/plan.piece {
		e.plansMu.Unlock()
		return plugin.Errorf(plugin.Protocol, "nccl: piece %d of %s has %d bytes, want at most %d", c.Args[1], plan.collective,
			c.Args[0], plan.piece)
	}
	registers, send, recv := e.place(plan, piece{c.Args[0], c.Args[1], c.Args[2], c.Args[3]})
	e.plansMu.Unlock()
	if peer := e.waitsFor(plan.collective, c.Args[2]); peer >= 0 {
		c.WaitsFor(peer)
	}
	// What NCCL does ends with the command: what it would write to later may have another use by then.
	stop := context.AfterFunc(ctx, func() { e.endpoint.Abort("") })
	defer func() {
		if !stop() { // then it may come later than Close
			e.endpoint.Abort("")
		}
	}()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	work := cuda.Work{Handle: uint64(uintptr(C.nl_run_function())), Bytes: uint64(uintptr(unsafe.Pointer(plan.call))),
		From: send, To: recv}
	if err := e.submit(registers, work); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return plugin.Errorf(plugin.CodeOf(err), "nccl: %s: %w", plan.collective, err)
	}
	return e.finish(ctx, plan.collective.String())
}

// waitsFor returns the one rank that an operation waits for, or -1.
func (e *staged) waitsFor(c plugin.Collective, root int64) int {
	switch {
	case c == plugin.Send || c == plugin.Recv:
		return int(root)
	case e.config.World == 2:
		return 1 - e.config.Rank
	}
	return -1
}

// place returns the registers of a piece, and where NCCL reads and writes it.
func (e *staged) place(plan stagedPlan, p piece) (registers []byte, send, recv cuda.Ptr) {
	world, rank := e.config.World, int64(e.config.Rank)
	values := make([]int64, plugin.SlotCountOf(world))
	values[plugin.SlotBytes], values[plugin.SlotCount] = p.bytes, p.bytes/int64(plan.call.element)
	values[plugin.SlotRoot], values[plugin.SlotScalar] = p.root, p.scalar
	now := func(i int) int64 { return max(min(e.counts[i]-p.number*plan.piece, plan.piece), 0) }
	send, recv = e.staging.Address, e.staging.Address
	switch kindOf(plan.collective) {
	case gathers:
		send += cuda.Ptr(rank * p.bytes)
	case scatters:
		recv += cuda.Ptr(rank * p.bytes)
	case gathersBlocks:
		send += cuda.Ptr(rank * plan.piece)
		for r := range world {
			values[plugin.SlotRecvCount(world, r)], values[plugin.SlotRecvDispl(world, r)] = now(r), int64(r)*plan.piece
		}
	case scattersBlocks:
		recv += cuda.Ptr(rank * plan.piece)
		for r := range world {
			values[plugin.SlotSendCount(world, r)], values[plugin.SlotSendDispl(world, r)] = now(r), int64(r)*plan.piece
		}
	case exchanges:
		recv += cuda.Ptr(int64(world) * plan.piece)
		for r := range world {
			values[plugin.SlotSendCount(world, r)], values[plugin.SlotSendDispl(world, r)] = now(r), int64(r)*plan.piece
			values[plugin.SlotRecvCount(world, r)], values[plugin.SlotRecvDispl(world, r)] = now(world+r), int64(r)*plan.piece
		}
	}
	for _, v := range values {
		registers = binary.NativeEndian.AppendUint64(registers, uint64(v))
	}
	return registers, send, recv
}

// How long a command looks for its end without a pause, and the pause then. CUDA has no call that waits for a stream
// and that an abort ends.
const (
	looksFor   = 200 * time.Microsecond
	looksEvery = 50 * time.Microsecond
)

// finish waits for what was put into the stream, or for NCCL's failure.
func (e *staged) finish(ctx context.Context, doing string) error {
	begun := time.Now()
	var pause *time.Timer
	for {
		done, err := e.driver.StreamDone(e.ctx, e.stream)
		if err == nil {
			err = e.look(doing)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case e.isAborted(): // the stream may be empty because of it
			return plugin.Errorf(plugin.Aborted, "nccl: the communicator was aborted")
		case done:
			return nil
		case time.Since(begun) < looksFor:
			continue
		}
		if pause == nil {
			pause = time.NewTimer(looksEvery)
			defer pause.Stop()
		} else {
			pause.Reset(looksEvery)
		}
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// Abort ends commands, and what NCCL does for them.
func (e *staged) Abort(reason string) {
	e.ring.Abort(reason)
	e.endpoint.Abort(reason)
}

// Close ends commands, then destroys the communicator of NCCL and frees the staging memory.
func (e *staged) Close() error {
	return e.end(func() error {
		var errs []error
		if e.ring != nil {
			errs = append(errs, e.ring.Close())
		}
		return errors.Join(append(errs, e.release(e.unstage))...)
	})
}

// unstage gives the staging memory back, when nothing works on it any more.
func (e *staged) unstage() error {
	if e.staging.Bytes == 0 {
		return nil
	}
	err := e.driver.SynchronizeStream(e.ctx, e.stream)
	if len(e.regions) > 0 {
		err = errors.Join(err, unix.Close(e.regions[stagingRegion].Handle.FD))
	}
	return errors.Join(err, e.driver.Unmap(e.ctx, e.staging))
}
