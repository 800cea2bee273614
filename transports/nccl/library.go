package nccl

// #cgo CFLAGS: -I${SRCDIR}/../../plugin -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
// #cgo LDFLAGS: -ldl -lm
// #include <stdlib.h>
// #include "nccl.h"
import "C"

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/shared"
)

// Variable names the library, before all other places.
const Variable = "SHUNT_NCCL_LIBRARY"

const (
	soname = "libnccl.so.2"
	oldest = 21800 // as ncclGetVersion tells it
)

// library is an opened library of NCCL. It stays open for the rest of the process.
type library struct {
	path    string
	version int
	cuda    int // that it was built for, as the driver tells its own: 12040 is 12.4; 0: not known
	table   *C.nl_table
}

// wanted is the key of libraries that have been looked for.
type wanted struct {
	named  string // Variable's value
	driver int    // the driver's version of CUDA, 0: not known
}

var opened struct {
	sync.Mutex
	libraries map[wanted]*library
	errors    map[wanted]error
}

// open finds and opens the library once for each value of Variable; later calls return the same. driver is the driver's
// version of CUDA, or 0 where there is none to ask.
func open(named string, driver int) (*library, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.libraries == nil {
		opened.libraries, opened.errors = map[wanted]*library{}, map[wanted]error{}
	}
	key := wanted{named, driver}
	if l := opened.libraries[key]; l != nil {
		return l, nil
	}
	if err := opened.errors[key]; err != nil {
		return nil, err
	}
	l, err := search(named, driver)
	if err != nil {
		opened.errors[key] = err
		return nil, err
	}
	opened.libraries[key] = l
	return l, nil
}

// search opens the library that is named, or the first one that serves of those that places lists.
func search(named string, driver int) (*library, error) {
	if named != "" {
		l, err := load(named, driver)
		if err != nil {
			return nil, plugin.Errorf(plugin.Unsupported, "%s: %w", Variable, err)
		}
		return l, nil
	}
	var reasons []string
	for _, path := range places(os.Getenv) {
		l, err := load(path, driver)
		if err == nil {
			return l, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, plugin.Errorf(plugin.Unsupported, "no NCCL library was found (%s names one): %s", Variable,
		strings.Join(reasons, "; "))
}

// places lists the paths that the library may have, most likely first: the loader's, which the program uses if it
// calls NCCL itself, and those of pip's packages nvidia-nccl-cu12 and -cu13.
func places(getenv func(string) string) []string {
	found := []string{soname}
	var roots []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if root := getenv(name); root != "" {
			roots = append(roots, root)
		}
	}
	if home := getenv("HOME"); home != "" {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	for _, root := range append(roots, "/usr/local", "/usr") {
		for _, folder := range []string{"site-packages", "dist-packages"} {
			paths, err := filepath.Glob(filepath.Join(root, "lib", "python3*", folder, "nvidia", "nccl", "lib", soname))
			if err != nil {
				continue // a root with characters of a pattern
			}
			slices.Sort(paths)
			slices.Reverse(paths) // newer versions of Python first
			found = append(found, paths...)
		}
	}
	return found
}

// load opens one library and checks its version, and that the driver runs what it was built for.
func load(path string, driver int) (*library, error) {
	if strings.Contains(path, "/") { // else the loader looks for it
		if err := shared.CheckFile(path); err != nil {
			var missing *fs.PathError
			if errors.As(err, &missing) {
				err = missing.Err // the path is said here
			}
			return nil, plugin.Errorf(plugin.Unsupported, "%s: %w", path, err)
		}
	}
	table := (*C.nl_table)(C.calloc(1, C.sizeof_nl_table)) // stays, as the library does
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.nl_load(name, table, &message[0], C.size_t(len(message))) != 0 {
		C.free(unsafe.Pointer(table))
		text := C.GoString(&message[0])
		if !strings.HasPrefix(text, path) { // as the loader's texts do
			text = path + ": " + text
		}
		return nil, plugin.Errorf(plugin.Unsupported, "%s", text)
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

// built is how NCCL writes what it was built for, among its constants.
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
