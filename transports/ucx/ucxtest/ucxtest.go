// Package ucxtest tells tests whether this machine has UCX.
package ucxtest

import (
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/ucx"
)

// Missing returns the reason why no UCX serves here, or "".
func Missing() string {
	return ucx.Transport{}.Supports(plugin.Request{Collective: plugin.Barrier, World: 2, Hosts: 2}).Reason
}
