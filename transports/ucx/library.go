package ucx

// #cgo CFLAGS: -I${SRCDIR}/../../plugin -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "ucx.h"
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/shared"
)

// Variable names the library, before all other places.
const Variable = "SHUNT_UCX_LIBRARY"

const (
	soname = "libucp.so.0"
	oldest = 1011 // major * 1000 + minor
)

// library is an opened library of UCX. It stays open for the rest of the process.
type library struct {
	path    string
	version int
	table   *C.ux_table
}

// String returns the library's version, such as 1.13.
func (l *library) String() string { return fmt.Sprintf("%d.%d", l.version/1000, l.version%1000) }

var opened struct {
	sync.Mutex
	results map[string]func() (*library, error) // by Variable's value
}

// open finds and opens the library once for each value of Variable; later calls return the same.
func open(named string) (*library, error) {
	opened.Lock()
	if opened.results == nil {
		opened.results = map[string]func() (*library, error){}
	}
	result := opened.results[named]
	if result == nil {
		result = sync.OnceValues(func() (*library, error) { return search(named) })
		opened.results[named] = result
	}
	opened.Unlock()
	return result()
}

// search opens the library that is named, or the first one that serves of those that places lists.
func search(named string) (*library, error) {
	if named != "" {
		l, err := load(named)
		if err != nil {
			return nil, plugin.Errorf(plugin.Unsupported, "%s: %w", Variable, err)
		}
		return l, nil
	}
	var reasons []string
	for _, path := range places(os.Getenv) {
		l, err := load(path)
		if err == nil {
			return l, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, plugin.Errorf(plugin.Unsupported, "no UCX library was found (%s names one): %s", Variable,
		strings.Join(reasons, "; "))
}

// places lists the paths that the library may have, most likely first: the loader's, and those of pip's packages
// libucx-cu12 and -cu13.
func places(getenv func(string) string) []string {
	found := []string{soname}
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		root := getenv(name)
		if root == "" {
			continue
		}
		paths, err := filepath.Glob(filepath.Join(root, "lib", "python3*", "site-packages", "libucx", "lib", soname))
		if err != nil {
			continue // a root with characters of a pattern
		}
		slices.Sort(paths)
		slices.Reverse(paths) // newer versions of Python first
		found = append(found, paths...)
	}
	return found
}

// load opens one library and checks its version.
func load(path string) (*library, error) {
	if strings.Contains(path, "/") { // else the loader looks for it
		if err := shared.CheckFile(path); err != nil {
			var missing *fs.PathError
			if errors.As(err, &missing) {
				err = missing.Err // the path is said here
			}
			return nil, plugin.Errorf(plugin.Unsupported, "%s: %w", path, err)
		}
	}
	table := (*C.ux_table)(C.calloc(1, C.sizeof_ux_table)) // stays, as the library does
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.ux_load(name, table, &message[0], C.size_t(len(message))) != 0 {
		C.free(unsafe.Pointer(table))
		text := C.GoString(&message[0])
		if !strings.HasPrefix(text, path) { // as the loader's texts do
			text = path + ": " + text
		}
		return nil, plugin.Errorf(plugin.Unsupported, "%s", text)
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
