// Command plugin is the transport stuck as a process of its own. Where it is stuck is
// what its file is named: stuck-prepare. Named dies-prepare it is killed there instead, named stops-prepare stopped.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/tests/internal/stuck"
)

func main() {
	how, phase, _ := strings.Cut(filepath.Base(os.Args[0]), "-")
	process.Serve(stuck.New(func() string { return phase },
		map[string]unix.Signal{"dies": unix.SIGKILL, "stops": unix.SIGSTOP}[how]))
}
