// Package lockorder defines the order of the locks around a launch, and checks it.
//
// A goroutine takes locks in the order of their levels: what it holds is below what it takes. So a thread that launches
// (it holds a communicator's turn) may look into the registry of buffers and ask an allocator for memory, and an
// allocator that grows may wait for a turn; but no thread waits for a turn, or frees memory of a GPU, while it keeps
// others from allocating. A launch can wait for a GPU, a GPU for a peer, and the peer for the thread that is kept.
//
// Checks are off unless Check was called (SHUNT_CHECK=on, and tests): a Lock then costs one load more.
package lockorder

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Level is the place of a lock in the order.
type Level int

// The locks, in the order in which they are taken.
const (
	Growth  Level = iota + 1 // an allocator grows or trims: collective, so it may wait for a turn
	Turn                     // a communicator's turn; a goroutine may have those of several (RunTogether)
	Buffers                  // the registry of the callers' buffers
	Memory                   // an allocator's blocks; only queries of the driver are called under it
)

var names = map[Level]string{Growth: "an allocator's growth lock", Turn: "a communicator's turn",
	Buffers: "the registry of buffers", Memory: "an allocator's memory lock"}

// String names the lock for messages.
func (l Level) String() string { return names[l] }

var (
	checking atomic.Bool
	checker  struct {
		sync.Mutex
		held   map[uint64][]Level // by goroutine, in the order taken
		report func(string)
		users  int // communicators with the checks on
	}
)

// Check turns the checks on, and returns what turns them off once all that turned them on have called theirs. report
// gets one sentence for each violation; nil logs it, with the stack.
func Check(report func(string)) (stop func()) {
	checker.Lock()
	defer checker.Unlock()
	if checker.held == nil {
		checker.held = map[uint64][]Level{}
	}
	if report == nil {
		report = func(text string) {
			slog.Error("locks were taken in the wrong order", "what", text, "stack", string(debug.Stack()))
		}
	}
	checker.report = report
	checker.users++
	checking.Store(true)
	return sync.OnceFunc(func() {
		checker.Lock()
		defer checker.Unlock()
		if checker.users--; checker.users == 0 {
			checking.Store(false)
			clear(checker.held)
		}
	})
}

// Take notes that this goroutine is about to wait for a lock, and reports a wrong order before it can deadlock.
func Take(l Level) {
	if checking.Load() {
		take(l)
	}
}

func take(l Level) {
	me := goroutine()
	checker.Lock()
	held := slices.Clone(checker.held[me])
	checker.held[me] = append(checker.held[me], l)
	report := checker.report
	checker.Unlock()
	for _, h := range held {
		if h > l || h == l && l != Turn {
			report(fmt.Sprintf("a goroutine that holds %s waits for %s; the order is %s", describe(held), l, order()))
			return
		}
	}
}

// Drop notes that this goroutine has given a lock back. One that it took before the checks began is unknown.
func Drop(l Level) {
	if checking.Load() {
		drop(l)
	}
}

func drop(l Level) {
	me := goroutine()
	checker.Lock()
	defer checker.Unlock()
	held := checker.held[me]
	for i := len(held) - 1; i >= 0; i-- {
		if held[i] == l {
			held = slices.Delete(held, i, i+1)
			break
		}
	}
	if len(held) == 0 {
		delete(checker.held, me)
		return
	}
	checker.held[me] = held
}

// MustNotHold reports a goroutine that makes a call while it holds one of the locks: a call that can wait for a GPU.
func MustNotHold(call string, locks ...Level) {
	if !checking.Load() {
		return
	}
	me := goroutine()
	checker.Lock()
	held := slices.Clone(checker.held[me])
	report := checker.report
	checker.Unlock()
	for _, h := range held {
		if slices.Contains(locks, h) {
			report(fmt.Sprintf("a goroutine that holds %s calls %s, which may wait for a GPU", describe(held), call))
			return
		}
	}
}

// Held returns the number of goroutines that hold a lock, as far as the checks have seen.
func Held() int {
	checker.Lock()
	defer checker.Unlock()
	return len(checker.held)
}

// Mutex is a sync.Mutex with a place in the order.
type Mutex struct {
	mu    sync.Mutex
	Level Level
}

// Lock takes the lock.
func (m *Mutex) Lock() {
	Take(m.Level)
	m.mu.Lock()
}

// Unlock gives it back.
func (m *Mutex) Unlock() {
	m.mu.Unlock()
	Drop(m.Level)
}

func describe(held []Level) string {
	list := make([]string, len(held))
	for i, l := range held {
		list[i] = l.String()
	}
	return strings.Join(list, " and ")
}

func order() string {
	return describe([]Level{Growth, Turn, Buffers, Memory})
}

// goroutine returns the number of the calling goroutine.
func goroutine() uint64 {
	var b [64]byte
	fields := bytes.Fields(b[:runtime.Stack(b[:], false)])
	n, _ := strconv.ParseUint(string(fields[1]), 10, 64) // "goroutine 17 [running]:"
	return n
}
