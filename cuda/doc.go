// Package cuda is the CUDA driver API, NVRTC and the few NVML calls that Shunt
// needs, found at run time: building needs no toolkit and no header, and a
// machine without a driver gets an error that says so.
//
// Driver is the interface; Open returns the real one, cudatest.New one in memory for
// tests. The driver's calls are thin: what belongs together crosses into C once, the
// caller's current context is always restored, and a function that the installed
// driver does not have is an error that names it and the driver's version. Nothing
// here knows about ranks, plans or kernels of Shunt.
//
// Handles (Context, Stream, Event, …) are the driver's own pointers, so a
// stream of an application can be used as it is. They are not reference
// counted: the caller that makes one destroys it.
package cuda
