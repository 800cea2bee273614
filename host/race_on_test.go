//go:build race

package host_test

// manyCalls go before a call of which ranks disagree. The race detector makes ranks
// several times slower, and a few show it what many do.
const manyCalls = 20
