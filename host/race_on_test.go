//go:build race

package host_test

// callsBefore go before a call of which ranks disagree. The race detector makes ranks
// several times slower, and a few calls show it what none and many do.
var callsBefore = []int{20}
