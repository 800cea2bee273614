// Command plugin is the shm transport as a process of its own.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/shm"
)

func main() { process.Serve(shm.Transport{}) }
