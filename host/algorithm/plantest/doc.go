// Package plantest runs plans of all ranks of a small world in one process and
// checks what they compute: each rank is a goroutine with an executor of its
// own over memory that all of them map. Tests of transports and of generic
// algorithms use it; it knows neither.
package plantest
