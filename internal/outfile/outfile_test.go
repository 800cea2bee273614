package outfile

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, Check(path))
	require.NoError(t, Write(path, []byte("one")))
	require.Equal(t, "one", read(t, path))
	require.NoError(t, os.Chmod(path, 0o600))
	old, err := os.Open(path)
	require.NoError(t, err)
	defer old.Close()
	require.NoError(t, Check(path))
	require.NoError(t, Write(path, []byte("two")))
	require.Equal(t, "two", read(t, path))
	text, err := io.ReadAll(old)
	require.NoError(t, err)
	require.Equal(t, "one", string(text), "who reads the old file sees all of it")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file is left")
	require.ErrorIs(t, Check(dir), syscall.EISDIR)
	require.ErrorIs(t, Write(dir, nil), syscall.EISDIR)
	require.ErrorIs(t, Check(filepath.Join(dir, "absent", "x")), os.ErrNotExist)
	require.ErrorIs(t, Write(filepath.Join(dir, "absent", "x"), nil), os.ErrNotExist)
	require.ErrorIs(t, Write(filepath.Join(path, "x"), nil), syscall.ENOTDIR)
}

// Links stay, also where the file that they lead to does not exist yet, or lies in another folder.
func TestWriteFollowsLinks(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("a/b", 0o700))
	require.NoError(t, os.Symlink("a/b", "folder"))
	for link, target := range map[string]string{"relative": "a/b/x", "behind": "folder/../y", "a/up": "../z",
		"twice": "relative"} {
		require.NoError(t, os.Symlink(target, link))
	}
	for link, file := range map[string]string{"relative": "a/b/x", "behind": "a/y", "a/up": "z", "twice": "a/b/x"} {
		for _, text := range []string{"one", "two"} {
			require.NoError(t, Check(link))
			require.NoError(t, Write(link, []byte(text)))
			info, err := os.Lstat(link)
			require.NoError(t, err)
			require.Equal(t, os.ModeSymlink, info.Mode().Type(), link)
			require.Equal(t, text, read(t, file), link)
		}
	}
	require.NoError(t, os.Symlink("loop", "loop"))
	require.ErrorIs(t, Write("loop", nil), syscall.ELOOP)
}

func TestWriteInPlace(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	link := fifo + ".link"
	require.NoError(t, os.Symlink("fifo", link))
	for _, path := range []string{fifo, link} {
		require.NoError(t, Check(path), "it waits for no reader")
		got := make(chan string, 1)
		go func() {
			text, _ := os.ReadFile(fifo) //nolint:errcheck // the text tells
			got <- string(text)
		}()
		require.NoError(t, Write(path, []byte("text")))
		require.Equal(t, "text", <-got)
		info, err := os.Stat(fifo)
		require.NoError(t, err)
		require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	}
	require.NoError(t, Check(os.DevNull))
}

// Standard output that leads to a file continues behind what was written.
func TestWriteStandardOutput(t *testing.T) {
	if os.Getenv("OUTFILE_TEST") != "" {
		for _, path := range []string{"/dev/stdout", "/dev/stderr"} {
			os.Stdout.WriteString("before\n")
			if Write(path, []byte("text\n")) != nil {
				os.Exit(1)
			}
		}
		os.Stdout.WriteString("after\n")
		os.Exit(0)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	var stderr strings.Builder
	cmd := exec.Command(self, "-test.run=^TestWriteStandardOutput$")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "OUTFILE_TEST=1"), f, &stderr
	require.NoError(t, cmd.Run())
	require.Equal(t, "before\ntext\nbefore\nafter\n", read(t, path))
	require.Equal(t, "text\n", stderr.String())
}

// A full disk leaves the old text.
func TestWriteFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, Write(path, []byte("old")))
	if os.Getenv("OUTFILE_TEST") == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command("sh", "-c", `ulimit -f 1; trap '' XFSZ; exec "$0" -test.run='^TestWriteFailure$'`, self)
		cmd.Env = append(os.Environ(), "OUTFILE_TEST=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.ErrorIs(t, Write(path, make([]byte, 1<<20)), syscall.EFBIG)
	require.Equal(t, "old", read(t, path))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// A file that may be written, in a folder that may not be.
func TestWriteWithoutTheFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("a longer text"), 0o600))
	require.NoError(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	require.NoError(t, Check(path))
	require.NoError(t, Write(path, []byte("new")))
	require.Equal(t, "new", read(t, path))
	require.ErrorIs(t, Write(path+"2", nil), os.ErrPermission)
	require.ErrorIs(t, Check(path+"2"), os.ErrPermission)
}

// A place where no directory can be made is named, and what chooses it.
func TestMkdirTempNamesItsPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, place := range []string{"/nonexistent", file, "/proc"} {
		t.Setenv("TMPDIR", place)
		_, err := MkdirTemp("shunt-")
		require.ErrorContains(t, err, "in "+place+": ")
		require.ErrorContains(t, err, "set TMPDIR to one that exists")
	}
	place := t.TempDir()
	t.Setenv("TMPDIR", place)
	dir, err := MkdirTemp("shunt-")
	require.NoError(t, err)
	require.Equal(t, place, filepath.Dir(dir))
}
