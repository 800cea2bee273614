package process

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// hostLogger returns the logger that go-plugin's own client gets. What it has to
// say is detail: the carrier itself reports what matters, so every line goes
// out at debug level.
func hostLogger(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Debug})
	l.RegisterSink(sink{logger})
	return l
}

type sink struct{ logger *slog.Logger }

// Accept carries one line of go-plugin to slog.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...interface{}) {
	if level >= hclog.Debug {
		s.logger.Log(context.Background(), slog.LevelDebug, "go-plugin: "+msg, args...)
	}
}
