// Command plugin is the transport stuck as a process of its own. Where it is stuck is
// what its file is named: stuck-prepare.
package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/tests/internal/stuck"
)

func main() {
	phase := strings.TrimPrefix(filepath.Base(os.Args[0]), "stuck-")
	process.Serve(stuck.Transport{Phase: func() string { return phase }})
}
