package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// The file of a file:// meeting place: four lines that say where the store is
// and which process runs it, so that a file left by a dead job is recognised.
//
//	shunt rendezvous 1
//	id <unique id>
//	process <boot id> <pid namespace> <pid> <start time>
//	end
const (
	fileHeader   = "shunt rendezvous 1"
	maxFileBytes = 1024
)

func encodeFile(id UniqueID, p processID) []byte {
	word := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	return fmt.Appendf(nil, "%s\nid %s\nprocess %s %s %d %s\nend\n", fileHeader, id, word(p.boot), word(p.namespace),
		p.pid, word(p.start))
}

func decodeFile(b []byte) (UniqueID, processID, error) {
	bad := func(why string) (UniqueID, processID, error) {
		return UniqueID{}, processID{}, plugin.Errorf(plugin.Protocol, "not a rendezvous file: %s", why)
	}
	lines := strings.Split(string(b), "\n")
	if len(b) > maxFileBytes || len(lines) != 5 || lines[0] != fileHeader || lines[3] != "end" || lines[4] != "" {
		return bad("wrong header or length")
	}
	text, ok := strings.CutPrefix(lines[1], "id ")
	if !ok {
		return bad("the id is missing")
	}
	id, err := ParseID(text)
	if err != nil {
		return bad(err.Error())
	}
	words := strings.Split(lines[2], " ")
	if len(words) != 5 || words[0] != "process" {
		return bad("the process is missing")
	}
	pid, err := strconv.ParseUint(words[3], 10, 31)
	if err != nil {
		return bad("malformed pid")
	}
	word := func(s string) string {
		if s == "-" {
			return ""
		}
		return s
	}
	return id, processID{boot: word(words[1]), namespace: word(words[2]), pid: int(pid), start: word(words[4])}, nil
}

// readFileBounded reads a rendezvous file of this user, never more than its
// greatest size, never through a link and never from a device.
func readFileBounded(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%s is not a regular file", path)
	}
	if uid, ok := ownerOf(info); ok && uid != os.Geteuid() {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%s belongs to user %d, not to user %d", path, uid, os.Geteuid())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// claimFile checks that rank 0 may write a rendezvous file: nothing is there, or what a job has left that has ended or
// could not start.
func claimFile(path string, logger *slog.Logger) error {
	b, err := readFileBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return plugin.Errorf(plugin.System, "rendezvous file %s: %w", path, err)
	}
	if _, is := decodeFailure(b); is {
		return nil
	}
	_, owner, err := decodeFile(b)
	if err != nil {
		return plugin.Errorf(plugin.InvalidArgument,
			"rendezvous file %s: it is there and is something else (%w); remove it or choose another path", path, err)
	}
	if owner.inUseBeside(thisProcess()) {
		return plugin.Errorf(plugin.InvalidArgument,
			"rendezvous file %s: in use by a job whose rank 0 is process %d; choose another path", path, owner.pid)
	}
	logger.Info("rendezvous: replacing the file of a job that has ended", "path", path, "pid", owner.pid)
	return nil
}

// inUseBeside reports whether a process that has left a file may still run beside this one. Where /proc does not say
// that it has ended, a number that no process has here is enough: the file of another host is replaced as well.
func (p processID) inUseBeside(self processID) bool {
	return !p.ended() && p.boot == self.boot && p.namespace == self.namespace && p.pid != self.pid &&
		!errors.Is(unix.Kill(p.pid, 0), unix.ESRCH)
}

// hostFile opens a store and leaves its id in a file, readable by this user alone, which is removed when the store
// ends. Where it could accept no connection, its error takes the id's place.
func hostFile(path string, logger *slog.Logger) (*Root, error) {
	s := secret(newNonce())
	root, err := newRoot(s, storeID{}, []place{{"tcp", ":0"}}, logger)
	if err != nil {
		return nil, err
	}
	id := UniqueID{secret: s}
	addresses, err := reachable(root.hub.listener.Addr())
	if err == nil {
		copy(id.addresses[:], addresses)
		err = writeFile(path, encodeFile(id, thisProcess()))
	}
	if err != nil {
		root.Close()
		return nil, plugin.Errorf(plugin.System, "rendezvous file %s: %w", path, err)
	}
	root.store.mu.Lock()
	root.store.onStop = append(root.store.onStop, func() {
		root.store.mu.Lock()
		failure := root.store.failure
		if !root.store.deaf {
			failure = nil
		}
		root.store.mu.Unlock()
		if failure != nil {
			leaveFailure(path, failure, logger)
		} else {
			removeFile(path, id, logger)
		}
	})
	root.store.mu.Unlock()
	return root, nil
}

// writeFile puts a file in place in one step: a reader sees all of it or none.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// removeFile removes the file unless another job has replaced it.
func removeFile(path string, id UniqueID, logger *slog.Logger) {
	b, err := readFileBounded(path)
	if err == nil {
		var there UniqueID
		if there, _, err = decodeFile(b); err == nil && there == id {
			err = os.Remove(path)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("rendezvous: file not removed", "path", path, "reason", err)
	}
}

// storeOf returns where the store is that has left a file.
func storeOf(path string) (m meeting, is bool) {
	b, err := readFileBounded(path)
	if err != nil {
		return m, false
	}
	id, _, err := decodeFile(b)
	return meetingOf(id), err == nil
}

// readFile learns from the file where the store is.
func (j *joiner) readFile() error {
	path := j.meeting.file
	b, err := readFileBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return plugin.Errorf(plugin.Protocol, "the file is not there yet")
	}
	if err != nil {
		return plugin.Errorf(plugin.InvalidArgument, "rendezvous file %s: %w", path, err)
	}
	if f, is := decodeFailure(b); is {
		return j.failedToServe(f)
	}
	id, owner, err := decodeFile(b)
	if err != nil {
		return plugin.Errorf(plugin.Protocol, "rendezvous file %s: %w", path, err)
	}
	if owner.ended() {
		return plugin.Errorf(plugin.Protocol, "the file was left by process %d, which has ended", owner.pid)
	}
	found := meetingOf(id)
	j.meeting.secret, j.meeting.places = found.secret, found.places
	// The file may be of an earlier job that is just ending, so its store's "no"
	// is not the last word.
	j.meeting.once = false
	return nil
}
