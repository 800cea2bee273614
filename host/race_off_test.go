//go:build !race

package host_test

// callsBefore go before a call of which ranks disagree.
var callsBefore = []int{0, 1000}
