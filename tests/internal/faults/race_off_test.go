//go:build !race

package faults

const raceDetector = false

// defaultLoops is how often each process is killed unless it is told.
const defaultLoops = 2
