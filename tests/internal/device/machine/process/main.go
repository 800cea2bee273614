// Command plugin is the cudaipc transport as a process of its own, on the GPUs
// that test ranks have: real ones, or some in memory.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
)

func main() { process.Serve(machine.Transport()) }
