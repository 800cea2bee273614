// Command plugin is the nccl transport as a process of its own.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/nccl"
)

func main() { process.Serve(nccl.Staged{}) }
