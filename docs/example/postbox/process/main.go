// Command process is postbox as a process of its own.
package main

import (
	"github.com/shunt-ccl/shunt/docs/example/postbox"
	"github.com/shunt-ccl/shunt/plugin/process"
)

func main() { process.Serve(postbox.Transport{}) }
