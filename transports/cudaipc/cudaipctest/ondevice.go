package cudaipctest

import "github.com/shunt-ccl/shunt/plugin"

// readCounts fills counts from device memory, where addresses are those of send counts
// and displacements, then receive counts and displacements, in elements, of memory with
// those capacities. An invalid count fails the call and is reported.
func (c *call) readCounts(addresses [4]uint64, element int64, capacities [2]int64) {
	read := func(array, p int) int64 { return int64(loadBits(memory(addresses[array]+uint64(8*p), 8), 8)) }
	wrong := func(p, side int, count, displ, room int64) {
		c.contradict(plugin.FaultCounts, p, [3]uint64{uint64(count), uint64(displ), uint64(side)}, [3]uint64{uint64(room)})
		c.lost = true
	}
	for p := range c.world {
		for side := range 2 {
			count, displ, room := read(2*side, p), int64(0), capacities[side]
			if addresses[2*side+1] != 0 {
				displ = read(2*side+1, p)
			} else {
				for q := range p {
					displ += read(2*side, q)
				}
			}
			if count < 0 || displ < 0 || count > room || (count > 0 && displ > room-count) {
				wrong(p, side, count, displ, room)
				return
			}
			if count == 0 {
				displ = 0
			}
			c.counts[2*side][p], c.counts[2*side+1][p] = count*element, displ*element
		}
		if sent, received := c.counts[0][p], c.counts[2][p]; p == c.rank && sent != received {
			wrong(p, 2, sent/element, 0, received/element)
			return
		}
	}
}

// allToAllVOnDevice moves nothing if the counts cannot be.
func allToAllVOnDevice(c *call) {
	if !c.lost {
		c.allToAllV(true)
	}
}
