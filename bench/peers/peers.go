// Package peers holds the programs by which other libraries are measured, with
// the same sizes, data types and clock as `shunt bench`. They are compiled
// when they are needed. What runs and compares them is cmd/shunt.
package peers

import _ "embed"

// OpenMPI is the C source of the Open MPI program; its head says how to
// compile it and what it prints.
//
//go:embed openmpi/mpi.c
var OpenMPI []byte
