// Command shared is the cudaipc transport as a shared object with the C ABI; build
// it with -buildmode=c-shared.
package main

import (
	"github.com/shunt-ccl/shunt/plugin/shared/export"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
)

func init() { export.Transport(cudaipc.Transport{}) }

func main() {}
