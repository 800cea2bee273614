// Package carrier loads transports: builtin ones, which the binary has registered, shared objects, and plugins in a
// process of their own. It knows nothing of ranks and communicators.
package carrier

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/guard"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/plugin/shared"
)

// Loaded is a transport that is ready to open endpoints.
type Loaded struct {
	Spec      Spec
	Transport plugin.Transport
	Info      plugin.Info
	client    *process.Client // process carrier only
	logger    *slog.Logger    // nil: none
}

// PID returns the plugin's process, or 0 for the other carriers.
func (l *Loaded) PID() int {
	if l.client == nil {
		return 0
	}
	return l.client.PID()
}

// Died is closed when the plugin's process has ended; nil for the other carriers.
func (l *Loaded) Died() <-chan struct{} {
	if l.client == nil {
		return nil
	}
	return l.client.Done()
}

// Err returns the reason why the plugin's process has ended, or nil.
func (l *Loaded) Err() error {
	if l.client == nil {
		return nil
	}
	return l.client.Err()
}

// Again loads a plugin whose process has died once more. The binary must not have changed.
func (l *Loaded) Again(ctx context.Context) (*Loaded, error) {
	again, err := Load(ctx, l.Spec, l.logger)
	if err != nil {
		return nil, plugin.Errorf(plugin.CodeOf(err), "transport %s died (%v) and could not be started again: %w",
			l.Info.Name, l.Err(), err)
	}
	if again.Info.Name != l.Info.Name || again.Info.Version != l.Info.Version || again.Info.Features != l.Info.Features {
		err := plugin.Errorf(plugin.PluginRejected, "transport %s died and its binary has changed since: it was version %s, and is %s version %s now",
			l.Info.Name, l.Info.Version, again.Info.Name, again.Info.Version)
		return nil, errors.Join(err, again.Close())
	}
	if l.logger != nil {
		l.logger.Warn("transport started again", "transport", l.Info.Name, "pid", again.PID(), "died", l.PID())
	}
	return again, nil
}

// Load loads one transport. Close releases it.
func Load(ctx context.Context, spec Spec, logger *slog.Logger) (*Loaded, error) {
	spec, err := spec.resolve()
	if err != nil {
		return nil, err
	}
	l := &Loaded{Spec: spec, logger: logger}
	switch spec.Carrier {
	case Builtin:
		t, err := builtin(spec.Target)
		if err != nil {
			return nil, err
		}
		l.Transport = guard.New(t, spec.String(), logger)
	case Shared:
		t, err := guard.Call(ctx, logger, spec.String(), "load",
			func() (plugin.Transport, error) { return shared.Open(spec.Target, logger) })
		if err != nil {
			return nil, err
		}
		l.Transport = guard.New(t, spec.String(), logger)
	case Process:
		client, err := process.Start(ctx, process.Config{Path: spec.Target, SHA256: spec.SHA256, Logger: logger,
			StartTimeout: spec.StartTimeout})
		if err != nil {
			return nil, err
		}
		l.client = client
		l.Transport = client.Transport()
	}
	l.Info = l.Transport.Info()
	if err := l.Info.Validate(); err != nil {
		return nil, errors.Join(plugin.Errorf(plugin.PluginRejected, "%s: %w", spec, err), l.Close())
	}
	if logger != nil {
		logger.Info("transport loaded", "transport", l.Info.Name, "version", l.Info.Version, "carrier", string(spec.Carrier),
			"from", spec.Target, "pid", l.PID())
	}
	return l, nil
}

// Ask calls the transport's Supports with a deadline. It is an error if the transport
// does not return in time or its reply breaks the contract.
func (l *Loaded) Ask(ctx context.Context, req plugin.Request) (plugin.Support, error) {
	a, ok := l.Transport.(interface {
		Ask(context.Context, plugin.Request) (plugin.Support, error)
	})
	if !ok {
		return l.Transport.Supports(req), nil
	}
	support, err := a.Ask(ctx, req)
	if err != nil && l.logger != nil {
		l.logger.Warn("a transport's result of Supports is invalid", "transport", l.Info.Name, "collective",
			req.Collective.String(), "error", err)
	}
	return support, err
}

// Close ends a plugin's process; the other carriers have nothing to release.
func (l *Loaded) Close() error {
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

// LoadAll loads every spec, or none. start bounds the start of each plugin's process; 0: 10 s.
func LoadAll(ctx context.Context, specs []string, start time.Duration, logger *slog.Logger) ([]*Loaded, error) {
	var loaded []*Loaded
	undo := func(err error) error {
		for _, l := range loaded {
			err = errors.Join(err, l.Close())
		}
		return err
	}
	for _, text := range specs {
		spec, err := ParseSpec(text)
		if err != nil {
			return nil, undo(err)
		}
		spec.StartTimeout = start
		l, err := Load(ctx, spec, logger)
		if err != nil {
			logger.Warn("transport rejected", "transport", text, "reason", err)
			return nil, undo(err)
		}
		for _, other := range loaded {
			if other.Info.Name == l.Info.Name {
				loaded = append(loaded, l)
				return nil, undo(plugin.Errorf(plugin.PluginRejected, "transport %s is named twice: %s and %s", l.Info.Name,
					other.Spec, l.Spec))
			}
		}
		loaded = append(loaded, l)
	}
	if len(loaded) == 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "no transport: none is registered in this binary and SHUNT_TRANSPORTS is empty")
	}
	return loaded, nil
}
