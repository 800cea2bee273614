//go:build !race

package host_test

// fewer returns a test's cases, all of them; see race_on_test.go.
func fewer[T any](cases ...T) []T { return cases }

// callsBefore go before a call of which ranks disagree.
var callsBefore = []int{0, 1000}

// oncePerStep has a sweep take each thing once that may go wrong in a step.
const oncePerStep = false
