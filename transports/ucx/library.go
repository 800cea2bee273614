package ucx

// #cgo CFLAGS: -I${SRCDIR}/../../plugin -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "ucx.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/internal/search"
)

// Variable names the library, before all other places.
const Variable = "SHUNT_UCX_LIBRARY"

const oldest = 1011 // major * 1000 + minor

// library is an opened library of UCX. It stays open for the rest of the process.
type library struct {
	path    string
	version int
	table   *C.ux_table
}

// String returns the library's version, such as 1.13.
func (l *library) String() string { return fmt.Sprintf("%d.%d", l.version/1000, l.version%1000) }

var libraries = search.Library[*library]{Name: "UCX", Variable: Variable, Soname: "libucp.so.0", Package: "libucx/lib"}

// open finds and opens the library once for each value of Variable.
func open() (*library, error) { return libraries.Open("", load) }

// load opens one library and checks its version.
func load(path string) (*library, error) {
	table := (*C.ux_table)(C.calloc(1, C.sizeof_ux_table)) // stays, as the library does
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.ux_load(name, table, &message[0], C.size_t(len(message))) != 0 {
		C.free(unsafe.Pointer(table))
		return nil, search.Unloadable(path, C.GoString(&message[0]))
	}
	l := &library{path: path, table: table, version: int(C.ux_version(table))}
	if l.version < oldest {
		return nil, plugin.Errorf(plugin.Unsupported, "%s is UCX %s; 1.11 is the oldest that serves", path, l)
	}
	return l, nil
}

// symbols lists the functions that a library must have, in the order in which they are looked for.
func symbols() (names []string) {
	for i := range int(C.ux_count()) {
		names = append(names, C.GoString(C.ux_symbol(C.int(i))))
	}
	return names
}
