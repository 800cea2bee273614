// Command shared is package sockets as a shared object.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/shared/export"
	"github.com/shunt-ccl/shunt/tests/internal/sockets"
)

func init() { export.Transport(sockets.Transport{}) }

func main() {}
