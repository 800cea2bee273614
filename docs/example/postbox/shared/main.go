// Command shared is postbox as a shared object; build it with
// -buildmode=c-shared.
package main

import (
	"github.com/shunt-ccl/shunt/docs/example/postbox"
	"github.com/shunt-ccl/shunt/plugin/shared/export"
)

func init() { export.Transport(postbox.Transport{}) }

func main() {}
