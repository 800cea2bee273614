package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// eachMember calls f with every process of a rank, and the rank. Those that are not in the rank's group, as timeout and
// shells with job control put programs, are known by the session, which is the launcher's, and by the job and the rank
// in the environment that they began with. Where there is no /proc, or this user may not read that, none is found.
func (r *running) eachMember(f func(rank int, p *os.Process)) {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // of what it has read before an error
	session, err := unix.Getsid(0)
	if err != nil {
		return
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if of, err := unix.Getsid(pid); err != nil || of != session {
			continue
		}
		p, err := os.FindProcess(pid) // before it is looked at: no other process gets the signal of one that has ended
		if err != nil {
			continue
		}
		if rank := r.rankOf(name); rank >= 0 {
			f(rank, p)
		}
		_ = p.Release()
	}
}

// rankOf returns which rank here the environment of a process names, or -1.
func (r *running) rankOf(pid string) int {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
	env := "\x00" + string(text)
	if err != nil || !strings.Contains(env, "\x00SHUNT_ID="+r.id+"\x00") {
		return -1
	}
	_, after, _ := strings.Cut(env, "\x00SHUNT_RANK=")
	number, _, _ := strings.Cut(after, "\x00")
	rank, err := strconv.Atoi(number)
	if rank -= r.number(0); err != nil || rank < 0 || rank >= r.job.World {
		return -1
	}
	return rank
}

// endMembers kills the processes of a rank that has ended, and what that starts meanwhile.
func (r *running) endMembers(rank int) {
	killed := map[int]bool{} // such a process starts no other, and may take long to end
	for before := -1; before < len(killed); {
		before = len(killed)
		r.eachMember(func(of int, p *os.Process) {
			if of == rank && !killed[p.Pid] {
				killed[p.Pid] = true
				_ = p.Signal(syscall.SIGKILL)
			}
		})
	}
}
