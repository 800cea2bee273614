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
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return l
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		// Every group up to the root may limit. Inside a container the path may
		// not be visible; then only the root of what is mounted counts.
		for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
			base := path.Join(fields[1], dir)
			switch fields[1] {
			case "":
				if quota, period, ok := strings.Cut(text(base, "cpu.max"), " "); ok {
					cpus(quota, period)
				}
				memory(text(base, "memory.max"))
			case "cpu,cpuacct", "cpu":
				cpus(text(base, "cpu.cfs_quota_us"), text(base, "cpu.cfs_period_us"))
			case "memory":
				memory(text(base, "memory.limit_in_bytes"))
			}
			if dir == "/" {
				break
			}
		}
	}
	return l
}
