// Package search finds the shared library of an engine that NVIDIA, a distribution or Python brings along, and opens
// it once.
//
// What lives here: where such libraries lie, which one is taken, what is said when none serves. What may not: a call of
// any of them. A transport has a table of its own, which its load function fills.
package search

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
	"github.com/shunt-ccl/shunt/plugin/shared"
)

// Library is a library to look for. T is the type of it once it is open.
type Library[T any] struct {
	Name     string // as people call it
	Variable string // of the environment, which names the library before all other places
	Soname   string // as the loader finds it
	Package  string // of Python, below site-packages: the folder with the library

	mu      sync.Mutex
	results map[string]func() (T, error)
}

// Open finds and opens a library once for each value of Variable; later calls return the same. load opens the library
// at a path, or has the loader look for a name. Results for other keys are kept apart: load depends on what they stand
// for.
func (s *Library[T]) Open(key string, load func(path string) (T, error)) (T, error) {
	named := environment.Get(s.Variable)
	s.mu.Lock()
	if s.results == nil {
		s.results = map[string]func() (T, error){}
	}
	key = named + "\x00" + key
	result := s.results[key]
	if result == nil {
		result = sync.OnceValues(func() (T, error) { return s.first(named, load) })
		s.results[key] = result
	}
	s.mu.Unlock()
	return result()
}

// first opens the library that is named, or the first one that serves of those that Places lists.
func (s *Library[T]) first(named string, load func(path string) (T, error)) (T, error) {
	var none T
	if named != "" {
		l, err := s.at(named, load)
		if err != nil {
			return none, plugin.Errorf(plugin.Unsupported, "%s: %w", s.Variable, err)
		}
		return l, nil
	}
	var reasons []string
	for _, path := range s.Places(environment.Get) {
		l, err := s.at(path, load)
		if err == nil {
			return l, nil
		}
		reasons = append(reasons, err.Error())
	}
	return none, plugin.Errorf(plugin.Unsupported, "no %s library was found (%s names one): %s", s.Name, s.Variable,
		strings.Join(reasons, "; "))
}

// literal makes a pattern of a path that matches that path alone.
var literal = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`)

// Places lists the paths that the library may have, most likely first: the loader's, which the program uses if it calls
// the library itself, and those of pip's packages.
func (s *Library[T]) Places(getenv func(string) string) []string {
	found := []string{s.Soname}
	var roots []string
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if root := getenv(name); root != "" {
			roots = append(roots, root)
		}
	}
	if home := getenv("HOME"); home != "" {
		roots = append(roots, filepath.Join(home, ".local"))
	}
	for _, root := range append(roots, "/usr/local", "/usr") {
		for _, folder := range []string{"site-packages", "dist-packages"} {
			paths, _ := filepath.Glob(filepath.Join(literal.Replace(root), "lib", "python3*", folder, s.Package, s.Soname))
			slices.Sort(paths)
			slices.Reverse(paths) // newer versions of Python first
			found = append(found, paths...)
		}
	}
	return found
}

// at opens one library. A path, unlike a name for the loader, has to be a file of the right kind.
func (s *Library[T]) at(path string, load func(path string) (T, error)) (l T, err error) {
	if strings.Contains(path, "/") {
		if err := shared.CheckFile(path); err != nil {
			var missing *fs.PathError
			if errors.As(err, &missing) {
				err = missing.Err // the path is said here
			}
			return l, plugin.Errorf(plugin.Unsupported, "%s: %w", path, err)
		}
	}
	return load(path)
}

// Unloadable returns the error of a library that cannot be opened, for a text such as dlerror's.
func Unloadable(path, text string) error {
	if !strings.HasPrefix(text, path) { // as the loader's texts do
		text = path + ": " + text
	}
	return plugin.Errorf(plugin.Unsupported, "%s", text)
}
