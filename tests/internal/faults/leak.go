package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Resources counts what this process holds and could leak.
type Resources struct {
	Descriptors []string // what each open file descriptor refers to, sorted
	Mappings    []string // names of mapped memory files, one for each mapping, sorted
	Threads     int
	RSS         int64 // resident bytes, without pages of files on disk
	GoHeap      int64 // of RSS about what the Go runtime has, from the system and not given back
	DeviceFree  int64 // free bytes of device memory; 0 without a device
}

// deviceLeak is the loss of device memory that is allowed: below that of one
// communicator, above the 2112 KiB that were seen to stay, probably modules, which are
// kept loaded.
const deviceLeak = 8 << 20

// Measure looks at this process. Descriptors of pipes and of the Go runtime's
// poller are noted by kind, not by number, so that two measurements compare.
func Measure() (Resources, error) {
	var r Resources
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return r, err
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil {
			continue // the descriptor of this very directory
		}
		// "socket:[71342]", but "anon_inode:[eventpoll]"
		if kind, inode, ok := strings.Cut(target, ":["); ok && strings.Trim(inode, "0123456789]") == "" {
			target = kind
		}
		r.Descriptors = append(r.Descriptors, target)
	}
	slices.Sort(r.Descriptors)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(maps)) {
		if _, name, ok := strings.Cut(line, "/memfd:"); ok {
			r.Mappings = append(r.Mappings, "memfd:"+strings.TrimSpace(name))
		}
	}
	slices.Sort(r.Mappings)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.GoHeap = int64(m.Sys - m.HeapReleased)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return r, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSuffix(strings.TrimSpace(value), " kB")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case err != nil:
		case name == "Threads":
			r.Threads = int(n)
		case name == "RssAnon" || name == "RssShmem":
			r.RSS += n << 10
		}
	}
	return r, nil
}

// Since lists the descriptors, mappings and device memory that r has and before
// had not.
func (r Resources) Since(before Resources) []string {
	more := append(extra(r.Descriptors, before.Descriptors), extra(r.Mappings, before.Mappings)...)
	if lost := before.DeviceFree - r.DeviceFree; lost > deviceLeak {
		more = append(more, fmt.Sprintf("%d KiB of device memory", lost>>10))
	}
	return more
}

// extra returns the multiset difference of two sorted lists.
func extra(now, before []string) []string {
	var more []string
	for _, s := range now {
		if i, ok := slices.BinarySearch(before, s); ok {
			before = slices.Delete(slices.Clone(before), i, i+1)
		} else {
			more = append(more, s)
		}
	}
	return more
}

// System counts what a job could leave behind on the machine. Sockets without a
// name in a file system, and memory files, live as long as some process holds
// them; so a machine without the processes is without those too.
type System struct {
	Processes []string // "pid executable" of processes that run one of the given binaries
	Files     []string // entries of the given directories, and those of /dev/shm that speak of Shunt
}

// Survey looks at the machine. Processes are found by what they execute, so
// that a plugin counts that has lost its parent, its name and its environment.
// This process and its parent do not count.
func Survey(binaries, dirs []string) (System, error) {
	var s System
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() || pid == os.Getppid() {
			continue
		}
		if text, runs := process(e.Name(), binaries); runs {
			s.Processes = append(s.Processes, text)
		}
	}
	for _, dir := range append([]string{"/dev/shm"}, dirs...) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return s, err
		}
		for _, e := range entries {
			if dir != "/dev/shm" || strings.Contains(e.Name(), "shunt") {
				s.Files = append(s.Files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return s, nil
}

// process says whether a process runs one of the binaries. A zombie does not
// count: it has released everything and waits for its parent.
func process(pid string, binaries []string) (string, bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", false
	}
	if at := strings.LastIndexByte(string(stat), ')'); at < 0 || strings.HasPrefix(string(stat[at+1:]), " Z") {
		return "", false
	}
	exe, err := os.Readlink("/proc/" + pid + "/exe")
	if err != nil {
		return "", false
	}
	// A plugin may run from a sealed copy; then it is called by its binary's name.
	arguments, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		return "", false
	}
	name, _, _ := strings.Cut(string(arguments), "\x00")
	for _, binary := range binaries {
		if strings.TrimSuffix(exe, " (deleted)") == binary || name == binary {
			return pid + " " + exe, true
		}
	}
	return "", false
}

// Since lists what s has and before had not.
func (s System) Since(before System) []string {
	var more []string
	for _, p := range s.Processes {
		if !slices.Contains(before.Processes, p) {
			more = append(more, "process "+p)
		}
	}
	for _, f := range s.Files {
		if !slices.Contains(before.Files, f) {
			more = append(more, "file "+f)
		}
	}
	return more
}

func (r Resources) String() string {
	text := fmt.Sprintf("%d descriptors, %d mappings, %d threads, %d KiB resident, %d KiB of Go", len(r.Descriptors),
		len(r.Mappings), r.Threads, r.RSS>>10, r.GoHeap>>10)
	if r.DeviceFree > 0 {
		text += fmt.Sprintf(", %d KiB of device memory free", r.DeviceFree>>10)
	}
	return text
}
