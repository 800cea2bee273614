package shared

/*
#cgo CFLAGS: -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -I${SRCDIR}/.. -Wall -Wextra -Wno-unused-parameter
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "sigurg.h"
#include "table.h"
*/
import "C"

import (
	"cmp"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/noexec"
)

// loaded are the objects in this process, by their handle: the same file again
// is the same transport. Its lock also makes loaders take turns, which the
// hand-over of SIGURG needs.
var loaded struct {
	sync.Mutex
	transports map[unsafe.Pointer]*transport
}

// Open loads the transport at path, or finds it if this process has loaded it
// before. It stays loaded for the life of the process. Every refusal is an
// error with code PluginRejected that names the file and the reason. logger
// may be nil.
func Open(path string, logger *slog.Logger) (plugin.Transport, error) {
	if logger == nil {
		logger = slog.Default()
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, rejected(path, "%w", err)
	}
	path = absolute
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, rejected(path, "%w", err)
	case !info.Mode().IsRegular():
		return nil, rejected(path, "it is not a regular file")
	}
	if err := cmp.Or(noexec.Check(path), CheckFile(path)); err != nil {
		return nil, rejected(path, "%w", err)
	}
	loaded.Lock()
	defer loaded.Unlock()
	// dlerror speaks of the calling thread's last call.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	handle, err := load(path, logger)
	if err != nil {
		return nil, err
	}
	if t, ok := loaded.transports[handle]; ok {
		return t, nil
	}
	var symbolBytes C.uint64_t
	table := C.shunt_table_find(handle, &symbolBytes)
	if table == nil {
		return nil, rejected(path, "it has no symbol %s: %s", C.SHUNT_TRANSPORT_SYMBOL, C.GoString(C.shunt_table_error()))
	}
	t, err := adopt(path, table, uint64(symbolBytes))
	if err != nil {
		return nil, err
	}
	t.logger = logger.With("transport", t.info.Name)
	if loaded.transports == nil {
		loaded.transports = map[unsafe.Pointer]*transport{}
	}
	loaded.transports[handle] = t
	return t, nil
}

// load opens a shared object, and does what a second Go runtime in the process needs.
func load(path string, logger *slog.Logger) (unsafe.Pointer, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	result := C.shunt_sigurg_load(name)
	switch {
	case result.full != 0:
		return nil, rejected(path, "this process holds too many Go runtimes, at most %d", C.SHUNT_MAX_RUNTIMES)
	case result.handle == nil:
		return nil, rejected(path, "%s", C.GoString(C.shunt_table_error()))
	}
	ready := C.shunt_table_ready(result.handle) != 0
	if result.took_over != 0 {
		if ready {
			C.shunt_sigurg_join()
		} else {
			logger.Warn("a shared object took SIGURG and has no ready function; its own runtime, if it is Go, cannot preempt loops",
				"path", path, "function", C.SHUNT_TRANSPORT_READY_SYMBOL)
		}
	}
	return result.handle, nil
}

func rejected(path, format string, args ...any) error {
	return plugin.Errorf(plugin.PluginRejected, "shared transport %s: "+format, append([]any{path}, args...)...)
}
