package shared

// #include <stdlib.h>
// #include <string.h>
// #include "table.h"
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
)

// tableBytes is the size of the table of each minor version, from 0 on. An
// object built with an older one has a shorter table; the rest counts as absent.
var tableBytes = []uint64{C.sizeof_shunt_transport_v1}

// checkHead checks the fields that all versions of the table have, and returns how many
// bytes of the table this host reads. symbolBytes is the size in the object's symbol
// table, 0 if unknown.
func checkHead(magic uint64, major, minor uint32, structBytes, symbolBytes uint64) (uint64, error) {
	if symbolBytes != 0 && symbolBytes < C.sizeof_shunt_table_head {
		return 0, plugin.Errorf(plugin.PluginRejected, "its table is truncated: the symbol has %d bytes", symbolBytes)
	}
	if magic != C.SHUNT_TRANSPORT_MAGIC {
		return 0, plugin.Errorf(plugin.PluginRejected, "its table has magic %016x, want %016x", magic,
			uint64(C.SHUNT_TRANSPORT_MAGIC))
	}
	if err := check.Version(major, minor); err != nil {
		return 0, err
	}
	want := tableBytes[min(int(minor), len(tableBytes)-1)]
	if structBytes < want {
		return 0, plugin.Errorf(plugin.PluginRejected, "its table is truncated: it says %d bytes, version %d.%d has %d",
			structBytes, major, minor, want)
	}
	if symbolBytes != 0 && symbolBytes < structBytes {
		return 0, plugin.Errorf(plugin.PluginRejected, "its table is truncated: it says %d bytes, the symbol has %d",
			structBytes, symbolBytes)
	}
	return min(structBytes, C.sizeof_shunt_transport_v1), nil
}

// adopt checks a loaded object's table and makes the transport of it. The
// table is copied, so that it cannot change behind the checks.
func adopt(path string, table unsafe.Pointer, symbolBytes uint64) (*transport, error) {
	var head C.shunt_table_head
	if symbolBytes == 0 || symbolBytes >= C.sizeof_shunt_table_head {
		head = *(*C.shunt_table_head)(table)
	}
	bytes, err := checkHead(uint64(head.magic), uint32(head.version_major), uint32(head.version_minor),
		uint64(head.struct_size), symbolBytes)
	if err != nil {
		return nil, rejected(path, "%w", err)
	}
	own := new(C.shunt_transport_v1)
	C.memcpy(unsafe.Pointer(own), table, C.size_t(bytes))
	t := &transport{path: path, table: own}
	if err := t.describe(); err != nil {
		return nil, rejected(path, "%w", err)
	}
	return t, nil
}

// describe reads and checks the table's description and functions.
func (t *transport) describe() error {
	table := t.table
	var err error
	if t.info.Name, err = text(table.name, plugin.MaxName); err != nil {
		return plugin.Errorf(plugin.PluginRejected, "its table's name: %w", err)
	}
	if t.info.Version, err = text(table.version, plugin.MaxText); err != nil {
		return plugin.Errorf(plugin.PluginRejected, "its table's version: %w", err)
	}
	if t.info.Doc, err = text(table.doc, plugin.MaxText); err != nil {
		return plugin.Errorf(plugin.PluginRejected, "its table's doc line: %w", err)
	}
	t.info.Features = plugin.Feature(table.features)
	t.info.MaxWorld = int(table.max_world)
	if table.memory == nil {
		return plugin.Errorf(plugin.PluginRejected, "its table's memory kinds are null")
	}
	if table.count_memory == 0 || table.count_memory > 16 {
		return plugin.Errorf(plugin.PluginRejected, "its table names %d memory kinds, want 1 to 16",
			uint32(table.count_memory))
	}
	for _, kind := range unsafe.Slice(table.memory, table.count_memory) {
		t.info.Memory = append(t.info.Memory, plugin.MemoryKind(kind))
	}
	if err := t.info.Validate(); err != nil {
		return err
	}
	required := []struct {
		name    string
		present bool
		feature plugin.Feature // 0: always
	}{
		{"supports", table.supports != nil, 0},
		{"open", table.open != nil, 0},
		{"regions", table.regions != nil, 0},
		{"allocate", table.allocate != nil, plugin.FeatureBuffers},
		{"free", table.free != nil, plugin.FeatureBuffers},
		{"prepare", table.prepare != nil, plugin.FeaturePlans},
		{"free_plan", table.free_plan != nil, plugin.FeaturePlans},
		{"publish", table.publish != nil, plugin.FeatureExchange},
		{"connect", table.connect != nil, plugin.FeatureExchange},
		{"register_memory", table.register_memory != nil, plugin.FeatureRegistration},
		{"deregister_memory", table.deregister_memory != nil, plugin.FeatureRegistration},
		{"last_error", table.last_error != nil, 0},
		{"close", table.close != nil, 0},
	}
	for _, f := range required {
		switch {
		case f.present || (f.feature != 0 && t.info.Features&f.feature == 0):
		case f.feature == 0:
			return plugin.Errorf(plugin.PluginRejected, "its table has no function %s", f.name)
		default:
			return plugin.Errorf(plugin.PluginRejected, "its table has no function %s, which feature %s needs", f.name,
				f.feature)
		}
	}
	return nil
}

// text copies a C string of at most limit bytes.
func text(s *C.char, limit int) (string, error) {
	if s == nil {
		return "", plugin.Errorf(plugin.Protocol, "it is null")
	}
	n := C.strnlen(s, C.size_t(limit)+1)
	if int(n) > limit {
		return "", plugin.Errorf(plugin.Protocol, "it is longer than %d bytes", limit)
	}
	return C.GoStringN(s, C.int(n)), nil
}

// sentence returns what a message says, without what follows the limit; "" where it is null.
func sentence(message *C.char, limit int) string {
	if message == nil {
		return ""
	}
	return plugin.Clip(C.GoStringN(message, C.int(C.strnlen(message, C.size_t(limit)))))
}
