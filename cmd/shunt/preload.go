package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/internal/outfile"
	"github.com/shunt-ccl/shunt/plugin"
)

// preload is Shunt's NCCL-compatible library, loaded into every process of a job, and the directory in which these
// say what became of it.
type preload struct{ library, dir string }

// placesOfNCCL are the folders of the library as seen from the command's: of the checkout, and of an installation.
var placesOfNCCL = []string{"nccl", "../lib/shunt/nccl", "../lib"}

func newPreload() (*preload, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "--nccl: %w", err)
	}
	return preloadBeside(filepath.Dir(self))
}

func preloadBeside(folder string) (*preload, error) {
	for _, place := range placesOfNCCL {
		library := filepath.Join(folder, place, "libnccl.so.2")
		if _, err := os.Stat(library); err != nil {
			continue
		}
		dir, err := outfile.MkdirTemp("shunt-nccl")
		if err != nil {
			return nil, plugin.Errorf(plugin.System, "--nccl: %w", err)
		}
		p := &preload{library, dir}
		if err := p.link(); err != nil {
			p.remove()
			return nil, err
		}
		return p, nil
	}
	return nil, plugin.Errorf(plugin.System, "--nccl: there is no libnccl.so.2 in %s beside %s; `make build` makes one",
		strings.Join(placesOfNCCL, ", "), folder)
}

// separators are what LD_PRELOAD is split at. The loader knows no way to quote them.
const separators = " :"

// path is the library's in LD_PRELOAD: if that cannot name it, a link's in the directory of the reports. The library
// looks for libshunt.so up to two folders above, which have to be this user's too.
func (p *preload) path() string {
	if strings.ContainsAny(p.library, separators) {
		return filepath.Join(p.dir, "lib/shunt/nccl", filepath.Base(p.library))
	}
	return p.library
}

// link makes the link of path, if there is to be one.
func (p *preload) link() error {
	path := p.path()
	if path == p.library {
		return nil
	}
	if strings.ContainsAny(path, separators) {
		return plugin.Errorf(plugin.System, "--nccl: LD_PRELOAD cannot name %s, nor a link to it in %s, because of spaces "+
			"or colons; set TMPDIR to a folder without them", p.library, p.dir)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(p.library, path)); err != nil {
		return plugin.Errorf(plugin.System, "--nccl: %w", err)
	}
	return nil
}

// env returns what is added to the ranks' environment. Libraries that they were to load anyway are
// loaded behind this one.
func (p *preload) env(environment []string) []string {
	all := p.path()
	for _, entry := range slices.Backward(environment) { // the last of a name counts
		if others, ok := strings.CutPrefix(entry, "LD_PRELOAD="); ok {
			all = strings.TrimSuffix(all+":"+others, ":")
			break
		}
	}
	return []string{"LD_PRELOAD=" + all, "SHUNT_NCCL_REPORT_DIR=" + p.dir}
}

func (p *preload) remove() { _ = os.RemoveAll(p.dir) } // a leftover in the temporary directory does no harm

// preloadState says whether processes of one machine loaded and used the library.
type preloadState struct {
	Library  string   `json:"library"`
	Programs []string `json:"programs"` // that loaded it
	Other    string   `json:"other"`    // NCCL library that one loaded too
	Used     bool     `json:"used"`     // for a communicator
	Trouble  string   `json:"trouble"`  // why the processes could not say whether they loaded it
}

func (p *preload) state() (preloadState, error) {
	s := preloadState{Library: p.library}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return s, plugin.Errorf(plugin.System, "--nccl: %w", err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(p.dir, entry.Name()))
		if err != nil {
			continue
		}
		switch filepath.Ext(entry.Name()) {
		case ".loaded":
			s.Programs = append(s.Programs, string(text))
		case ".used":
			s.Used = true
		case ".other":
			s.Other = string(text)
		}
	}
	if err := p.takesFiles(); err != nil {
		s.Trouble = err.Error()
	}
	slices.Sort(s.Programs)
	s.Programs = slices.Compact(s.Programs)
	return s, nil
}

// takesFiles returns why nothing can be written into the directory of the reports, such as a full file system.
func (p *preload) takesFiles() error {
	name := filepath.Join(p.dir, "probe")
	err := os.WriteFile(name, make([]byte, 4096), 0o600)
	return errors.Join(err, os.RemoveAll(name))
}

// verdict says that the library was not used, and why as far as is known; it is empty where it was.
func (p *preload) verdict() string {
	s, err := p.state()
	if err != nil {
		return err.Error()
	}
	return s.verdict()
}

func (s *preloadState) verdict() string {
	names := strings.Join(s.Programs, ", ")
	switch {
	case s.Used:
		return ""
	case s.Trouble != "":
		return "it is not known whether a program used " + s.Library + ": its report could not be written: " + s.Trouble
	case len(s.Programs) == 0:
		return "no process loaded " + s.Library + ": the program is static or setuid, or it clears LD_PRELOAD"
	case s.Other != "":
		return "no communicator was made through " + s.Library + "; " + s.Other +
			" was loaded too, and may have served the program (" + names + ")"
	}
	return "the program (" + names + ") made no NCCL communicator"
}
