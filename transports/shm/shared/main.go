// Command shared is the shm transport as a shared object with the C ABI; build
// it with -buildmode=c-shared.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/shared/export"
	"github.com/shunt-ccl/shunt/transports/shm"
)

func init() { export.Transport(shm.Transport{}) }

func main() {}
