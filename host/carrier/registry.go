package carrier

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/shunt-ccl/shunt/plugin"
)

var registry struct {
	sync.Mutex
	builtin map[string]plugin.Transport
}

// Register makes a builtin transport available under its own name. It panics
// if the name is taken or its Info breaks the contract, as
// registration happens in init functions.
func Register(t plugin.Transport) {
	info := t.Info()
	if err := info.Validate(); err != nil {
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

// Registered returns the names of the builtin transports, sorted.
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

// builtin returns the builtin transport of that name.
func builtin(name string) (plugin.Transport, error) {
	registry.Lock()
	t, ok := registry.builtin[name]
	registry.Unlock()
	if !ok {
		return nil, plugin.Errorf(plugin.PluginRejected, "no builtin transport %q; this binary has %s", name,
			orNone(Registered()))
	}
	return t, nil
}

// BuiltinInfos describes the transports of a list that consists of builtin ones;
// nil if others are among them, which are known only when they are loaded.
func BuiltinInfos(specs []string) []plugin.Info {
	registry.Lock()
	defer registry.Unlock()
	infos := make([]plugin.Info, 0, len(specs))
	for _, text := range specs {
		spec, err := ParseSpec(text)
		t := registry.builtin[spec.Target]
		if err != nil || spec.Carrier != Builtin || t == nil {
			return nil // loading says what is wrong
		}
		infos = append(infos, t.Info())
	}
	return infos
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
