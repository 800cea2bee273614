package executor

/*
#include "engine.h"
*/
import "C"

import (
	"fmt"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Failure says where a run stopped, so that the caller can word its own
// message. It is the cause of the plugin.Error that Run returns: find it with
// errors.As.
type Failure struct {
	Code   plugin.Code // Aborted, Timeout, InvalidArgument, OutOfMemory, Closed, Internal, or what a native step returned
	Launch int         // index in RunGroup's launches, or -1
	Track  int         // of the plan, or -1
	Step   int         // of the plan, or -1
	Rank   int         // that was waited for, or whose memory it was; -1: none
	Cause  plugin.Code // Aborted: the cause given to Abort; else OK
	Origin int         // Aborted: the rank given to Abort; else -1
	Reason string      // one clause without a full stop
	Said   string      // by the transport, about its command or native code; part of Reason
	Native bool        // the transport's own code failed: a command or native code
	Stuck  bool        // and has not returned: its endpoint cannot be used any more

	Deadline time.Duration // Timeout of a run: the one that it was given
}

// Error returns the reason and the place.
func (f *Failure) Error() string {
	text := f.Reason
	if f.Step >= 0 {
		text = fmt.Sprintf("step %d of track %d: %s", f.Step, f.Track, text)
	}
	if f.Launch > 0 {
		text = fmt.Sprintf("operation %d of the group, %s", f.Launch, text)
	}
	return text
}

// Unwrap makes the cause of an abort visible to errors.Is.
func (f *Failure) Unwrap() error {
	if f.Cause == plugin.OK {
		return nil
	}
	return f.Cause
}

// own words the failure of the transport's own code.
func (f *Failure) own(what string, status plugin.Code, said string) {
	err := plugin.NativeError(what, status, f.Rank, said)
	f.Native, f.Code, f.Reason, f.Said = true, err.Code, err.Message, plugin.Printable(said)
}

func (e *Engine) fail(f *Failure) error {
	return &plugin.Error{
		Code: f.Code, Rank: e.rank, Cause: f,
		Message: fmt.Sprintf("executor of rank %d: %s", e.rank, f.Error()),
	}
}

func (e *Engine) refuse(code plugin.Code, format string, args ...any) error {
	return &plugin.Error{
		Code: code, Rank: e.rank,
		Message: fmt.Sprintf("executor of rank %d: %s", e.rank, fmt.Sprintf(format, args...)),
	}
}

// failure makes an error of engine->failure. reason is the result of sx_run.
func (e *Engine) failure(reason C.uint32_t) error {
	switch reason {
	case C.SX_BUSY:
		return e.refuse(plugin.Internal, "two threads ran it at the same time")
	case C.SX_CLOSED:
		return e.refuse(plugin.Closed, "it is closed")
	}
	c := &e.c.failure
	f := &Failure{
		Code: plugin.Internal, Launch: int(c.launch), Track: int(c.track), Step: int(c.step), Rank: int(c.rank), Origin: -1,
	}
	x, y, z := int64(c.x), int64(c.y), int64(c.z)
	what := fmt.Sprintf("region %d of rank %d", int64(c.region), f.Rank)
	switch plugin.Space(c.space) {
	case plugin.SpaceSend:
		what = "the send memory"
	case plugin.SpaceRecv:
		what = "the receive memory"
	}
	waited := "for no particular rank"
	if f.Rank >= 0 {
		waited = fmt.Sprintf("for rank %d", f.Rank)
	}
	switch reason {
	case C.SX_ABORTED:
		f.Code, f.Cause, f.Origin = plugin.Aborted, plugin.Code(x), int(y)
		f.Reason = "aborted: " + f.Cause.String()
		if f.Origin >= 0 {
			f.Reason += fmt.Sprintf(" (rank %d)", f.Origin)
		}
		if f.Step >= 0 && f.Rank >= 0 {
			f.Reason += ", while waiting " + waited
		}
	case C.SX_TIMEOUT:
		f.Code, f.Deadline = plugin.Timeout, time.Duration(z)
		f.Reason = fmt.Sprintf("waited %v %s", time.Duration(y).Round(time.Millisecond), waited)
	case C.SX_BOUNDS:
		f.Reason = fmt.Sprintf("%d bytes at offset %d exceed %s of %d bytes", y, x, what, z)
	case C.SX_NULL:
		f.Reason = fmt.Sprintf("%s is null but %d bytes of it are needed", what, y)
	case C.SX_MISALIGNED:
		f.Reason = fmt.Sprintf("the word at offset %d of %s is not aligned to 8 bytes", x, what)
	case C.SX_NO_REGION:
		f.Reason = fmt.Sprintf("there is no region %d", int64(c.region))
	case C.SX_NO_RANK:
		f.Reason = fmt.Sprintf("there is no rank %d in a world of %d", x, e.world)
	case C.SX_LENGTH:
		f.Reason = fmt.Sprintf("a length of %d", x)
	case C.SX_PARTIAL:
		f.Reason = fmt.Sprintf("a scaled copy of %d bytes is not a whole number of elements of %d", x, y)
	case C.SX_NATIVE_FAILED:
		f.own("native function", plugin.Code(x), C.GoString(&e.c.message[0]))
	case C.SX_REMOTE_FAILED:
		f.own("command", plugin.Code(x), C.GoString(&e.c.message[0]))
	case C.SX_SLOTS:
		f.Reason = fmt.Sprintf("a ring of %d commands, want 1 to %d", x, C.SHUNT_RING_SLOTS)
	case C.SX_DONE:
		f.Native, f.Code = true, plugin.Protocol
		f.Reason = fmt.Sprintf("the transport has marked command %d as done where command %d stands in its ring", x, y)
	case C.SX_NATIVE_STUCK:
		f.Native, f.Stuck, f.Code = true, true, plugin.Timeout
		f.Reason = fmt.Sprintf("the transport's native function has not returned for %v; its thread is lost, and may still use the memory of the call", time.Duration(y).Round(100*time.Millisecond))
		if x == 1 {
			f.Reason = fmt.Sprintf("the transport's native function was told to stop and has not ended for %v; it may still use the memory of the call", time.Duration(y).Round(100*time.Millisecond))
		}
	case C.SX_MEMORY:
		f.Code = plugin.OutOfMemory
		f.Reason = fmt.Sprintf("cannot allocate memory for a launch of %d bytes", y)
	case C.SX_ARGUMENT:
		f.Code = plugin.InvalidArgument
		f.Reason = fmt.Sprintf("negative length of send (%d) or receive memory (%d)", x, y)
	case C.SX_DISAGREE:
		f.Code = plugin.Mismatch
		f.Reason = "another rank has called another collective"
	case C.SX_NO_PROCESS:
		f.Reason = fmt.Sprintf("the memory of rank %d cannot be read from here, and the plan needs it", f.Rank)
	case C.SX_PEER_READ:
		f.Code = plugin.System
		f.Reason = fmt.Sprintf("reading %d bytes of rank %d's memory at %#x: %v", y, f.Rank, uint64(c.region),
			syscall.Errno(x))
		switch syscall.Errno(x) {
		case syscall.ESRCH:
			f.Code = plugin.PeerDied
			f.Reason = fmt.Sprintf("rank %d's process has ended while its memory was read", f.Rank)
		case syscall.EFAULT:
			f.Reason += "; if it is mapped there, it is a device's: set SHUNT_PEER_READ=off"
		default:
			f.Reason += "; if the kernel forbids it, set SHUNT_PEER_READ=off"
		}
	case C.SX_UNMAPPED:
		if plugin.Space(c.space) == plugin.SpaceRecv {
			f.Code = plugin.InvalidArgument
		}
		f.Reason = fmt.Sprintf("%s of %d bytes at %#x is not all mapped for writing on rank %d", what, z, uint64(x), e.rank)
	default:
		f.Reason = fmt.Sprintf("unknown reason %d", reason)
	}
	return e.fail(f)
}
