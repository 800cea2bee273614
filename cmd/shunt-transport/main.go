// Command shunt-transport is, under the name shunt-transport-NAME, the transport NAME as a process of its own, where
// Shunt was installed from a wheel or an archive: it becomes the command shunt of the same installation, which has all
// transports. The kernels, 30 MB, are then there once less. Elsewhere transports/NAME/process is built.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	err := become()
	fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	os.Exit(1)
}

// become returns only if it fails.
func become() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if strings.HasPrefix(self, "/memfd:") {
		return fmt.Errorf("a checksum was pinned, but this file runs the command shunt, which the checksum does not cover; " +
			"pin a plugin that is built from transports/NAME/process")
	}
	shunt := filepath.Join(filepath.Dir(self), "..", "..", "..", "bin", "shunt")
	args := append([]string{filepath.Base(self)}, os.Args[1:]...)
	return &os.PathError{Op: "run", Path: shunt, Err: unix.Exec(shunt, args, os.Environ())}
}
