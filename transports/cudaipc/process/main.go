// Command plugin is the cudaipc transport as a process of its own.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
)

func main() { process.Serve(cudaipc.Transport{}) }
