package cudaipctest

// #include "../kernels/layout.h"
// static int64_t ll128_at(int world) { return SHUNT_OFF_LL128(world); }
// static int64_t channels_at(int world) { return SHUNT_OFF_CHANNEL(world); }
// static int64_t staging_at(int world) { return SHUNT_OFF_STAGING(world); }
import "C"

import "github.com/shunt-ccl/shunt/transports/cudaipc/internal/parts"

// What kernels/layout.h says of regions.
const (
	maxRanks    = C.SHUNT_MAX_RANKS
	directoryAt = C.SHUNT_OFF_EXPORTS
	deliveredAt = C.SHUNT_OFF_DELIVERED
	combinedAt  = C.SHUNT_OFF_COMBINED
	turnAt      = C.SHUNT_OFF_TURN
)

// pipesIn returns the offset of the pipes of a kernel that uses these parts of a region: in the first of them, so that
// the kernel needs the memory that the real one needs.
func pipesIn(used parts.Set, world int) uint64 {
	switch n := C.int(world); {
	case used&parts.LL128 != 0:
		return uint64(C.ll128_at(n))
	case used&parts.Channel != 0:
		return uint64(C.channels_at(n))
	case used&parts.Staging != 0:
		return uint64(C.staging_at(n))
	}
	return C.SHUNT_OFF_SLOTS
}
