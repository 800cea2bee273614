package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// serves reports whether a transport has a place for every rank of a world.
func serves(info plugin.Info, world int) bool { return info.MaxWorld == 0 || world <= info.MaxWorld }

// worldTooLarge is why none of the transports for a kind of memory serves a world;
// nil if one does, or if none is for that memory.
func worldTooLarge(infos []plugin.Info, memory plugin.MemoryKind, world int) error {
	var limits []string
	for _, info := range infos {
		switch {
		case !slices.Contains(info.Memory, memory):
		case serves(info, world):
			return nil
		default:
			limits = append(limits, fmt.Sprintf("%s at most %d", info.Name, info.MaxWorld))
		}
	}
	if limits == nil {
		return nil
	}
	return plugin.Errorf(plugin.Unsupported, "no transport serves a world of %d ranks on %s memory: %s", world, memory,
		strings.Join(limits, ", "))
}

// builtinInfos describes the transports of a list that consists of builtin ones;
// nil if others are among them, which are known only when they are loaded.
func builtinInfos(specs []string) []plugin.Info {
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
