package call

import "github.com/shunt-ccl/shunt/plugin"

// Identity holds the properties of a call that are equal on all ranks, in the order of its record, and a hash of the
// counts that are. Counts that belong to a pair of ranks are not part of it: they are compared as lengths of messages.
type Identity struct{ What, How, Count, Counts uint64 }

// Identify sets the identity of a checked call.
func (call *Call) Identify(world int) {
	op, root, count := plugin.Op(0), 0, call.Count
	if call.Collective.Reduces() {
		op = call.Op
	}
	if call.Collective.Rooted() {
		root = call.Root
	}
	if call.Collective.Varying() || call.OnDevice {
		count = 0
	}
	counts := uint64(0)
	switch {
	case call.OnDevice:
	case call.Collective == plugin.AllGatherV:
		counts = hashed(call.Arrays[2*world : 3*world])
	case call.Collective == plugin.ReduceScatterV:
		counts = hashed(call.Arrays[:world])
	}
	call.Identity = Identity{uint64(call.Collective) | uint64(call.RecordedType())<<32,
		uint64(op) | uint64(uint32(root))<<32, uint64(count), counts}
}

func hashed(counts []int64) uint64 {
	hash := uint64(0)
	for _, n := range counts {
		hash = Identity{Count: uint64(n)}.On(hash)
	}
	return hash
}

// On returns the hash of a call on top of the hash of those before.
func (i Identity) On(hash uint64) uint64 {
	hash = (hash ^ i.What) * 0x9E3779B97F4A7C15
	hash = (hash ^ hash>>32 ^ i.How) * 0xC2B2AE3D27D4EB4F
	hash = (hash ^ hash>>29 ^ i.Count ^ i.Counts) * 0x165667B19E3779F9
	return hash ^ hash>>32
}
