package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// processes are the transports that can run in a process of their own, for cmd/shunt-transport.
var processes = []plugin.Transport{shm.Transport{}, cudaipc.Transport{}, nccl.Staged{}}

// serveTransport makes this process a plugin and does not return, if it was started under the name of one.
func serveTransport() {
	name, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "shunt-transport-")
	if !ok {
		return
	}
	i := slices.IndexFunc(processes, func(t plugin.Transport) bool { return t.Info().Name == name })
	if i < 0 {
		fmt.Fprintf(os.Stderr, "%s: the command shunt has no transport %q for a process of its own\n", os.Args[0], name)
		os.Exit(exitUsage)
	}
	process.Serve(processes[i])
	os.Exit(exitOK)
}
