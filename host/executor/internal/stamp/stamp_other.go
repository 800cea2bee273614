//go:build !amd64

package stamp

import "unsafe"

// Available reports whether this processor has the rest of this package.
const Available = false

// Write is never called where it is not available.
func Write(_, _, _, _, _ unsafe.Pointer, _ uint64) uint64 { return 0 }
