// Package probe is a small transport for the carriers' tests: memfd regions,
// buffers, one plan, and misbehaviour on request through the options an
// endpoint is opened with. It moves no data of its own; nothing outside tests
// may use it.
package probe

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// Algorithm is the only algorithm that the probe has plans for.
const Algorithm = "one_shot"

// ScratchBytes is the size of the scratch region.
const ScratchBytes = 1 << 16

// Pattern is the byte that fills the first page of the private region, so that
// a test can tell that a descriptor is the right one.
const Pattern = 0xA5

// Options of OpenConfig that make an endpoint misbehave, each with a value.
const (
	OptionFail  = "fail"  // open fails with this message, code OutOfMemory, rank 3
	OptionSMs   = "sms"   // open fails with the budget that it was given
	OptionPanic = "panic" // open panics with this message
	OptionHang  = "hang"  // open waits until its context ends
	OptionNil   = "nil"   // open returns neither an endpoint nor an error: "none", or the nil pointer of an "endpoint"
	// prepare returns a broken plan: "steps", "index", "other", "native", "nil", "many"; with "here"
	// PlanHere's; with "error" a nil pointer as an error
	OptionPlan = "plan"
	// allocate returns a buffer of another "id" or "role", or one that is too "short"
	OptionBuffer = "buffer"
	OptionClose  = "close" // close fails with this message
	// prepare wedges the whole process: by SIGSTOP, or with "sleep" or "spin" by a thread that holds the scheduler
	OptionWedge = "wedge"
	OptionCrash = "crash" // prepare dereferences null
	OptionImage = "image" // images has as many bytes
	OptionBytes = "bytes" // publish returns as many bytes
	OptionWait  = "wait"  // connect waits until its context ends
	OptionFD    = "fd"    // open returns a region larger than its memfd
	OptionTwice = "twice" // open returns a region twice
	// register fails: "refused" for this memory, "never" for all
	OptionRegister = "register"
)

// Transport is the probe. Tests use its zero value.
type Transport struct{}

// Info describes the probe.
func (Transport) Info() plugin.Info {
	return plugin.Info{
		Name: "probe", Version: "1.2.3", Doc: "a transport for tests",
		Features: plugin.FeatureMemory | plugin.FeaturePlans | plugin.FeatureBuffers | plugin.FeatureExchange |
			plugin.FeatureRegistration,
		Memory: []plugin.MemoryKind{plugin.MemoryKindHost}, MaxWorld: 1000,
	}
}

// Supports offers all_reduce, broadcast where ranks can read each other's memory,
// all_gather where receive memory is symmetric, and all_to_all_v where counts are on the
// device. In each of a few worlds that no other test uses it returns a different hostile
// reply.
func (Transport) Supports(r plugin.Request) plugin.Support {
	switch {
	case r.World == 1001:
		return plugin.Support{Algorithms: []plugin.Algorithm{{Name: Algorithm, Latency: math.NaN(), Bandwidth: 1}}}
	case r.World == 1002:
		return plugin.Support{Reason: strings.Repeat("x", 1<<16)}
	case r.World == 1003:
		return plugin.Support{Algorithms: make([]plugin.Algorithm, 1000)}
	case r.World == 1004:
		panic("supports panics")
	case r.World == 1005: // names that differ where a C array ends
		return plugin.Support{Algorithms: []plugin.Algorithm{
			{Name: strings.Repeat("a", plugin.MaxName-1) + "b", Latency: 1, Bandwidth: 1},
			{Name: strings.Repeat("a", plugin.MaxName-1) + "c", Latency: 1, Bandwidth: 1}}}
	case r.World == 1006: // the longest name, and a reason whose last character a C array would cut in two
		return plugin.Support{Reason: strings.Repeat("é", plugin.MaxText/2), Algorithms: []plugin.Algorithm{
			{Name: strings.Repeat("a", plugin.MaxName-1), Latency: 1, Bandwidth: 1}}}
	case r.Collective == plugin.Broadcast && r.PeerRead:
		return plugin.Support{Algorithms: []plugin.Algorithm{{Name: "peer", Latency: 1, Bandwidth: 1}}}
	case r.Collective == plugin.AllGather && r.Symmetric:
		return plugin.Support{Algorithms: []plugin.Algorithm{{Name: "symmetric", Latency: 1, Bandwidth: 1}}}
	case r.Collective == plugin.AllToAllV && r.DeviceCounts:
		return plugin.Support{Algorithms: []plugin.Algorithm{{Name: "counted", Latency: 1, Bandwidth: 1}}}
	case r.Collective != plugin.AllReduce:
		return plugin.Support{Reason: "the probe only reduces"}
	}
	return plugin.Support{Algorithms: []plugin.Algorithm{
		{Name: Algorithm, MaxBytes: 4096, Latency: 1.5, Bandwidth: 1000},
		{Name: "other", MinBytes: 4096, Latency: 9, Bandwidth: float64(r.World) * 4000,
			Numerics: plugin.NumericsOwn},
	}}
}

// Open makes an endpoint with a private and a scratch region.
func (Transport) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	if m, ok := c.Options[OptionFail]; ok {
		return nil, &plugin.Error{Code: plugin.OutOfMemory, Rank: 3, Message: m}
	}
	if _, ok := c.Options[OptionSMs]; ok {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%d multiprocessors", c.MaxSMs)
	}
	if m, ok := c.Options[OptionPanic]; ok {
		panic(m)
	}
	if _, ok := c.Options[OptionHang]; ok {
		<-ctx.Done()
		return nil, plugin.Errorf(plugin.CodeOf(ctx.Err()), "open was given up: %w", ctx.Err())
	}
	switch c.Options[OptionNil] {
	case "none":
		return nil, nil
	case "endpoint":
		return (*endpoint)(nil), nil
	}
	e := &endpoint{config: c}
	for id, role := range []plugin.RegionRole{plugin.RegionRolePrivate, plugin.RegionRoleScratch} {
		r, err := memory(uint32(id), role, ScratchBytes)
		if err != nil {
			e.Close()
			return nil, err
		}
		e.regions = append(e.regions, r)
	}
	page := make([]byte, 4096)
	for i := range page {
		page[i] = Pattern
	}
	if _, err := unix.Pwrite(e.regions[0].Handle.FD, page, 0); err != nil {
		e.Close()
		return nil, plugin.Errorf(plugin.System, "write to memfd: %w", err)
	}
	if v, ok := c.Options[OptionFD]; ok {
		n, _ := strconv.ParseInt(v, 10, 64)
		e.regions[1].Bytes, e.regions[1].Handle.Bytes = n, n
	}
	return e, nil
}

type endpoint struct {
	config  plugin.OpenConfig
	regions []plugin.Region
	buffers []plugin.Region
	known   map[uint64]bool // keys of registrations
	aborted atomic.Pointer[string]
}

func memory(id uint32, role plugin.RegionRole, bytes int64) (plugin.Region, error) {
	fd, err := unix.MemfdCreate("shunt-probe", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return plugin.Region{}, plugin.SystemError(err, "memfd_create")
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		unix.Close(fd)
		return plugin.Region{}, plugin.SystemError(err, "ftruncate to %d bytes", bytes)
	}
	return plugin.Region{
		ID: id, Role: role, Memory: plugin.MemoryKindHost, Bytes: bytes,
		Handle: plugin.Handle{
			Kind: plugin.HandleKindMemfd, Generation: uint64(id) + 1, Bytes: bytes, FD: fd, Data: []byte("probe"),
		},
	}, nil
}

func (e *endpoint) Regions() []plugin.Region {
	if _, ok := e.config.Options[OptionTwice]; ok {
		return []plugin.Region{e.regions[0], e.regions[0]}
	}
	return e.regions
}

func (e *endpoint) Images() []plugin.Image {
	data := []byte("// no code")
	if n, err := strconv.Atoi(e.config.Options[OptionImage]); err == nil {
		data = make([]byte, n)
	}
	return []plugin.Image{{Name: "probe.ptx", Data: data}}
}

func (e *endpoint) Allocate(_ context.Context, id uint32, bytes int64) (plugin.Region, error) {
	bytes = (bytes + 4095) &^ 4095
	r, err := memory(id, plugin.RegionRoleBuffer, bytes)
	if err == nil {
		e.buffers = append(e.buffers, r)
	}
	switch e.config.Options[OptionBuffer] {
	case "id":
		r.ID++
	case "role":
		r.Role = plugin.RegionRoleScratch
	case "short":
		r.Bytes = 1
	}
	return r, err
}

func (e *endpoint) Free(_ context.Context, id uint32) error {
	for i, r := range e.buffers {
		if r.ID == id {
			e.buffers = append(e.buffers[:i], e.buffers[i+1:]...)
			return unix.Close(r.Handle.FD)
		}
	}
	return plugin.Errorf(plugin.InvalidArgument, "buffer %d does not exist", id)
}

func (e *endpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	if how, ok := e.config.Options[OptionWedge]; ok {
		switch how {
		case "sleep", "spin":
			holdScheduler(how == "spin")
		default:
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		<-ctx.Done() // the reply never comes
	}
	if _, ok := e.config.Options[OptionCrash]; ok {
		var p *plugin.Plan
		go func() { p.Temps = 1 }()
		select {}
	}
	if algorithm != Algorithm {
		return nil, plugin.Errorf(plugin.Unsupported, "algorithm %q is not the probe's", algorithm)
	}
	p, err := Plan(req)
	if err != nil {
		return nil, err
	}
	switch e.config.Options[OptionPlan] {
	case "steps":
		p.Steps = make([]plugin.Step, plugin.MaxSteps+1)
	case "index":
		p.Steps[len(p.Steps)-1].A = 60000
	case "other":
		p.Algorithm = "another"
	case "native":
		p.Natives = []plugin.Native{{Function: 1}}
	case "many":
		p.Temps = 1 << 20
	case "nil":
		return nil, nil
	case "error":
		var none *plugin.Error
		return nil, none
	case "here":
		return PlanHere(req)
	}
	return p, nil
}

// Publish returns what Published does, or as many bytes as OptionBytes says.
func (e *endpoint) Publish(_ context.Context, x plugin.Exchange) ([]byte, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	if n, err := strconv.Atoi(e.config.Options[OptionBytes]); err == nil {
		return make([]byte, n), nil
	}
	return Published(x, e.config.Rank), nil
}

// Abort makes Publish and Check fail with the reason.
func (e *endpoint) Abort(reason string) { e.aborted.Store(&reason) }

// Check blames rank 2 for what Abort was told.
func (e *endpoint) Check() error {
	if reason := e.aborted.Load(); reason != nil {
		return &plugin.Error{Code: plugin.Aborted, Rank: 2, Message: *reason}
	}
	return nil
}

// Published returns what the probe of a rank publishes: a zero byte and the request, word
// for word, so that a carrier that loses anything is found. Rank 2 publishes nothing.
func Published(x plugin.Exchange, rank int) []byte {
	if rank == 2 {
		return nil
	}
	return fmt.Appendf(nil, "\x00%d: %+v", rank, x)
}

// Connect fails unless it gets what the probes of all ranks publish, in time.
func (e *endpoint) Connect(ctx context.Context, x plugin.Exchange, published [][]byte) error {
	if len(published) != e.config.World {
		return plugin.Errorf(plugin.Protocol, "%d ranks have published, want %d", len(published), e.config.World)
	}
	for rank, b := range published {
		if want := Published(x, rank); !bytes.Equal(b, want) {
			return plugin.Errorf(plugin.Protocol, "rank %d has published %q, want %q", rank, b, want)
		}
	}
	if _, bounded := ctx.Deadline(); !bounded {
		return plugin.Errorf(plugin.Protocol, "connect has no deadline")
	}
	if _, ok := e.config.Options[OptionWait]; ok {
		<-ctx.Done()
		return &plugin.Error{Code: plugin.CodeOf(ctx.Err()), Rank: 3, Message: "connect waited for rank 3"}
	}
	return nil
}

// Register returns Key of the memory, or fails as OptionRegister says.
func (e *endpoint) Register(_ context.Context, m plugin.Memory) (uint64, error) {
	switch e.config.Options[OptionRegister] {
	case "refused":
		return 0, plugin.Errorf(plugin.OutOfMemory, "no pages are left")
	case "never":
		return 0, plugin.Errorf(plugin.Unsupported, "it has no engine")
	}
	if e.known == nil {
		e.known = map[uint64]bool{}
	}
	e.known[Key(m)] = true
	return Key(m), nil
}

// Key is made of every field, so that a carrier that loses one is found.
func Key(m plugin.Memory) uint64 {
	return m.Address*31 + uint64(m.Bytes)*37 + uint64(m.Kind)*41 + m.Generation*43
}

// Deregister fails for a key that is not known.
func (e *endpoint) Deregister(_ context.Context, key uint64) error {
	if !e.known[key] {
		return plugin.Errorf(plugin.InvalidArgument, "key %#x is of no registration", key)
	}
	delete(e.known, key)
	return nil
}

// holdScheduler lets no goroutine of the process run any more: the only
// processor of Go's scheduler is kept by a thread that no signal reaches, and
// that sleeps or spins.
func holdScheduler(spin bool) {
	runtime.LockOSThread()
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	runtime.GOMAXPROCS(1)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return
	}
	for {
		if !spin {
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // raw: unseen by the scheduler
		}
	}
}

func (e *endpoint) Close() error {
	for _, r := range append(e.regions, e.buffers...) {
		unix.Close(r.Handle.FD)
	}
	e.regions, e.buffers = nil, nil
	if m, ok := e.config.Options[OptionClose]; ok {
		return plugin.Errorf(plugin.System, "%s", m)
	}
	return nil
}

// Plan returns the probe's plan. It has every kind of step that a process can ship, so
// that a conversion that loses a field is found.
func Plan(req plugin.Request) (*plugin.Plan, error) {
	b := plugin.NewBuilder(req, Algorithm)
	b.Track(func() {
		zero := b.Const(0)
		me := b.Const(int64(req.Rank))
		word := b.Region(zero, me, b.Const(64))
		epoch := b.Add(b.Load(word), b.Const(1))
		b.Loop(b.Const(int64(req.World)), func(i plugin.Reg) {
			b.Copy(b.Region(b.Const(1), i, b.Mul(me, b.Const(4096))), b.SendScaled(zero), b.Slot(plugin.SlotBytes))
		})
		b.SignalAll(word, epoch)
		b.If(b.Lt(epoch, b.Const(-7)), func() { b.Wait(word, epoch, me) })
		b.Reduce(b.Recv(zero), b.Slot(plugin.SlotCount), b.Region(b.Const(1), me, zero),
			b.Region(b.Const(1), me, b.Const(4096)))
		b.Store(b.Region(zero, me, b.Const(128)), epoch)
	})
	b.Track(func() {
		b.Barrier(b.Region(b.Const(0), b.Const(0), b.Const(256)), b.Region(b.Const(0), b.Const(0), b.Const(320)))
	})
	return b.Plan()
}

// PlanHere is Plan with what a process cannot ship: a kernel and engine's functions. Every field of them has a value
// of its own; none of the functions exists.
func PlanHere(req plugin.Request) (*plugin.Plan, error) {
	p, err := Plan(req)
	if err != nil {
		return nil, err
	}
	p.Args = append(p.Args, plugin.Arg{Ref: 1, Value: plugin.None, Bytes: 8},
		plugin.Arg{Ref: plugin.None, Value: 2, Bytes: 4})
	p.Kernels = []plugin.Kernel{{Image: "probe.ptx", Name: "probe_kernel", Grid: [3]uint16{3, 4, 5},
		Block: [3]uint16{6, 7, 8}, Shared: 9, FirstArg: uint16(len(p.Args) - 2), CountArgs: 2}}
	p.Natives = []plugin.Native{{Function: 101, Context: 102}, {Start: 103, Poll: 104, Context: 105}}
	return p, nil
}
