//go:build race

package faults

// raceDetector says whether the race detector is on. Its shadow memory grows with
// every page that was ever touched, so resident memory says nothing then.
const raceDetector = true

// defaultLoops is the number of times that each process is killed unless a flag says otherwise.
const defaultLoops = 1
