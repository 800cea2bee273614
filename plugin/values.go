package plugin

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The tables are generated; this file has the names of their values, and the properties of collectives and types.

func nameOf[T ~int32 | ~uint16 | ~uint32 | ~uint64](names map[T]string, v T) string {
	if name, ok := names[v]; ok {
		return name
	}
	return "unknown(" + strconv.FormatInt(int64(v), 10) + ")"
}

func parse[T ~uint32](what string, names map[T]string, name string) (T, error) {
	for v, n := range names {
		if n == name {
			return v, nil
		}
	}
	known := make([]string, 0, len(names))
	for _, v := range slices.Sorted(maps.Keys(names)) {
		known = append(known, names[v])
	}
	return 0, Errorf(InvalidArgument, "unknown %s %q; known are %s", what, name, strings.Join(known, ", "))
}

// ParseDType turns a dtype's name into its value. An unknown name is
// InvalidArgument, with all known ones, here and below.
func ParseDType(name string) (DType, error) { return parse("dtype", dTypeNames, name) }

// ParseOp turns a reduction op's name into its value.
func ParseOp(name string) (Op, error) { return parse("reduction op", opNames, name) }

// ParseCollective turns a collective's name into its value.
func ParseCollective(name string) (Collective, error) {
	return parse("collective", collectiveNames, name)
}

// String names the bits that are set, joined by "|"; "none" for no bit.
func (v Feature) String() string {
	var names []string
	for _, f := range Features() {
		if v&f != 0 {
			names = append(names, featureNames[f])
			v &^= f
		}
	}
	if v != 0 {
		names = append(names, "unknown("+strconv.FormatUint(uint64(v), 10)+")")
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, "|")
}

// Bytes returns the size of one element, or 0 for a value outside the table.
func (v DType) Bytes() int64 {
	if int(v) < len(dTypeBytes) {
		return dTypeBytes[v]
	}
	return 0
}

// Valid reports whether v is in the table.
func (v DType) Valid() bool { return int(v) < len(dTypeBytes) }

// Valid reports whether v is in the table.
func (v Op) Valid() bool { return v <= OpPremulSum }

// Valid reports whether v is in the table.
func (v Collective) Valid() bool { return v <= Wait }

// Rooted reports whether the collective takes a root.
func (v Collective) Rooted() bool {
	switch v {
	case Reduce, Broadcast, Gather, GatherV, Scatter, ScatterV:
		return true
	}
	return false
}

// Reduces reports whether the collective takes a reduction op.
func (v Collective) Reduces() bool {
	switch v {
	case AllReduce, Reduce, ReduceScatter, ReduceScatterV:
		return true
	}
	return false
}

// Varying reports whether the collective takes a count for each rank.
func (v Collective) Varying() bool {
	switch v {
	case AllGatherV, ReduceScatterV, AllToAllV, GatherV, ScatterV:
		return true
	}
	return false
}

// Pairwise reports whether ranks know the lengths of their own messages only, so that
// the two ends of each must be compared.
func (v Collective) Pairwise() bool {
	switch v {
	case Send, Recv, AllToAllV, GatherV, ScatterV:
		return true
	}
	return false
}

// OneSided reports whether the operation works on a window, so that the peer makes no call that belongs to it.
func (v Collective) OneSided() bool {
	switch v {
	case Put, Get, Signal, Wait:
		return true
	}
	return false
}

// PointToPoint reports whether the operation involves one peer only, so that
// ranks may issue different sequences of them.
func (v Collective) PointToPoint() bool {
	return v == Send || v == Recv || v.OneSided()
}
