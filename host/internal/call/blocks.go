package call

import "github.com/shunt-ccl/shunt/plugin"

// Blocks calls note with the bytes that the rank sends to, or receives from, each other rank, in collectives with a
// count for each rank.
func (call *Call) Blocks(rank, world int, note func(peer int, sends bool, bytes int64)) {
	if !call.Collective.Varying() {
		return
	}
	gives, expects := call.Arrays[:world], call.Arrays[2*world:3*world]
	for peer := range world {
		if peer == rank {
			continue
		}
		toIt, fromIt := peer, peer
		sends, receives := true, true
		switch call.Collective {
		case plugin.GatherV:
			sends, receives = call.Root == peer, call.Root == rank
		case plugin.ScatterV:
			sends, receives = call.Root == rank, call.Root == peer
		case plugin.AllGatherV: // every block belongs to its rank
			gives, toIt = expects, rank
		case plugin.ReduceScatterV: // every block is for its rank
			expects, fromIt = gives, rank
		}
		if sends {
			note(peer, true, gives[toIt])
		}
		if receives {
			note(peer, false, expects[fromIt])
		}
	}
}
