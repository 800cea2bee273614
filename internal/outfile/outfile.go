// Package outfile writes whole files at paths that a user names, and makes directories for temporary ones.
package outfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Write writes a file. A regular file is replaced in one step and keeps its mode: a reader sees the old text or the new
// one, and the old one stays where the disk is full. Symbolic links are followed. What is no regular file, such as a
// device or a FIFO, is written in place, and so is a file that cannot be replaced there. Standard output and standard
// error are continued.
func Write(path string, text []byte) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return replace(follow(path), text, nil)
	case err != nil:
		return err
	}
	for _, open := range []*os.File{os.Stdout, os.Stderr} {
		if at, err := open.Stat(); err == nil && os.SameFile(at, info) {
			_, err := open.Write(text)
			return err
		}
	}
	if !info.Mode().IsRegular() {
		return inPlace(path, text)
	}
	err = replace(follow(path), text, info)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EBUSY) { // such as of a folder, or a mounted file
		return inPlace(path, text)
	}
	return err
}

// Check returns why Write could not write at a path. It changes nothing and does not open what exists.
func Check(path string) error {
	info, err := os.Stat(path)
	exists := err == nil
	switch {
	case exists && info.IsDir():
		return &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR}
	case exists && !info.Mode().IsRegular():
		return unix.Access(path, unix.W_OK)
	}
	trial, err := create(follow(path), 0o600)
	if exists && errors.Is(err, fs.ErrPermission) {
		return unix.Access(path, unix.W_OK)
	}
	if err != nil {
		return err
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// follow returns where a symbolic link leads, also where there is nothing yet.
func follow(path string) string {
	for range 40 { // as many as Linux follows
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			folder, _ := filepath.Split(path)
			target = folder + target // not cleaned: ".." behind a link is not the folder of the link
		}
		path = target
	}
	return path
}

// create makes a temporary file beside a path.
func create(path string, mode fs.FileMode) (*os.File, error) {
	folder, name := filepath.Split(path)
	f, err := os.OpenFile(folder+"."+name+"."+rand.Text()[:10], os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	failure := (*fs.PathError)(nil)
	if errors.As(err, &failure) {
		failure.Path = path // which the user knows
	}
	return f, err
}

// replace puts a new file in the place of old, or where there is none for nil.
func replace(path string, text []byte, old fs.FileInfo) error {
	f, err := create(path, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && old != nil {
		err = f.Chmod(old.Mode().Perm())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func inPlace(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// MkdirTemp makes a directory for files that last as long as a command. Its error names TMPDIR, which chooses where.
func MkdirTemp(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	if err != nil {
		return "", fmt.Errorf("no directory for temporary files in %s: %w; "+
			"set TMPDIR to one that exists and can be written", os.TempDir(), err)
	}
	return dir, nil
}
