package ring

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// host is the other side of a ring, by what shunt_ring.h says of the memory.
type host struct {
	t      *testing.T
	memory []byte
	slots  int
	posted int64
}

// Offsets in shunt_ring and shunt_ring_command.
const (
	doorbellAt, sleepingAt, completedAt, waitingAt = 64, 68, 128, 132

	doneAt, operationAt, argsAt, countAt, statusAt, peerAt, messageAt = 8, 16, 24, 152, 156, 160, 168
)

// open returns a ring and its host, in a mapping of the host's own.
func open(t *testing.T, world int, staging int64) (*Ring, *host) {
	t.Helper()
	r, err := New(7, world, staging)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	region := r.Region()
	memory, err := unix.Mmap(region.Handle.FD, 0, int(region.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(memory)) })
	return r, &host{t: t, memory: memory, slots: 2 * world}
}

func (h *host) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&h.memory[at])) }

func (h *host) command(slot int) int { return 192 + slot*512 }

// post has the plugin run a command: the queue names place for slot, and the command says that it has count arguments.
func (h *host) post(slot int, place, count uint32, operation int64, args ...int64) {
	c := h.command(slot)
	binary.NativeEndian.PutUint64(h.memory[c+operationAt:], uint64(operation))
	binary.NativeEndian.PutUint32(h.memory[c+countAt:], count)
	for i, v := range args {
		binary.NativeEndian.PutUint64(h.memory[c+argsAt+8*i:], uint64(v))
	}
	at := h.command(h.slots) + 4*int(h.posted%int64(h.slots))
	h.posted++
	binary.NativeEndian.PutUint64(h.memory[c:], uint64(h.posted))
	h.word(at).Store(place)
	(*atomic.Int64)(unsafe.Pointer(&h.memory[0])).Store(h.posted)
	if h.word(sleepingAt).Load() != 0 {
		h.word(doorbellAt).Add(1)
		h.futex(doorbellAt, futexWake, 1, nil)
	}
}

// awaitEnd sleeps until a command of a slot has ended, and fails where nothing wakes it.
func (h *host) awaitEnd(slot int) (status, peer int32, message []byte) {
	h.t.Helper()
	c := h.command(slot)
	number := binary.NativeEndian.Uint64(h.memory[c:])
	h.word(waitingAt).Store(1)
	for limit := time.Now().Add(time.Minute); ; {
		seen := h.word(completedAt).Load()
		if (*atomic.Uint64)(unsafe.Pointer(&h.memory[c+doneAt])).Load() == number {
			break
		}
		err := h.futex(completedAt, futexWait, seen, &unix.Timespec{Sec: 10})
		require.NotEqual(h.t, unix.ETIMEDOUT, err, "nothing woke the host")
		require.True(h.t, time.Now().Before(limit), "the command has not ended")
	}
	h.word(waitingAt).Store(0)
	return int32(binary.NativeEndian.Uint32(h.memory[c+statusAt:])), int32(h.word(c + peerAt).Load()),
		h.memory[c+messageAt:][:textBytes]
}

func (h *host) futex(at, operation int, value uint32, timeout *unix.Timespec) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&h.memory[at])), uintptr(operation), uintptr(value),
		uintptr(unsafe.Pointer(timeout)), 0, 0)
	return e
}

func TestNewRefusesWhatNoWorldHas(t *testing.T) {
	for _, test := range []struct {
		world   int
		staging int64
	}{{0, 0}, {-1, 0}, {plugin.MaxWorld + 1, 0}, {1, -1}, {1, math.MaxInt64}} {
		_, err := New(0, test.world, test.staging)
		require.ErrorIs(t, err, plugin.InvalidArgument, "%+v", test)
	}
	r, h := open(t, plugin.MaxWorld, 5000)
	require.Equal(t, 2*plugin.MaxWorld, r.Slots())
	require.Len(t, r.Staging(), 5000)
	require.Equal(t, unsafe.Pointer(&r.memory[0]), r.Memory())
	require.GreaterOrEqual(t, int(r.staging), h.command(h.slots)+4*h.slots, "the queue ends before the staging memory")
}

// What a limit explains has the code of limits, and a ring that fails leaves no descriptor behind.
func TestNewSaysWhichLimit(t *testing.T) {
	_, err := New(0, 1, 1<<60)
	require.ErrorIs(t, err, plugin.OutOfMemory)
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	_, err = New(0, 1, 0)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, plugin.OutOfMemory)
	require.ErrorContains(t, err, "too many open files")
	after, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.Len(t, after, len(list))
}

// A host that has mapped the region must not lose a part of it to the plugin: it would die of SIGBUS.
func TestTheMemoryKeepsItsSize(t *testing.T) {
	r, h := open(t, 1, 4096)
	for _, bytes := range []int64{0, r.Region().Bytes - 1, r.Region().Bytes + 1} {
		require.ErrorIs(t, unix.Ftruncate(r.Region().Handle.FD, bytes), unix.EPERM)
	}
	r.Staging()[4095] = 9
	require.Equal(t, byte(9), h.memory[len(h.memory)-1], "the host's mapping ends where the staging memory does")
}

func TestCloseGivesEverythingBackOnce(t *testing.T) {
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	before := descriptors()
	r, err := New(0, 1, 0)
	require.NoError(t, err)
	require.Equal(t, before+1, descriptors())
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	require.Equal(t, before, descriptors())
}

// A command that ends after the others still works on the memory, which is there until it returns.
func TestCloseWaitsForWhatRuns(t *testing.T) {
	r, err := New(0, 1, 4096)
	require.NoError(t, err)
	h := &host{t: t, memory: r.memory, slots: 2}
	begun, closed, causes := make(chan bool), make(chan error, 1), make(chan error, 1)
	early := make(chan error, 1)
	r.Serve(func(ctx context.Context, _ *Command) error {
		close(begun)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		select {
		case err := <-closed:
			early <- errors.Join(err, errors.New("Close returned while a command ran"))
		case <-time.After(100 * time.Millisecond): // nothing to wait for: as long as Close has to be wrong in
			r.Staging()[0] = 1
			early <- nil
		}
		return nil
	})
	h.post(0, 0, 0, 1)
	<-begun
	go func() { closed <- r.Close() }()
	require.NoError(t, <-early)
	require.NoError(t, <-closed)
	require.ErrorIs(t, <-causes, plugin.Closed)
}

// A command ends also where its goroutine does.
func TestGoexitEndsTheCommand(t *testing.T) {
	r, h := open(t, 1, 0)
	r.Serve(func(context.Context, *Command) error {
		runtime.Goexit()
		return nil
	})
	h.post(0, 0, 0, 6)
	status, _, message := h.awaitEnd(0)
	require.Equal(t, int32(plugin.Internal), status)
	require.Contains(t, string(message), "the transport ended its goroutine in command 6 (runtime.Goexit)")
}

// What a plugin reads of the memory is bounded, whatever a host with a mistake writes there.
func TestCountsAndPlacesOfTheHostAreBounded(t *testing.T) {
	r, h := open(t, 2, 0)
	taken := make(chan *Command, 1)
	r.Serve(func(_ context.Context, c *Command) error {
		taken <- c
		return nil
	})
	args := make([]int64, plugin.MaxCommandArgs)
	for i := range args {
		args[i] = int64(i) - 5
	}
	for i, test := range []struct {
		place, count uint32
		args         []int64
	}{
		{1, 0, nil}, {1, 3, args[:3]}, {1, plugin.MaxCommandArgs, args}, {1, plugin.MaxCommandArgs + 1, args},
		{1, 1 << 31, args}, {5, 1, args[:1]}, {1<<32 - 3, 1, args[:1]},
	} {
		h.post(1, test.place, test.count, int64(i), args...)
		c := <-taken
		require.Equal(t, int64(i), c.Operation)
		require.Equal(t, append([]int64{}, test.args...), c.Args, "%+v", test)
		status, _, _ := h.awaitEnd(1)
		require.Equal(t, int32(plugin.OK), status)
	}
}

// A text as long as the memory for it arrives whole. A longer one ends with its last whole character, and always with a
// zero, also where a longer one stood before.
func TestErrorTextsEndInsideTheirMemory(t *testing.T) {
	r, h := open(t, 1, 0)
	texts := make(chan string, 1)
	r.Serve(func(context.Context, *Command) error { return plugin.Errorf(plugin.System, "%s", <-texts) })
	const most = textBytes - 1
	for _, test := range []struct{ text, want string }{
		{strings.Repeat("x", most), strings.Repeat("x", most)},
		{strings.Repeat("x", most+1), strings.Repeat("x", most)},
		{strings.Repeat("é", most), strings.Repeat("é", most/2)},
		{strings.Repeat("x", most-1) + "🖧z", strings.Repeat("x", most-1)},
		{"short", "short"},
		{strings.Repeat("\x80", most+5), strings.Repeat("?", most)}, // no text at all
	} {
		texts <- test.text
		h.post(0, 0, 0, 1)
		status, peer, message := h.awaitEnd(0)
		require.Equal(t, int32(plugin.System), status)
		require.Zero(t, peer)
		got, _, ended := strings.Cut(string(message), "\x00")
		require.True(t, ended)
		require.Equal(t, test.want, got)
		require.Equal(t, utf8.ValidString(test.want), utf8.ValidString(got))
	}
}

// Where the error names no rank, the one that the command waited for stays; one that it names counts, 0 too.
func TestWhichRankAnErrorIsAbout(t *testing.T) {
	r, h := open(t, 4, 0)
	type end struct {
		waits int
		err   error
	}
	ends := make(chan end, 1)
	r.Serve(func(_ context.Context, c *Command) error {
		e := <-ends
		c.WaitsFor(e.waits)
		return e.err
	})
	for _, test := range []struct {
		end
		peer int32
	}{
		{end{-1, errors.New("plain")}, 0}, {end{3, errors.New("plain")}, 4}, {end{3, nil}, 4},
		{end{3, &plugin.Error{Code: plugin.PeerDied, Rank: 0, Message: "m"}}, 1},
		{end{3, &plugin.Error{Code: plugin.PeerDied, Rank: -1, Message: "m"}}, 4},
		{end{3, (*plugin.Error)(nil)}, 4},
	} {
		ends <- test.end
		h.post(2, 2, 0, 1)
		status, peer, _ := h.awaitEnd(2)
		require.Equal(t, int32(plugin.CodeOf(test.err)), status)
		require.Equal(t, test.peer, peer, "%+v", test)
	}
}

// Abort ends the commands in progress and those that come later, with its reason.
func TestAbortReachesEveryCommand(t *testing.T) {
	r, h := open(t, 1, 0)
	r.Serve(func(ctx context.Context, _ *Command) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	h.post(0, 0, 0, 1)
	r.Abort("rank 3 is dead")
	for range 2 {
		status, _, message := h.awaitEnd(0)
		require.Equal(t, int32(plugin.Aborted), status)
		require.Contains(t, string(message), "aborted: rank 3 is dead\x00")
		h.post(0, 0, 0, 1)
	}
	h.awaitEnd(0)
}
