package process

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/noexec"
)

// executable is the file to execute: a path, and the open file that keeps it valid.
type executable struct {
	path string
	file *os.File // nil: path is a plain path
}

func (b *executable) close() {
	if b != nil && b.file != nil {
		b.file.Close()
	}
}

// openExecutable finds the executable. With a checksum, the file is copied into
// sealed memory while it is hashed, and that copy runs: writing the file after the
// check, or even during it, changes nothing.
func openExecutable(path, checksum string) (*executable, error) {
	reject := func(format string, args ...any) (*executable, error) {
		return nil, plugin.Errorf(plugin.PluginRejected, format, args...)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return reject("plugin %s: %w", path, err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return reject("plugin: %w", err)
	case !info.Mode().IsRegular():
		return reject("plugin %s is not a regular file", path)
	case info.Mode()&0o111 == 0:
		return reject("plugin %s is not executable", path)
	case checksum == "":
		if err := noexec.Check(path); err != nil {
			return reject("plugin %s: %w", path, err)
		}
		return &executable{path: path}, nil
	}
	want, err := hex.DecodeString(checksum)
	if err != nil || len(want) != sha256.Size {
		return reject("plugin %s: its pinned checksum %q is not %d hexadecimal digits", path, clip(checksum, 80),
			2*sha256.Size)
	}
	source, err := os.Open(path)
	if err != nil {
		return reject("plugin: %w", err)
	}
	defer source.Close()
	copied, got, err := sealedCopy(source, filepath.Base(path))
	if err != nil {
		return reject("plugin %s: %w", path, err)
	}
	if subtle.ConstantTimeCompare(got, want) != 1 {
		copied.Close()
		return reject("plugin %s has checksum %x, pinned is %x", path, got, want)
	}
	var magic [2]byte
	if n, _ := copied.ReadAt(magic[:], 0); n == 2 && bytes.Equal(magic[:], []byte("#!")) {
		copied.Close()
		return reject("plugin %s is a script; a pinned plugin must be a binary", path)
	}
	return &executable{path: fmt.Sprintf("/proc/self/fd/%d", copied.Fd()), file: copied}, nil
}

// minDescriptor keeps the copy's descriptor clear of the first few, which the
// child's own standard descriptors replace before it is executed.
const minDescriptor = 64

func sealedCopy(source io.Reader, name string) (*os.File, []byte, error) {
	if len(name) > 200 {
		name = name[:200]
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // kernels before 6.3 do not know MFD_EXEC and need none
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, nil, os.NewSyscallError("memfd_create", err)
	}
	writable := os.NewFile(uintptr(fd), name)
	defer writable.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(writable, hash), source); err != nil {
		return nil, nil, err
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(writable.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, nil, os.NewSyscallError("seal", err)
	}
	// Opened again for reading: a file that someone may write cannot be executed.
	low, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", writable.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open", err)
	}
	defer unix.Close(low)
	high, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, minDescriptor)
	if err != nil {
		return nil, nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(high), name), hash.Sum(nil), nil
}
