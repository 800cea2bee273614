//go:build race

package faults

// raceDetector is whether the race detector is on. Its shadow memory grows with
// every page that was ever touched, so resident memory says nothing then.
const raceDetector = true

// defaultLoops is how often each process is killed unless it is told.
const defaultLoops = 1
