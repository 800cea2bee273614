// Command shared is the nccl transport as a shared object with the C ABI; build it
// with -buildmode=c-shared.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/shared/export"
	"github.com/shunt-ccl/shunt/transports/nccl"
)

func init() { export.Transport(nccl.Transport{}) }

func main() {}
