//go:build !race

package faults

const raceDetector = false

// defaultLoops is how often each process is killed unless a flag says otherwise.
const defaultLoops = 2
