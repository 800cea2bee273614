package host

import (
	"strings"

	"golang.org/x/sys/unix"
)

// ReplaceProcessRead puts another function in the kernel's place where ranks
// find out whether they can read each other's memory, and returns how to undo
// it. No communicator may be in the making.
func ReplaceProcessRead(f func(pid int, here []unix.Iovec, there []unix.RemoteIovec, flags uint) (int, error)) (undo func()) {
	before := processRead
	processRead = f
	return func() { processRead = before }
}

// Refused is what a rank's control page says of the call that it refused last.
func Refused(c *Communicator, rank int) string {
	return strings.TrimPrefix(c.refusalOf(rank), "; ")
}

// Collectives is how many collectives this rank has counted.
func Collectives(c *Communicator) uint64 { return c.collectives }
