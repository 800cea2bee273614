//go:build !cgo

package cuda

// Without cgo the compiler says that this is undefined, beside what it misses itself.
var _ = shunt_needs_cgo_and_a_C_compiler
