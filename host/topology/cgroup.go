package topology

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Limits are what the control groups of a process allow it.
type Limits struct {
	CPUs   float64 // CPU time, in CPUs; 0: no limit
	Memory int64   // bytes; 0: no limit
}

// noLimit is less than what version 1 has for memory without a limit.
const noLimit = 1 << 60

// ControlGroups returns the limits of this process, of versions 1 and 2.
func ControlGroups(root fs.FS) Limits {
	var l Limits
	text := func(dir, name string) string {
		b, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", dir, name))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	cpus := func(quota, period string) {
		q, errQ := strconv.ParseFloat(quota, 64)
		p, errP := strconv.ParseFloat(period, 64)
		if errQ == nil && errP == nil && q > 0 && p > 0 && (l.CPUs == 0 || q/p < l.CPUs) {
			l.CPUs = q / p
		}
	}
	memory := func(limit string) {
		if n, err := strconv.ParseInt(limit, 10, 64); err == nil && n > 0 && n < noLimit && (l.Memory == 0 || n < l.Memory) {
			l.Memory = n
		}
	}
	look := func(controller, dir string) {
		switch controller {
		case "": // version 2
			if quota, period, ok := strings.Cut(text(dir, "cpu.max"), " "); ok {
				cpus(quota, period)
			}
			memory(text(dir, "memory.max"))
		case "cpu":
			cpus(text(dir, "cpu.cfs_quota_us"), text(dir, "cpu.cfs_period_us"))
		case "memory":
			memory(text(dir, "memory.limit_in_bytes"))
		}
	}
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return l
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			// The folder may have the names of the list in another order, and links have one each.
			for _, mount := range []string{fields[1], controller, "cpu,cpuacct"} {
				// Every group up to the root may limit. Inside a container the path may
				// not be visible; then only the root of what is mounted counts.
				for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
					look(controller, path.Join(mount, dir))
					if dir == "/" {
						break
					}
				}
			}
		}
	}
	return l
}
