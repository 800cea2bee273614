package plantest

import "github.com/shunt-ccl/shunt/plugin"

// counts are element counts around the places where protocols change: none,
// one, odd, the ends of small slots, of exchange slots and of a few blocks.
var counts = []int64{0, 1, 3, 17, 0, 1023, 1024, 1025, 4097, 16385, 70001, 300007}

// Matrix returns a list of operations of one collective with one algorithm: all
// reduction ops, some dtypes, every root (large counts: one), and counts from
// 0 to a few MiB, in place and not.
func Matrix(c plugin.Collective, algorithm string, world int) []Operation {
	var list []Operation
	add := func(o Operation) {
		o.Collective, o.Algorithm = c, algorithm
		if !c.Rooted() {
			list = append(list, o)
			return
		}
		for o.Root = range world {
			if o.Count < 20000 || o.Root == int(o.Count)%world {
				list = append(list, o)
			}
		}
	}
	switch {
	case c == plugin.Barrier:
		add(Operation{DType: plugin.Uint8})
		add(Operation{DType: plugin.Uint8})
	case c == plugin.Send:
		return sends(algorithm, world)
	case c == plugin.Recv:
		// The other half of Send.
	case c.Reduces():
		for _, dtype := range []plugin.DType{plugin.Int32, plugin.Float32, plugin.Bfloat16, plugin.Uint8, plugin.Float64,
			plugin.Int64} {
			for op, last := plugin.OpSum, plugin.OpPremulSum; op <= last; op++ {
				if op == plugin.OpAvg && dtype == plugin.Bfloat16 && world&(world-1) != 0 {
					continue // not exact
				}
				for _, n := range []int64{0, 1, 131} {
					add(Operation{DType: dtype, Op: op, Scalar: 2, Count: n, Counts: varied(n, world), Gap: n % 5, InPlace: n%2 == 0})
				}
			}
		}
		for i, n := range counts {
			add(Operation{DType: plugin.Float32, Count: n, Counts: varied(n, world), InPlace: i%2 == 0})
			if n < 20000 {
				add(Operation{DType: plugin.Int8, Count: n, Counts: varied(n, world), InPlace: i%2 == 1})
			}
		}
	default:
		for i, n := range counts {
			inPlace := i%2 == 0 && c != plugin.AllToAll && c != plugin.AllToAllV
			add(Operation{DType: plugin.Uint8, Count: n, Counts: varied(n, world), Matrix: square(n, world), Gap: n % 3,
				InPlace: inPlace})
			if n > 20000 {
				n /= 2
			}
			add(Operation{DType: plugin.Int64, Count: n, Counts: varied(n, world), Matrix: square(n, world), Gap: n % 2})
		}
	}
	return list
}

// varied returns one count for each rank, up to most, among them 0.
func varied(most int64, world int) []int64 {
	list := make([]int64, world)
	for r := range list {
		list[r] = most * int64((r+1)%3) / 2
	}
	return list
}

// square returns one count for each pair, up to most, among them 0.
func square(most int64, world int) [][]int64 {
	list := make([][]int64, world)
	for from := range list {
		list[from] = make([]int64, world)
		for to := range list[from] {
			list[from][to] = most * int64((2*from+to)%4) / 3
		}
	}
	return list
}

// sends returns messages between all pairs, one at a time and in groups, where a
// rank sends to all and receives from all, itself included.
func sends(algorithm string, world int) []Operation {
	var list []Operation
	for _, n := range counts {
		message := Operation{Collective: plugin.Send, DType: plugin.Int32, Algorithm: algorithm, Count: n}
		group := Operation{}
		for from := range world {
			for to := range world {
				message.Root, message.Peer = from, to
				if from != to {
					list = append(list, message)
				}
				second := message
				second.Count /= 3
				group.Group = append(group.Group, message, second)
			}
		}
		list = append(list, group)
	}
	return list
}
