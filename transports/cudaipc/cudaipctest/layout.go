package cudaipctest

// #include "../kernels/layout.h"
import "C"

// What kernels/layout.h says of regions.
const (
	maxRanks    = C.SHUNT_MAX_RANKS
	directoryAt = C.SHUNT_OFF_EXPORTS
	pipesAt     = C.SHUNT_OFF_SLOTS
	deliveredAt = C.SHUNT_OFF_DELIVERED
	combinedAt  = C.SHUNT_OFF_COMBINED
	turnAt      = C.SHUNT_OFF_TURN
)
