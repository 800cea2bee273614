package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits of what a plugin can make its host log.
const (
	maxLine       = 8 << 10 // bytes of one line; the rest is cut and counted
	maxTail       = 4 << 10 // bytes of stderr that a death's message quotes
	maxCrash      = 1 << 10 // bytes of the line before them that says why
	maxAttributes = 32      // of one structured line
	maxLineRate   = 2000    // lines a second; the rest is counted
)

// lines splits what a plugin writes to one of its outputs into lines and
// carries them to the host's logger. Whatever the bytes are, a line is bounded,
// printable, and never more than text to the logger.
type lines struct {
	logger *slog.Logger
	stream string // "stdout" or "stderr"
	now    func() time.Time

	mu         sync.Mutex
	line       []byte
	cut        int // bytes of the present line beyond maxLine
	tail       []byte
	crash      string    // the last line that began the end of a Go program; the stacks of its goroutines follow
	window     time.Time // start of the present second
	inWindow   int
	suppressed int
}

func newLines(logger *slog.Logger, stream string) *lines {
	return &lines{logger: logger, stream: stream, now: time.Now}
}

// Write takes any part of the stream. It never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		room := min(len(part), maxLine-len(l.line))
		l.line = append(l.line, part[:room]...)
		l.cut += len(part) - room
		if end < 0 {
			break
		}
		l.emit()
		p = p[end+1:]
	}
	return n, nil
}

// flush ends an unfinished line and reports lines that were held back.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) > 0 {
		l.emit()
	}
	l.reportSuppressed()
}

// Tail returns the end of what was written, at most maxTail bytes, and before it the line in which a Go program said
// why it crashed.
func (l *lines) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	tail := strings.TrimSpace(strings.ToValidUTF8(string(l.tail), "?"))
	if strings.Contains(tail, l.crash) {
		return tail
	}
	return l.crash + "\n…\n" + tail
}

func (l *lines) emit() {
	raw, cut := l.line, l.cut
	l.line, l.cut = l.line[:0], 0
	text := printable(string(raw))
	if cut > 0 {
		text += fmt.Sprintf(" … (%d bytes more)", cut)
	}
	if text == "" {
		return
	}
	if crashes(text) {
		l.crash = strings.ToValidUTF8(text[:min(len(text), maxCrash)], "")
	}
	l.tail = append(append(l.tail, text...), '\n')
	if extra := len(l.tail) - maxTail; extra > 0 {
		l.tail = append(l.tail[:0], l.tail[extra:]...)
	}
	now := l.now()
	if now.Sub(l.window) >= time.Second {
		l.reportSuppressed()
		l.window, l.inWindow = now, 0
	}
	if l.inWindow++; l.inWindow > maxLineRate {
		l.suppressed++
		return
	}
	if cut == 0 && len(raw) > 0 && raw[0] == '{' {
		if level, message, attributes, ok := parseStructured(raw); ok {
			l.logger.Log(context.Background(), level, message, attributes...)
			return
		}
	}
	l.logger.Log(context.Background(), levelOf(text), text, "stream", l.stream)
}

func (l *lines) reportSuppressed() {
	if l.suppressed > 0 {
		l.logger.Warn("the plugin writes too much; lines were dropped", "stream", l.stream, "dropped", l.suppressed)
		l.suppressed = 0
	}
}

// crashes reports whether Go's runtime begins with this line to say why a program ends.
func crashes(text string) bool {
	return strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") ||
		strings.HasPrefix(text, "runtime/cgo: ")
}

// levelOf guesses the level of a plain line.
func levelOf(text string) slog.Level {
	for _, p := range [...]struct {
		prefix string
		level  slog.Level
	}{
		{"[TRACE]", slog.LevelDebug}, {"[DEBUG]", slog.LevelDebug}, {"[INFO]", slog.LevelInfo}, {"[WARN]", slog.LevelWarn},
		{"[ERROR]", slog.LevelError}, {"panic: ", slog.LevelError}, {"fatal error: ", slog.LevelError},
	} {
		if strings.HasPrefix(text, p.prefix) {
			return p.level
		}
	}
	return slog.LevelInfo
}

// parseStructured reads a line of hclog's JSON form: @level, @message,
// @timestamp, and attributes. Values of any type are taken as text; a line
// without a message, or of another form, is not structured.
func parseStructured(line []byte) (slog.Level, string, []any, bool) {
	var fields map[string]any
	if json.Unmarshal(line, &fields) != nil {
		return 0, "", nil, false
	}
	message, ok := fields["@message"].(string)
	if !ok {
		return 0, "", nil, false
	}
	level := slog.LevelInfo
	switch name, _ := fields["@level"].(string); name {
	case "trace", "debug":
		level = slog.LevelDebug
	case "warn":
		level = slog.LevelWarn
	case "error":
		level = slog.LevelError
	}
	delete(fields, "@message")
	delete(fields, "@level")
	delete(fields, "@timestamp") // the host's logger has a clock of its own
	keys := make([]string, 0, len(fields))
	for k := range fields {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	if len(keys) > maxAttributes {
		keys = keys[:maxAttributes]
	}
	var attributes []any
	for _, k := range keys {
		var value string
		switch v := fields[k].(type) {
		case string:
			value = v
		default:
			b, _ := json.Marshal(v)
			value = string(b)
		}
		attributes = append(attributes, printable(k), printable(value))
	}
	return level, printable(message), attributes, true
}

// printable replaces what could act on a terminal or break a log's lines.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\t':
			return ' '
		case c == '\r':
			return -1
		case c == utf8.RuneError || c < ' ' || (c >= 0x7F && c < 0xA0):
			return '?'
		}
		return c
	}, s)
}

// clip bounds a text that is quoted in a message.
func clip(s string, limit int) string {
	s = printable(s)
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
