package carrier

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Kind says how a transport is loaded.
type Kind string

// The three carriers.
const (
	Builtin Kind = "builtin" // linked into this binary and registered
	Shared  Kind = "shared"  // a shared object with the C ABI
	Process Kind = "process" // its own process
)

// Spec names a transport to load, as in SHUNT_TRANSPORTS:
//
//	builtin:shm
//	shared:/path/to/transport.so
//	process:/path/to/binary[#sha256=<hex>]
//	process:shm              an installed plugin, by its name
type Spec struct {
	Carrier Kind
	Target  string // registered name, name of an installed plugin, or path
	SHA256  string // hex, process carrier only; empty: not pinned

	StartTimeout time.Duration // process carrier only; 0: 10 s
}

// ParseSpec reads one spec. A bare word is a builtin's name.
func ParseSpec(text string) (Spec, error) {
	carrier, target, found := strings.Cut(text, ":")
	if !found {
		carrier, target = string(Builtin), text
	}
	spec := Spec{Carrier: Kind(carrier), Target: target}
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
	if len(spec.Target) > 4096 {
		return Spec{}, plugin.Errorf(plugin.InvalidArgument, "transport %.200q: what is behind %s: has %d bytes, want at most 4096",
			text, carrier, len(spec.Target))
	}
	if spec.Target == "" || strings.ContainsRune(spec.Target, 0) {
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

// pluginPrefix begins the name of every plugin's file.
const pluginPrefix = "shunt-transport-"

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
		if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(entry.Name(), pluginPrefix) {
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
