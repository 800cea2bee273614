//go:build portable

package main

import "github.com/shunt-ccl/shunt/cuda"

// The table of NVML that libshunt.so uses. What runs on every Linux is linked by zig, which makes no program of the
// symbols that go-nvml leaves unresolved.
var openManagement = cuda.OpenManagement
