//go:build !race

package host_test

// manyCalls go before a call of which ranks disagree.
const manyCalls = 1000
