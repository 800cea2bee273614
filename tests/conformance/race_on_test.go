//go:build race

package conformance_test

// The race detector makes ranks several times slower; two worlds show what it
// can see.
var worlds = []int{2, 3}
