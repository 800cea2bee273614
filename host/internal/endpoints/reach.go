package endpoints

import (
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// outOfReach returns the reason why a transport cannot reach the communicator's ranks, or need not, or "". All ranks
// return the same.
func (s *Set) outOfReach(info plugin.Info) string {
	const engine = plugin.FeatureMultiHost | plugin.FeatureExchange
	switch hosts := len(s.Topology.Hosts()); {
	case hosts > 1 && info.Features&plugin.FeatureMultiHost == 0:
		return "it reaches ranks of one host only"
	case hosts == 1 && s.Optional && s.Plans.Memory == plugin.MemoryKindHost && info.Features&engine == engine &&
		info.Features&plugin.FeatureMemory == 0:
		// It would cost every communicator its connections, and every first call a round of exchange.
		return "the ranks are on one host, whose memory they share; name it in SHUNT_TRANSPORTS to use it"
	}
	if reason, found := s.Topology.NoPeerAccess(); found && info.Features&plugin.FeaturePeerAccess != 0 {
		return reason
	}
	if a, b, g, shared := s.Topology.SharedGPU(); shared && info.Features&plugin.FeatureOwnGpu != 0 {
		return fmt.Sprintf("ranks %d and %d share GPU %s", a, b, g.PCI)
	}
	return ""
}

// hosts ends an error that the ranks' hosts may have caused: it names two of them. Of one host it is "".
func (s *Set) hosts() string {
	for rank, place := range s.Topology.Places {
		if first := s.Topology.Places[0]; place.HostID != first.HostID {
			return fmt.Sprintf("; rank 0 runs on host %s and rank %d on host %s, and containers with a network or a host name of "+
				"their own count as hosts", first.Host, rank, place.Host)
		}
	}
	return ""
}
