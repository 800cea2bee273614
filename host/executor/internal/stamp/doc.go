// Package stamp writes what an operation leaves in the control page and in the
// flight recorder, from Go, in a form that other threads and processes may read at
// any time: in assembly, because Go's compiler may drop a store that another one
// follows, and its atomic stores are locked instructions of 7 ns each. Nothing
// else may live here.
package stamp
