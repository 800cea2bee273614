//go:build race

package faults

// raceDetector is whether the race detector is on. Its shadow memory grows with
// every page that was ever touched, so resident memory says nothing then.
const raceDetector = true
