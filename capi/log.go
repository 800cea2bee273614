package main

/*
#include <stdlib.h>
#include "internal.h"
*/
import "C"

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// longestLog limits the lines that wait for the program's function; later ones are only counted.
const longestLog = 1024

// levels are those of shunt.h.
var levels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

// sink is a function of the program, as shunt_set_log was given it.
type sink struct {
	function C.shunt_log_function
	context  unsafe.Pointer
	least    slog.Level
	waiting  int // lines of its own in the queue, or in its hands
	dropped  int
}

type line struct {
	to    *sink
	level C.int32_t
	text  string
}

// logs hands lines to the program's function, one at a time and from a goroutine of its own: a function that waits, as
// one of Python's does for the interpreter's lock, holds up no other thread of Shunt.
var logs struct {
	sync.Mutex
	to      *sink // nil: standard error
	queue   []line
	running bool
	done    *sync.Cond
}

//export go_set_log
func go_set_log(function C.shunt_log_function, context unsafe.Pointer, level C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	logs.Lock()
	defer logs.Unlock()
	if logs.done == nil {
		logs.done = sync.NewCond(&logs.Mutex)
	}
	before := logs.to
	logs.to = nil
	if function != nil {
		logs.to = &sink{function: function, context: context, least: levels[level]}
	}
	for before != nil && before.waiting > 0 {
		logs.done.Wait()
	}
	return 0
}

// push queues a line; false if it goes to standard error.
func push(level slog.Level, text func() string) bool {
	logs.Lock()
	to := logs.to
	logs.Unlock()
	if to == nil {
		return false
	}
	if level < to.least {
		return true
	}
	l := line{to: to, level: numberOf(level), text: text()}
	logs.Lock()
	defer logs.Unlock()
	switch {
	case logs.to != to: // it is no longer wanted
		return logs.to != nil
	case len(logs.queue) >= longestLog:
		to.dropped++
		return true
	}
	to.waiting++
	logs.queue = append(logs.queue, l)
	if !logs.running {
		logs.running = true
		go deliver()
	}
	return true
}

// deliver ends when the queue is empty.
func deliver() {
	logs.Lock()
	defer logs.Unlock()
	for len(logs.queue) > 0 {
		l := logs.queue[0]
		logs.queue = logs.queue[1:]
		dropped := l.to.dropped
		l.to.dropped = 0
		logs.Unlock()
		hand(l)
		if dropped > 0 {
			hand(line{l.to, numberOf(slog.LevelWarn),
				fmt.Sprintf("%d lines are missing here: the function for log lines took too long", dropped)})
		}
		logs.Lock()
		l.to.waiting--
		logs.done.Broadcast()
	}
	logs.running = false
}

func hand(l line) {
	text := C.CString(strings.ReplaceAll(l.text, "\x00", "\\x00"))
	defer C.free(unsafe.Pointer(text))
	C.shunt_call_log(l.to.function, l.to.context, l.level, text)
}

// numberOf is the level of shunt.h at or below a level of slog.
func numberOf(level slog.Level) C.int32_t {
	at := 0
	for i, l := range levels {
		if level >= l {
			at = i
		}
	}
	return C.int32_t(at)
}

// standardError receives the lines when the program has set no function.
var standardError = sync.OnceValue(func() slog.Handler {
	options, _ := option.Load(environment.All()) // init logs what is wrong with them
	return slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: options.LogLevel()})
})

// logger is the logger of every communicator.
var logger = slog.New(logHandler{})

// logHandler is a slog.Handler whose lines go where the program wants them at that moment.
type logHandler struct {
	with []func(slog.Handler) slog.Handler
}

func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	logs.Lock()
	to := logs.to
	logs.Unlock()
	if to != nil {
		return level >= to.least
	}
	return standardError().Enabled(ctx, level)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{append(slices.Clip(h.with), func(s slog.Handler) slog.Handler { return s.WithAttrs(attrs) })}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{append(slices.Clip(h.with), func(s slog.Handler) slog.Handler { return s.WithGroup(name) })}
}

func (h logHandler) apply(to slog.Handler) slog.Handler {
	for _, with := range h.with {
		to = with(to)
	}
	return to
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if push(r.Level, func() string { return h.text(ctx, r) }) {
		return nil
	}
	if s := h.apply(standardError()); s.Enabled(ctx, r.Level) {
		return s.Handle(ctx, r)
	}
	return nil
}

// text is the message, and behind it the attributes as key=value.
func (h logHandler) text(ctx context.Context, r slog.Record) string {
	var b bytes.Buffer
	plain := slog.NewTextHandler(&b, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	_ = h.apply(plain).Handle(ctx, r) // a buffer takes everything
	return strings.TrimSpace(r.Message + " " + b.String())
}
