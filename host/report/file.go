package report

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Extension ends the names of the files that reports are in.
const Extension = ".json"

// maxStem is the most bytes of a communicator's label in a file's name.
const maxStem = 160

// shownOfJob is how many digits of the job a file's name has, as the summary of records shows.
const shownOfJob = 8

// FileName returns the name of a report's file: the communicator's label, the start of the job, if it has one, and the
// rank, as in "world.5fc0a1e2.3.json" and "world_1.0.5fc0a1e2.3.json" for world/1.0. Two labels of a job never give one
// name, and a name is always that of a file of the directory it is put into.
func (h *Head) FileName() string {
	name := plain(h.Communicator)
	if len(name) > maxStem {
		sum := sha256.Sum256([]byte(h.Communicator))
		name = fmt.Sprintf("%s~%x", name[:maxStem], sum[:8])
	}
	if h.Job != "" {
		name += "." + plain(h.Job[:min(len(h.Job), shownOfJob)])
	}
	return fmt.Sprintf("%s.%d%s", name, h.Rank, Extension)
}

// plain writes text, which may be another process's, as a part of a file's name.
func plain(text string) string {
	var name strings.Builder
	for i := range len(text) {
		switch b := text[i]; {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '-', b == '.' && i > 0:
			name.WriteByte(b)
		case b == '/':
			name.WriteByte('_')
		default:
			fmt.Fprintf(&name, "%%%02X", b)
		}
	}
	return name.String()
}

// WriteFile writes the report into a directory, which is made if need be. A reader sees the whole file or none. An
// older one of that name is replaced.
func (r Report) WriteFile(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return plugin.Errorf(plugin.System, "%w", err)
	}
	unfinished := filepath.Join(dir, fmt.Sprintf(".%s.%d-%x", r.FileName(), os.Getpid(), time.Now().UnixNano()))
	file, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return plugin.Errorf(plugin.System, "%w", err)
	}
	err = errors.Join(r.WriteJSON(file), file.Close())
	if err == nil {
		err = os.Rename(unfinished, filepath.Join(dir, r.FileName()))
	}
	if err != nil {
		return plugin.Errorf(plugin.System, "%w", errors.Join(err, os.Remove(unfinished)))
	}
	return nil
}
