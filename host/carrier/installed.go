package carrier

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/plugin"
)

// installed is the directory of the plugins that were installed with this program or library.
var installed atomic.Pointer[string]

// SetInstalled names the directory of the plugins that were installed together with this program or library.
// `process:NAME` and `shared:NAME` then find them there. Unlike those in SHUNT_PLUGIN_DIR they are loaded only when
// named, as the same transports are built in.
func SetInstalled(dir string) { installed.Store(&dir) }

// Installed returns the plugins that were installed together with this program or library, by their short specs.
func Installed() []Spec {
	dir := installed.Load()
	if dir == nil {
		return nil
	}
	found, err := Discover(*dir)
	if err != nil {
		return nil // an installation without plugins
	}
	for i, spec := range found {
		found[i].Target = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(spec.Target), pluginPrefix), ".so")
	}
	return found
}

// resolve returns the spec with the path of an installed plugin in place of its name. A target that is no name, or
// that no installed plugin has, is a path. A path becomes absolute: the working directory may be another one when the
// plugin is started again.
func (s Spec) resolve() (Spec, error) {
	if s.Carrier == Builtin {
		return s, nil
	}
	isName := strings.Trim(s.Target, plugin.NameLetters) == ""
	if dir := installed.Load(); isName && dir != nil {
		path := filepath.Join(*dir, pluginPrefix+s.Target)
		if s.Carrier == Shared {
			path += ".so"
		}
		if _, err := os.Stat(path); err == nil {
			s.Target = path
			return s, nil
		}
	}
	path, err := filepath.Abs(s.Target)
	if err != nil {
		return s, plugin.Errorf(plugin.System, "%s: %w", s, err)
	}
	if _, err := os.Stat(path); err == nil || !isName {
		s.Target = path
		return s, nil
	}
	var names []string
	for _, other := range Installed() {
		names = append(names, other.String())
	}
	return s, plugin.Errorf(plugin.PluginRejected, "%s: no plugin of this name is installed (installed: %s), and no file has this path",
		s, orNone(names))
}

// Check says why the transport that a text names cannot be loaded, where that is seen without loading it: the text is
// no spec, or what it names is not there.
func Check(text string) error {
	spec, err := ParseSpec(text)
	if err == nil && spec.Carrier != Builtin {
		spec, err = spec.resolve()
	}
	if err != nil {
		return err
	}
	if spec.Carrier == Builtin {
		_, err = builtin(spec.Target)
		return err
	}
	info, err := os.Stat(spec.Target)
	if err == nil && info.IsDir() {
		err = plugin.Errorf(plugin.PluginRejected, "%s is a directory", spec)
	}
	return err
}
