package records

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// Each calls take for every report in a directory, by name, with the path and the text of its file. It returns the
// files that are none, and the error of take, at which it ends, or of the directory.
func Each(dir string, take func(path string, text []byte) error) ([]Skipped, error) {
	found, err := files(dir)
	var skipped []Skipped
	for _, path := range slices.Sorted(maps.Keys(found)) {
		text, err := readText(path)
		if err == nil {
			_, err = report.ReadHead(bytes.NewReader(text))
		}
		if err != nil {
			skipped = append(skipped, Skipped{path, short(err.Error())})
			continue
		}
		if err := take(path, text); err != nil {
			return skipped, err
		}
	}
	return skipped, err
}

// readText returns the text of a file, and one byte more than a report may have at most.
func readText(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // was only read
	return io.ReadAll(io.LimitReader(file, report.MaxReport+1))
}

// Add stores a report that ranks on another machine have left, under the name that it had there; where one of a third
// machine has that name, its own machine's is added to it. A reader of the directory sees the whole file or none.
func (d *Dir) Add(machine, name string, text []byte) error {
	if filepath.Base(name) != name || strings.HasPrefix(name, ".") || filepath.Ext(name) != report.Extension {
		return plugin.Errorf(plugin.Protocol, "%q is no name of a report; want NAME%s", name, report.Extension)
	}
	if from, taken := d.from[name]; taken && from != machine {
		name = strings.TrimSuffix(name, report.Extension) + "@" + machine + report.Extension
	}
	file, err := os.CreateTemp(d.Path, ".brought-*")
	if err != nil {
		return plugin.Errorf(plugin.System, "%w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(d.Path, name))
	}
	if err != nil {
		return plugin.Errorf(plugin.System, "%w", errors.Join(err, os.Remove(file.Name())))
	}
	if d.from == nil {
		d.from = map[string]string{}
	}
	d.from[name] = machine
	return nil
}
