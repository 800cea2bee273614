// Package device has what test ranks on GPUs share: a rank's driver, context and
// streams, memory with an image of it on the host, and captured graphs.
//
// Everything goes through cuda.Driver, so the same rank runs on a GPU and, with
// Use, on a driver in memory. Checks are made in stream order: Image.Push, the
// operations, Image.Pull, and then a wait for that stream, never for the device.
//
// Its tests are those of a job's life on GPUs: graphs and communicators that end
// in either order, long runs that must stay flat, the time and the memory that a
// communicator takes. Single operations are tests/conformance's, and breaking
// things is tests/internal/faults'.
package device
