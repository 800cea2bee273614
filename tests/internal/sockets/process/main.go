// Command process is package sockets as a plugin's process.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/process"
	"github.com/shunt-ccl/shunt/tests/internal/sockets"
)

func main() { process.Serve(sockets.Transport{}) }
