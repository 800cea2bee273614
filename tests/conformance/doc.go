// Package conformance proves a transport.
//
// Run starts worlds of real processes, makes them load one transport by one
// carrier, and runs a matrix of cases on them: every collective, dtype, op,
// size, place, root, world and algorithm, in a covering design, and scenarios
// of several operations. Inputs are predictable, so every byte of every buffer
// is checked after every case, guards and gaps included. Test does the same as
// subtests, for a transport author's own package:
//
//	func TestMain(m *testing.M) {
//		pool.Main() // ranks are copies of this binary
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		conformance.Test(t, conformance.Config{Transport: "shared:/path/to/libshunt_mine.so"})
//	}
//
// A builtin transport must be registered by the binary, with host.Register.
//
// What lives here is the definition of a case, its expected result, and the
// report of a run. Processes and deadlines are in tests/pool. References are computed
// from definitions; no code of a transport or of the executor is used.
package conformance
