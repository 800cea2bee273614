package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		dir, err := os.MkdirTemp("", "shunt-nccl")
		if err != nil {
			return nil, plugin.Errorf(plugin.System, "--nccl: %w", err)
		}
		return &preload{library, dir}, nil
	}
	return nil, plugin.Errorf(plugin.System, "--nccl: there is no libnccl.so.2 in %s beside %s; `make build` makes one",
		strings.Join(placesOfNCCL, ", "), folder)
}

// env returns the environment of the ranks. Libraries that they were to load anyway are loaded behind this one.
func (p *preload) env(getenv func(string) string) []string {
	all := p.library
	if others := getenv("LD_PRELOAD"); others != "" {
		all += ":" + others
	}
	return []string{"LD_PRELOAD=" + all, "SHUNT_NCCL_REPORT_DIR=" + p.dir}
}

func (p *preload) remove() { _ = os.RemoveAll(p.dir) } // a leftover in the temporary directory harms nobody

// verdict says that the library was not used, and why as far as is known; it is empty where it was.
func (p *preload) verdict() string {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return err.Error()
	}
	var programs []string
	other, used := "", false
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(p.dir, entry.Name()))
		if err != nil {
			continue
		}
		switch filepath.Ext(entry.Name()) {
		case ".loaded":
			programs = append(programs, string(text))
		case ".used":
			used = true
		case ".other":
			other = string(text)
		}
	}
	slices.Sort(programs)
	names := strings.Join(slices.Compact(programs), ", ")
	switch {
	case used:
		return ""
	case len(programs) == 0:
		return "no process loaded " + p.library + ": the program is static or setuid, or it clears LD_PRELOAD"
	case other != "":
		return "no communicator was made through " + p.library + "; " + other +
			" was loaded too, and may have served the program (" + names + ")"
	}
	return "the program (" + names + ") made no NCCL communicator"
}
