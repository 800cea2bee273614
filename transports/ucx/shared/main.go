// Command shared is the ucx transport as a shared object with the C ABI; build it
// with -buildmode=c-shared.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/shared/export"
	"github.com/shunt-ccl/shunt/transports/ucx"
)

func init() { export.Transport(ucx.Transport{}) }

func main() {}
