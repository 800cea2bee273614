package process

import (
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// hostileLines lists lines that break parsers of log lines.
var hostileLines = []string{
	`{"@message": 5}`,
	`{"@message": "x", "@level": 7, "@timestamp": []}`,
	`{"@message": "x", "@timestamp": "not a time"}`,
	`{"@level": "error"}`,
	`{"@message": {"a": [1, null]}, "b": "\u0000"}`,
	strings.Repeat("[", 5000),
	"{" + strings.Repeat(`"a":{`, 1000),
	"\x00\xff\x1b[31mred\x1b[0m\r",
	strings.Repeat("y", 1<<20),
}

func TestHostileStderrHarmsNobody(t *testing.T) {
	var log records
	c := start(t, "hostile", func(c *Config) { c.Logger = log.logger() })
	require.NoError(t, open(t, c).Close())
	require.NoError(t, c.Close())
	text := log.String()
	require.Contains(t, text, "bytes more)")
	require.NotContains(t, text, "\x1b")
	require.Less(t, len(text), 100<<10)
}

func TestPluginLinesReachTheHostsLogger(t *testing.T) {
	var log records
	c := start(t, "chatty", func(c *Config) { c.Logger = log.logger() })
	require.NoError(t, c.Close())
	require.Regexp(t, `level=WARN msg="a structured line" plugin=\S+ count=7`, log.String())
	require.Regexp(t, `level=INFO msg="a plain line" plugin=\S+ stream=stderr`, log.String())
	require.Contains(t, log.String(), "transport plugin started")
}

// What a plugin prints right before it ends arrives, once.
func TestLastWordsArrive(t *testing.T) {
	var log records
	c := start(t, "last words", func(c *Config) { c.Logger = log.logger() })
	_, err := c.Transport().Open(t.Context(), openConfig())
	require.ErrorIs(t, err, plugin.PluginDied)
	require.ErrorContains(t, err, "exited with status 3; the end of its stderr:\ndevice 2 has no driver")
	require.NoError(t, c.Close())
	for stream, words := range map[string]string{"stderr": "device 2 has no driver", "stdout": "3 devices found"} {
		require.Equal(t, 1, strings.Count(log.String(), `msg="`+words+`"`), log.String())
		require.Regexp(t, `level=INFO msg="`+words+`" plugin=\S+ stream=`+stream, log.String())
	}
}

func TestLinesAreBoundedAndCounted(t *testing.T) {
	var log records
	l := newLines(log.logger(), "stderr")
	clock := time.Unix(1, 0)
	l.now = func() time.Time { return clock }
	l.Write([]byte("in "))
	l.Write([]byte("parts\nand "))
	require.Equal(t, "in parts", l.Tail())
	l.Write([]byte("more\n\n"))
	for range maxLineRate + 500 {
		l.Write([]byte("flood\n"))
	}
	clock = clock.Add(time.Second)
	l.Write([]byte("unfinished"))
	l.flush()
	text := log.String()
	require.Equal(t, maxLineRate-2, strings.Count(text, "flood"))
	require.Contains(t, text, "dropped=502")
	require.Contains(t, text, "unfinished")
	require.LessOrEqual(t, len(l.Tail()), maxTail)
}

func TestParseStructured(t *testing.T) {
	level, message, attributes, ok := parseStructured([]byte(`{"@level":"error","@message":"no\nluck","@timestamp":"x","b":[1],"a":"z"}`))
	require.True(t, ok)
	require.Equal(t, slog.LevelError, level)
	require.Equal(t, "no?luck", message)
	require.Equal(t, []any{"a", "z", "b", "[1]"}, attributes)
	for _, line := range []string{`{"@message": 5}`, `{}`, `[]`, `{"@message"`} {
		_, _, _, ok := parseStructured([]byte(line))
		require.False(t, ok, line)
	}
}

func FuzzLines(f *testing.F) {
	for _, l := range hostileLines {
		f.Add([]byte(l + "\n"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var log records
		l := newLines(log.logger(), "stderr")
		l.Write(data[:len(data)/2])
		l.Write(data[len(data)/2:])
		l.flush()
		if tail := l.Tail(); len(tail) > maxTail || !utf8.ValidString(tail) {
			t.Fatalf("tail of %d bytes: %q", len(tail), tail)
		}
		for _, line := range log.lines {
			if len(line) > 8*maxLine {
				t.Fatalf("a line of %d bytes", len(line))
			}
		}
	})
}

func FuzzCheckHandshake(f *testing.F) {
	f.Add("1|1|unix|/run/x/plugin1|grpc|" + strings.Repeat("A", 100))
	f.Add("1|1|unix|/run/x/../../etc|grpc|")
	f.Add("||||||||")
	f.Fuzz(func(t *testing.T, line string) {
		err := checkHandshake(line, "/run/x")
		if err == nil && !strings.Contains(line, "|/run/x/") && !strings.Contains(line, "/run/x/") &&
			!strings.Contains(line, "x") {
			t.Fatalf("accepted %q", line)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Fatalf("a message of %d bytes", len(err.Error()))
		}
	})
}

func FuzzStateOf(f *testing.F) {
	f.Add([]byte("12 (a) b) T 1"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, stat []byte) { _ = stateOf(stat) })
}

func TestStateOf(t *testing.T) {
	require.Equal(t, byte('T'), stateOf([]byte("12 (a) S b) T 1 2")))
	require.Equal(t, byte(0), stateOf([]byte("12 (a)")))
}

// The stacks of a Go program's goroutines do not hide why it crashed.
func TestCrashIsQuotedBeforeItsStacks(t *testing.T) {
	err := startFails(t, "panic")
	require.Contains(t, err, "; the end of its stderr:\npanic: no device has a name\n…\n")
	require.Less(t, len(err), maxTail+500)
	l := newLines(slog.New(slog.DiscardHandler), "stderr")
	for _, line := range []string{"panic: that was caught", "fatal error: " + strings.Repeat("x", 2*maxCrash)} {
		_, _ = l.Write([]byte(line + "\n"))
		require.True(t, strings.HasSuffix(l.Tail(), line), "it is quoted once")
	}
	_, _ = l.Write([]byte(strings.Repeat("goroutine\n", maxTail)))
	require.True(t, strings.HasPrefix(l.Tail(), "fatal error: xxx"))
	require.LessOrEqual(t, len(l.Tail()), maxTail+maxCrash+10)
}
