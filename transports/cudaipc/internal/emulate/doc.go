// Package emulate runs the kernels of transports/cudaipc/kernels on the CPU: their
// CUDA C++ is translated a little (translate.go), compiled by g++ beside a machine
// of fibers that stands for the GPUs (machine/), and checked there against a
// reference, with schedules and orders of stores that a seed decides. So protocols
// can be developed, and are tested, where there is no GPU. What the machine can
// and cannot show, machine/machine.h says. Nothing here is part of the library.
//
// SHUNT_EMULATE_KERNELS names another folder of kernels to test, and
// SHUNT_EMULATE_SEEDS says how many programs of each world to run. What a kernel
// does and how it is launched follows from its name; see machine/check.cc.
package emulate
