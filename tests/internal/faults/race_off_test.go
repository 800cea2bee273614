//go:build !race

package faults

const raceDetector = false

// defaultLoops is the number of times that each process is killed unless a flag says otherwise.
const defaultLoops = 2
