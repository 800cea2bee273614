// Package ring is the plugin's side of command rings, through which plans hand work to
// code that is not a kernel: in the plugin's own process, or in the host's. A transport
// makes one Ring for each endpoint, publishes its region, posts commands in its plans,
// and serves them:
//
//	r, err := ring.New(0, config.World, staging)
//	r.Serve(func(ctx context.Context, c *ring.Command) error { … })
//
// A command works on the ring's staging memory, which the plan copies the caller's data
// to and from. Each runs on a goroutine of its own, so that one may wait for a peer that
// waits for another. Its error becomes the operation's, with its code, text and
// rank. shunt_ring.h is the same in C, and describes the memory.
package ring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// What shunt_ring.h says of the layout.
const (
	headerBytes  = 192
	commandBytes = 512
	textBytes    = 320
)

// header is shunt_ring.
type header struct {
	posted    atomic.Int64
	_         [56]byte
	doorbell  atomic.Uint32
	sleeping  atomic.Uint32
	_         [56]byte
	completed atomic.Uint32
	waiting   atomic.Uint32
	_         [56]byte
}

// command is shunt_ring_command.
type command struct {
	number    int64
	done      atomic.Int64
	operation int64
	args      [plugin.MaxCommandArgs]int64
	count     uint32
	status    int32
	peer      atomic.Int32
	_         uint32
	message   [textBytes]byte
	_         [24]byte
}

// Ring is the ring of one endpoint, and its staging memory.
type Ring struct {
	region  plugin.Region
	slots   int
	memory  []byte
	staging int64 // offset
	posted  int64 // commands taken
	ended   atomic.Int64

	ctx     context.Context
	cancel  context.CancelCauseFunc
	closed  atomic.Bool
	serving sync.WaitGroup
}

// New makes the ring of an endpoint in a world of the given size, with so many bytes of
// staging memory behind it. It holds two commands for each rank. id is the region's.
func New(id uint32, world int, staging int64) (*Ring, error) {
	if world < 1 || world > plugin.MaxWorld || staging < 0 {
		return nil, plugin.Errorf(plugin.InvalidArgument, "a ring cannot serve a world of %d with %d bytes of staging memory",
			world, staging)
	}
	r := &Ring{slots: 2 * world} // tracks that a group has at most
	r.staging = (headerBytes + int64(r.slots)*(commandBytes+4) + 4095) &^ 4095
	if staging > math.MaxInt64-r.staging {
		return nil, plugin.Errorf(plugin.InvalidArgument, "a ring cannot have %d bytes of staging memory", staging)
	}
	total := r.staging + staging
	fd, err := unix.MemfdCreate("shunt-ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, plugin.SystemError(err, "memory of a ring")
	}
	if err = unix.Ftruncate(fd, total); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err == nil {
		r.memory, err = unix.Mmap(fd, 0, int(total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, plugin.SystemError(err, "memory of a ring of %d bytes", total)
	}
	r.region = plugin.Region{
		ID: id, Role: plugin.RegionRoleLocal, Memory: plugin.MemoryKindHost, Bytes: total,
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: 1, Bytes: total, FD: fd},
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r, nil
}

// Region returns the region for the endpoint to publish.
func (r *Ring) Region() plugin.Region { return r.region }

// Memory returns the ring's address, and Slots the number of its commands, for C.
func (r *Ring) Memory() unsafe.Pointer { return unsafe.Pointer(&r.memory[0]) }

// Slots returns the number of commands that the ring holds.
func (r *Ring) Slots() int { return r.slots }

// Staging returns the staging memory.
func (r *Ring) Staging() []byte { return r.memory[r.staging:] }

// Post writes the step that posts a command and waits until it is done. Where the ring
// is full it first waits for another track's command to end.
func (r *Ring) Post(b *plugin.Builder, operation int64, args ...plugin.Reg) {
	zero := b.Const(0)
	b.Remote(b.Region(b.Const(int64(r.region.ID)), b.Rank(), zero), r.slots, operation, args...)
}

// Place returns a place in the staging memory, for the plan's copies, loads and stores.
func (r *Ring) Place(b *plugin.Builder, offset plugin.Reg) plugin.RefID {
	return b.Region(b.Const(int64(r.region.ID)), b.Rank(), b.Add(offset, b.Const(r.staging)))
}

// Command is a command that a plan has posted.
type Command struct {
	Operation int64
	Args      []int64
	at        *command
}

// WaitsFor says which rank the command waits for, which errors and reports of calls that
// take long then name; -1: none.
func (c *Command) WaitsFor(rank int) { c.at.peer.Store(int32(rank) + 1) }

// Serve starts serving commands with do, until Close. Its context ends with Abort and
// Close; commands that come later get one that has ended. An error may be a *plugin.Error
// whose Rank is the peer that it is about. A panic is an error too.
func (r *Ring) Serve(do func(ctx context.Context, c *Command) error) {
	r.serving.Add(1)
	go func() {
		defer r.serving.Done()
		for r.await() {
			c := r.take()
			// What a plan posts behind the end of a command sees what that one did. The
			// ring's own words say so to the CPUs; this says it to Go's race detector, which
			// does not look at shared memory.
			r.ended.Load()
			r.serving.Add(1)
			go func() {
				defer r.serving.Done()
				run(r.ctx, c, do, func(err error) { r.finish(c.at, err) })
			}()
		}
	}()
}

// run does a command and finishes it, also where do panics or ends its goroutine.
func run(ctx context.Context, c *Command, do func(context.Context, *Command) error, finish func(error)) {
	var err error
	returned := false
	defer func() {
		if p := recover(); p != nil {
			err = plugin.Errorf(plugin.Internal, "the transport panicked in command %d: %v", c.Operation, p)
		} else if !returned {
			err = plugin.Errorf(plugin.Internal, "the transport ended its goroutine in command %d (runtime.Goexit)", c.Operation)
		}
		finish(err)
	}()
	err = plugin.ErrorOf(do(ctx, c))
	returned = true
}

// Abort ends the context of all commands; the endpoint's Abort calls it.
func (r *Ring) Abort(reason string) {
	r.cancel(plugin.Errorf(plugin.Aborted, "aborted: %s", reason))
}

// Close ends serving, waits for the commands in progress, which must watch their
// context, and gives the memory back.
func (r *Ring) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.cancel(plugin.Errorf(plugin.Closed, "the endpoint is closed"))
	r.header().doorbell.Add(1)
	futex(&r.header().doorbell, futexWake, 1, nil)
	r.serving.Wait()
	return errors.Join(unix.Munmap(r.memory), unix.Close(r.region.Handle.FD))
}

func (r *Ring) header() *header { return (*header)(unsafe.Pointer(&r.memory[0])) }

// spins is the number of looks at a ring before its goroutine sleeps, which takes a
// thread some microseconds to wake from.
const spins = 200

// await waits for a command; false: the ring is closed.
func (r *Ring) await() bool {
	h := r.header()
	for i := 0; ; i++ {
		if r.closed.Load() {
			return false
		}
		if h.posted.Load() > r.posted {
			return true
		}
		if i < spins {
			runtime.Gosched()
			continue
		}
		i = 0
		bell := h.doorbell.Load()
		h.sleeping.Store(1)
		// Both sides store, then look, in one order that both agree on (Go's atomics
		// are sequentially consistent): either this look sees the command, or the host
		// sees that this side sleeps.
		if h.posted.Load() <= r.posted && !r.closed.Load() {
			futex(&h.doorbell, futexWait, bell, &unix.Timespec{Sec: 1})
		}
		h.sleeping.Store(0)
	}
}

// take returns the next command. Its fields were written before posted was raised.
func (r *Ring) take() *Command {
	queue := unsafe.Slice((*uint32)(unsafe.Pointer(&r.memory[headerBytes+r.slots*commandBytes])), r.slots)
	at := atomic.LoadUint32(&queue[r.posted%int64(r.slots)]) % uint32(r.slots)
	r.posted++
	c := (*command)(unsafe.Pointer(&r.memory[headerBytes+int(at)*commandBytes]))
	args := make([]int64, min(c.count, plugin.MaxCommandArgs))
	copy(args, c.args[:])
	return &Command{Operation: c.operation, Args: args, at: c}
}

// finish ends a command.
func (r *Ring) finish(c *command, err error) {
	c.status = int32(plugin.CodeOf(err))
	peer := c.peer.Load()
	if err != nil {
		var e *plugin.Error
		if errors.As(err, &e) && e.Rank >= 0 {
			peer = int32(e.Rank) + 1
		}
		n := copy(c.message[:textBytes-1], whole(fmt.Sprint(err), textBytes-1))
		c.message[n] = 0
	}
	c.peer.Store(peer)
	h := r.header()
	r.ended.Add(1)
	c.done.Store(c.number)
	h.completed.Add(1)
	if h.waiting.Load() != 0 {
		futex(&h.completed, futexWake, 1<<30, nil)
	}
}

// whole returns at most limit bytes of a text, without cutting the last character.
func whole(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(text[n]) {
			return text[:n]
		}
	}
	return text[:limit]
}

// Operations of futex(2), between processes.
const (
	futexWait = 0
	futexWake = 1
)

func futex(word *atomic.Uint32, operation int, value uint32, timeout *unix.Timespec) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(operation), uintptr(value),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
}
