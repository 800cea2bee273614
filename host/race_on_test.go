//go:build race

package host_test

// fewer returns some of a test's cases: the race detector makes ranks several times
// slower, and it looks at accesses, which a few cases show as well as all.
func fewer[T any](cases ...T) []T { return cases[len(cases)/2:] }

// callsBefore go before a call of which ranks disagree. The race detector makes ranks
// several times slower, and a few calls show it what none and many do.
var callsBefore = []int{20}

// oncePerStep has a sweep take each thing once that may go wrong in a step: that it goes wrong later too shows the race
// detector nothing else.
const oncePerStep = true
