// Package records sums up what the ranks of a failed communicator ran last: it
// reads the files that they left (SHUNT_RECORDS_DIR), puts ranks that were in the
// same call together, and words the whole for a person. Files are other processes'
// work and may hold anything; what is said of them stays short and printable.
//
// What a report holds, and what makes one impossible, is host/report's.
package records

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/printable"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// Bounds of what is read and kept.
const (
	maxFiles = 1 << 16
	maxText  = 700 // characters of one text of a report
)

// Dir is a directory into which the ranks of a job that is about to start write.
type Dir struct {
	Path   string // absolute
	lock   *os.File
	before map[string]os.FileInfo
	from   map[string]string // the machines of what was added, by name
}

// Make makes the directory if need be, and remembers what is in it. It fails while another job has the directory: what
// comes after is taken for this one's. Close it when the job has ended.
func Make(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(path, 0o777)
	}
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "directory of records: %w", err)
	}
	lock, err := os.Open(path)
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "directory of records: %w", err)
	}
	// Other errors are of file systems without locks.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = lock.Close()
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"another shunt run writes its records into %s; name a directory for each job", path)
	}
	before, err := files(path)
	return &Dir{Path: path, lock: lock, before: before}, err
}

// Close leaves the directory to other jobs.
func (d *Dir) Close() { _ = d.lock.Close() }

// Read sums up the files that have come since Make.
func (d *Dir) Read() (Summary, error) {
	found, err := files(d.Path)
	var paths []string
	for path, info := range found {
		if old, ok := d.before[path]; !ok || !os.SameFile(old, info) || !old.ModTime().Equal(info.ModTime()) {
			paths = append(paths, path)
		}
	}
	return read(paths), err
}

// Read sums up files, and those in directories. It fails where one of them cannot
// be looked at; of a file that holds no report the summary tells.
func Read(paths ...string) (Summary, error) {
	var all []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return Summary{}, plugin.Errorf(plugin.InvalidArgument, "%w", err)
		}
		if !info.IsDir() {
			all = append(all, path)
			continue
		}
		found, err := files(path)
		if err != nil {
			return Summary{}, err
		}
		for path := range found {
			all = append(all, path)
		}
	}
	return read(all), nil
}

// files returns the paths of the files of a directory that may be reports.
func files(dir string) (map[string]os.FileInfo, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "%w", err)
	}
	entries, err := d.ReadDir(maxFiles + 1)
	_ = d.Close() // was only read
	if len(entries) == 0 {
		return nil, nil // err is io.EOF then
	}
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "%w", err)
	}
	if len(entries) > maxFiles {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%s holds more than %d files", dir, maxFiles)
	}
	found := map[string]os.FileInfo{}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || filepath.Ext(name) != report.Extension || strings.HasPrefix(name, ".") {
			continue
		}
		if info, err := entry.Info(); err == nil { // else it has gone meanwhile
			found[filepath.Join(dir, name)] = info
		}
	}
	return found, nil
}

// read reads files, in the order of their names.
func read(paths []string) Summary {
	slices.Sort(paths)
	var heads []report.Head
	var skipped []Skipped
	for _, path := range slices.Compact(paths) {
		h, err := readFile(path)
		if err != nil {
			skipped = append(skipped, Skipped{path, err.Error()})
			continue
		}
		heads = append(heads, h)
	}
	return Summary{Communicators: Summarize(heads), Skipped: skipped}
}

func readFile(path string) (report.Head, error) {
	info, err := os.Stat(path) // opening what is no file may take for ever
	if err != nil {
		return report.Head{}, err
	}
	if !info.Mode().IsRegular() {
		return report.Head{}, plugin.Errorf(plugin.InvalidArgument, "not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return report.Head{}, err
	}
	defer func() { _ = file.Close() }() // was only read
	h, err := report.ReadHead(file)
	h.Failure = strings.Clone(short(h.Failure)) // not the long text that it may be cut from
	return h, err
}

// short makes text of another process fit to stand in a line of ours.
func short(text string) string {
	if len(text) > 8*maxText {
		text = text[:8*maxText]
	}
	clean := []rune(printable.Line(text))
	if len(clean) > maxText {
		return string(clean[:maxText]) + "…"
	}
	return string(clean)
}
