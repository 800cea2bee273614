package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
)

// Register makes a builtin transport available under its own name, for every communicator of this process: see
// carrier.Register.
func Register(t plugin.Transport) { carrier.Register(t) }

// serves reports whether a transport has a place for every rank of a world.
func serves(info plugin.Info, world int) bool { return info.MaxWorld == 0 || world <= info.MaxWorld }

// worldTooLarge returns the reason why none of the transports for a kind of memory serves a world;
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
