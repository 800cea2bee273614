// Package processors sets up Go's scheduler for programs whose Go runtime is Shunt's own: libshunt.so and the command.
// A Go program sets up its own, so package host does not use this package.
package processors

import (
	"os"
	"runtime"
)

// Variable is the environment variable that sets the number of Go's processors.
const Variable = "GOMAXPROCS"

// Spare makes Go's runtime use at least two processors, unless the user has set their
// number: where one is idle, Go's monitor thread leaves a call into C of less than 10 ms
// alone. A process bound to one CPU would have one, and pay some 5 µs for every 50 µs in
// C; see docs/decisions/0008-go-monitor.md.
func Spare() {
	if os.Getenv(Variable) == "" && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2)
	}
}
