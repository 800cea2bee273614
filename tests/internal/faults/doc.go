// Package faults breaks jobs on purpose and looks at what is left.
//
// Ranks are processes of tests/pool. A test kills or stops one, or one of its
// plugins, at a random moment in traffic; takes descriptors or memory away from
// one; has a plugin respond to nothing but pings; keeps one from joining. Every
// survivor must soon return an error that names the failed rank; and afterwards no
// process, socket, memory file, mapping or entry of /dev/shm may remain. Soak tests
// run one job for long and look for growth.
//
// What lives here is the faults, the traffic they meet and the search for
// leaks. How many rounds a test makes is a flag, as in
//
//	go test ./tests/internal/faults -faults.loops=200
package faults
