//go:build race

package algorithm

// The race detector sees none of what the interpreter does, which is C; two worlds
// show it what makes plans and runs them.
var worlds = []int{2, 3}
