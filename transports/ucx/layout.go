package ucx

// layout says where what lies in an endpoint's region.
type layout struct {
	world int
	piece int64 // bytes of one piece of a reduction
	bytes int64 // of the region
}

const (
	entryBytes = 32 // of ux_entry
	page       = 4096
)

// pieceBytes returns the size of the pieces in which reductions come: large enough for a network's bandwidth, in a few
// megabytes for all ranks.
func pieceBytes(world int) int64 { return min(512<<10, max(16<<10, 4<<20/int64(world)/page*page)) }

func layoutOf(world int) layout {
	l := layout{world: world, piece: pieceBytes(world)}
	l.bytes = l.outgoing(world)
	return l
}

// The table comes first, then a piece from each rank, then one to each rank.
func (l layout) tableBytes() int64 { return (int64(l.world)*entryBytes + page - 1) / page * page }

func (l layout) incoming(rank int) int64 { return l.tableBytes() + int64(rank)*l.piece }

func (l layout) outgoing(rank int) int64 { return l.incoming(l.world) + int64(rank)*l.piece }
