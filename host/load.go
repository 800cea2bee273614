package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/shunt-ccl/shunt/host/internal/guard"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/plugin/shared"
)

// Carrier says how a transport is loaded.
type Carrier string

// The three carriers.
const (
	Builtin Carrier = "builtin" // linked into this binary and registered
	Shared  Carrier = "shared"  // a shared object with the C ABI
	Process Carrier = "process" // its own process
)

// Spec names a transport to load, as in SHUNT_TRANSPORTS:
//
//	builtin:shm
//	shared:/path/to/transport.so
//	process:/path/to/binary[#sha256=<hex>]
type Spec struct {
	Carrier Carrier
	Target  string // registered name or path
	SHA256  string // hex, process carrier only; empty: not pinned
}

// ParseSpec reads one spec. A bare word is a builtin's name.
func ParseSpec(text string) (Spec, error) {
	carrier, target, found := strings.Cut(text, ":")
	if !found {
		carrier, target = string(Builtin), text
	}
	spec := Spec{Carrier: Carrier(carrier), Target: target}
	switch spec.Carrier {
	case Builtin, Shared, Process:
	default:
		return Spec{}, plugin.Errorf(plugin.InvalidArgument,
			"transport %q: unknown carrier %q; known are builtin, shared and process", text, carrier)
	}
	if path, pin, pinned := strings.Cut(target, "#"); pinned {
		var err error
		if spec.SHA256, err = spec.parsePin(pin); err != nil {
			return Spec{}, plugin.Errorf(plugin.InvalidArgument, "transport %q: %w", text, err)
		}
		spec.Target = path
	}
	if spec.Target == "" || len(spec.Target) > 4096 || strings.ContainsRune(spec.Target, 0) {
		return Spec{}, plugin.Errorf(plugin.InvalidArgument, "transport %q: no name or path behind %s:", text, carrier)
	}
	return spec, nil
}

// parsePin reads what stands behind a target's "#". Anything but a whole pin is an
// error: a pin with a typing mistake must not run the plugin unpinned.
func (s Spec) parsePin(pin string) (string, error) {
	key, value, _ := strings.Cut(pin, "=")
	switch {
	case s.Carrier != Process:
		return "", plugin.Errorf(plugin.InvalidArgument,
			"only process transports can be pinned, and targets cannot contain #")
	case key != "sha256":
		return "", plugin.Errorf(plugin.InvalidArgument, "unknown pin %q; want #sha256= and 64 hexadecimal digits", key)
	case len(value) != 64 || strings.Trim(value, "0123456789abcdefABCDEF") != "":
		return "", plugin.Errorf(plugin.InvalidArgument, "sha256 is not 64 hexadecimal digits")
	}
	return value, nil
}

func (s Spec) String() string {
	text := string(s.Carrier) + ":" + s.Target
	if s.SHA256 != "" {
		text += "#sha256=" + s.SHA256
	}
	return text
}

var registry struct {
	sync.Mutex
	builtin map[string]plugin.Transport
}

// Register makes a builtin transport available under its own name. It panics
// if the name is taken or the transport describes itself badly, as
// registration happens in init functions.
func Register(t plugin.Transport) {
	info := t.Info()
	if err := checkInfo(info); err != nil {
		panic(err)
	}
	registry.Lock()
	defer registry.Unlock()
	if _, taken := registry.builtin[info.Name]; taken {
		panic(fmt.Sprintf("shunt: transport %s is registered twice", info.Name))
	}
	if registry.builtin == nil {
		registry.builtin = map[string]plugin.Transport{}
	}
	registry.builtin[info.Name] = t
}

// Registered are the names of the builtin transports, sorted.
func Registered() []string {
	registry.Lock()
	defer registry.Unlock()
	names := make([]string, 0, len(registry.builtin))
	for name := range registry.builtin {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func checkInfo(info plugin.Info) error {
	if info.Name == "" || len(info.Name) > plugin.MaxName ||
		strings.Trim(info.Name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return plugin.Errorf(plugin.PluginRejected, "transport name %q: want lower-case letters, digits and underscores, at most %d", info.Name, plugin.MaxName)
	}
	if len(info.Memory) == 0 {
		return plugin.Errorf(plugin.PluginRejected, "transport %s names no kind of memory", info.Name)
	}
	return nil
}

// Loaded is a transport that is ready to open endpoints.
type Loaded struct {
	Spec      Spec
	Transport plugin.Transport
	Info      plugin.Info
	client    *process.Client // process carrier only
	logger    *slog.Logger    // nil: none
}

// PID is the plugin's process, or 0 for the other carriers.
func (l *Loaded) PID() int {
	if l.client == nil {
		return 0
	}
	return l.client.PID()
}

// Load loads one transport. Close releases it.
func Load(ctx context.Context, spec Spec, logger *slog.Logger) (*Loaded, error) {
	l := &Loaded{Spec: spec, logger: logger}
	switch spec.Carrier {
	case Builtin:
		registry.Lock()
		t, ok := registry.builtin[spec.Target]
		registry.Unlock()
		if !ok {
			return nil, plugin.Errorf(plugin.PluginRejected, "no builtin transport %q; this binary has %s", spec.Target,
				orNone(Registered()))
		}
		l.Transport = guard.New(t, spec.String())
	case Shared:
		t, err := guard.Call(ctx, spec.String(), "load",
			func() (plugin.Transport, error) { return shared.Open(spec.Target, logger) })
		if err != nil {
			return nil, err
		}
		l.Transport = guard.New(t, spec.String())
	case Process:
		client, err := process.Start(ctx, process.Config{Path: spec.Target, SHA256: spec.SHA256, Logger: logger})
		if err != nil {
			return nil, err
		}
		l.client = client
		l.Transport = client.Transport()
	}
	l.Info = l.Transport.Info()
	if err := checkInfo(l.Info); err != nil {
		return nil, errors.Join(plugin.Errorf(plugin.PluginRejected, "%s: %w", spec, err), l.Close())
	}
	if logger != nil {
		logger.Info("transport loaded", "transport", l.Info.Name, "version", l.Info.Version, "carrier", string(spec.Carrier),
			"from", spec.Target, "pid", l.PID())
	}
	return l, nil
}

// Ask is the transport's Supports with a deadline, and with an error where it does not
// answer in time or its answer breaks the contract.
func (l *Loaded) Ask(ctx context.Context, req plugin.Request) (plugin.Support, error) {
	a, ok := l.Transport.(interface {
		Ask(context.Context, plugin.Request) (plugin.Support, error)
	})
	if !ok {
		return l.Transport.Supports(req), nil
	}
	support, err := a.Ask(ctx, req)
	if err != nil && l.logger != nil {
		l.logger.Warn("a transport's answer to supports is unusable", "transport", l.Info.Name, "collective",
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

// loadAll loads every spec, or none.
func loadAll(ctx context.Context, specs []string, logger *slog.Logger) ([]*Loaded, error) {
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

// Discover finds the plugins in a directory, in the order of their names: every
// file shunt-transport-*, a shared object if it ends in .so and otherwise an
// executable.
func Discover(dir string) ([]Spec, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "plugin directory: %w", err)
	}
	var found []Spec
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(entry.Name(), "shunt-transport-") {
			continue
		}
		switch {
		case strings.HasSuffix(entry.Name(), ".so"):
			found = append(found, Spec{Carrier: Shared, Target: path})
		case info.Mode()&0o111 != 0:
			found = append(found, Spec{Carrier: Process, Target: path})
		}
	}
	return found, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
