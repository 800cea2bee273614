package nccl

// #cgo CFLAGS: -I${SRCDIR}/../../plugin -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
// #cgo LDFLAGS: -ldl -lm
// #include <stdlib.h>
// #include "nccl.h"
import "C"

import (
	"debug/elf"
	"fmt"
	"regexp"
	"strconv"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/internal/search"
)

// Variable names the library, before all other places.
const Variable = "SHUNT_NCCL_LIBRARY"

const oldest = 21800 // as ncclGetVersion tells it

// library is an opened library of NCCL. It stays open for the rest of the process.
type library struct {
	path    string
	version int
	cuda    int // that it was built for, as the driver tells its own: 12040 is 12.4; 0: not known
	table   *C.nl_table
}

var libraries = search.Library[*library]{Name: "NCCL", Variable: Variable, Soname: "libnccl.so.2",
	Package: "nvidia/nccl/lib"}

// open finds and opens the library once for each value of Variable. driver is the driver's version of CUDA, or 0 where
// there is none to ask.
func open(driver int) (*library, error) {
	return libraries.Open(strconv.Itoa(driver), func(path string) (*library, error) { return load(path, driver) })
}

// load opens one library and checks its version, and that the driver runs what it was built for.
func load(path string, driver int) (*library, error) {
	table := (*C.nl_table)(C.calloc(1, C.sizeof_nl_table)) // stays, as the library does
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.nl_load(name, table, &message[0], C.size_t(len(message))) != 0 {
		C.free(unsafe.Pointer(table))
		return nil, search.Unloadable(path, C.GoString(&message[0]))
	}
	l := &library{path: path, table: table, version: int(C.nl_version(table))}
	if l.version < oldest {
		return nil, plugin.Errorf(plugin.Unsupported, "%s is NCCL %s; 2.18 is the oldest that serves", path, l)
	}
	l.cuda = builtFor(C.GoString(C.nl_path(table)))
	if driver > 0 && l.cuda/1000 > driver/1000 {
		return nil, plugin.Errorf(plugin.Unsupported,
			"%s is NCCL %s for CUDA %s, and the driver has CUDA %s; one for CUDA %d serves, such as pip's nvidia-nccl-cu%[5]d",
			path, l, cudaText(l.cuda), cudaText(driver), driver/1000)
	}
	return l, nil
}

// cudaText returns a version of CUDA as people write it.
func cudaText(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

// built matches the text among the constants of NCCL that names the version of CUDA.
var built = regexp.MustCompile(`NCCL version [0-9.]+\S*\+cuda([0-9]{1,3})\.([0-9]{1,2})`)

// builtFor returns the version of CUDA that a library was built for, or 0. NCCL has no function that tells, and the
// driver says so only when a communicator is made.
func builtFor(path string) int {
	file, err := elf.Open(path)
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }() // nothing was written
	section := file.Section(".rodata")
	if section == nil || section.Size > 64<<20 {
		return 0
	}
	text, err := section.Data()
	if err != nil {
		return 0
	}
	m := built.FindSubmatch(text)
	if m == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(m[1])) // digits, and few
	minor, _ := strconv.Atoi(string(m[2]))
	return 1000*major + 10*minor
}

// String returns the library's version, such as 2.28.9.
func (l *library) String() string {
	return fmt.Sprintf("%d.%d.%d", l.version/10000, l.version/100%100, l.version%100)
}
