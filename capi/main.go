// Command capi is libshunt.so: the C interface of package host, built with
// -buildmode=c-shared. Its header is include/shunt.h.
//
// Every function of the header is a few lines of C (guard.c first of all:
// a forked child must not reach Go), which cross into the exports of this
// package, named go_*, once per call. What lives here is the crossing: handles
// and their generations, structs of C as those of host, messages. No
// collective is known here. Nothing here may link go-nvml, or anything else
// that leaves symbols unresolved: the library must load with RTLD_NOW.
package main

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fvisibility=hidden -I${SRCDIR}/include -I${SRCDIR}/../plugin
#cgo LDFLAGS: -lpthread -Wl,-z,now
#include "internal.h"
*/
import "C"

import (
	"log/slog"
	"path/filepath"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/internal/processors"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/shm"
	"github.com/shunt-ccl/shunt/transports/ucx"
)

// The builtin transports. No CUDA driver is loaded before an endpoint is opened.
func init() {
	host.Register(shm.Transport{})
	host.Register(cudaipc.Transport{})
	host.Register(nccl.Transport{})
	host.Register(ucx.Transport{})
	if file, err := filepath.EvalSymlinks(C.GoString(C.shunt_file())); err == nil {
		carrier.SetInstalled(filepath.Join(filepath.Dir(file), "shunt", "plugins"))
	}
	slog.SetDefault(logger)
	processors.Spare()
	C.shunt_is_up(1) // this package is initialized last
}

// main is not run: the build mode needs one.
func main() {}
