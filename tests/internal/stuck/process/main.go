// Command plugin is the transport stuck as a process of its own. Where it is stuck is
// what its file is named: stuck-prepare. Named dies-prepare it ends there instead.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/tests/internal/stuck"
)

func main() {
	how, phase, _ := strings.Cut(filepath.Base(os.Args[0]), "-")
	process.Serve(stuck.Transport{Phase: func() string { return phase }, Dies: how == "dies"})
}
