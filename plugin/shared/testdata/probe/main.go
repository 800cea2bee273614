// Command probe is the probe transport as a shared object.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
	"github.com/shunt-ccl/shunt/plugin/shared/export"
)

func init() { export.Transport(probe.Transport{}) }

func main() {}
