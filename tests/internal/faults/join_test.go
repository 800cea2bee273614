package faults

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestRankThatNeverJoinsIsNamed(t *testing.T) {
	for _, absent := range []int{0, 2} {
		t.Run(fmt.Sprintf("absent=%d", absent), func(t *testing.T) {
			w := newWorld(t, 3)
			r := w.meet(builtin, time.Second)
			r.Absent = absent
			start := time.Now()
			replies, result := w.ask("faults open", r, 20*time.Second, nil)
			if err := result.Err(); err != nil {
				t.Fatal(err)
			}
			for rank, a := range replies {
				if rank == absent {
					continue
				}
				if a.Code != plugin.Timeout || !strings.Contains(a.Message, fmt.Sprintf("rank %d", absent)) &&
					!strings.Contains(a.Message, fmt.Sprintf("ranks %d", absent)) {
					t.Errorf("rank %d: %s: %s", rank, a.Code, a.Message)
				}
				if took := a.At.Sub(start); took < 500*time.Millisecond || took > time.Second+soon {
					t.Errorf("rank %d: the error came after %v", rank, took)
				}
				if len(a.Leaks) > 0 {
					t.Errorf("rank %d still holds %v", rank, a.Leaks)
				}
			}
		})
	}
}

func TestRankThatStaysOutOfACallIsNamed(t *testing.T) {
	w := newWorld(t, 3)
	const timeout = 4 * time.Second // of joining too, in which no rank stays away
	r := w.meet(builtin, timeout)
	w.mustAsk("faults open", r, 20*time.Second)
	r.Absent = 1
	start := time.Now()
	replies, result := w.ask("faults traffic", r, 15*time.Second, nil)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	for rank, a := range replies {
		if a.Code != plugin.Timeout || !strings.Contains(a.Message, "rank 1") {
			t.Errorf("rank %d: %s: %s", rank, a.Code, a.Message)
		}
		if took := a.At.Sub(start); took > timeout+soon {
			t.Errorf("rank %d: the error came after %v", rank, took)
		}
	}
}

// Every number of spare descriptors makes joining fail at another place, until there are enough. Wherever it is, all
// ranks must agree. Only a rank that cannot even open a socket has no connection over which to agree; it is missed.
func TestDescriptorLimitIsAnAgreedError(t *testing.T) {
	w := newWorld(t, 3)
	failed := 0
	for spare := range 40 {
		if *loops < 10 && spare%4 != 0 {
			continue // a quick run
		}
		r := w.meet(builtin, 20*time.Second)
		r.Limited, r.Spare = spare%3, spare
		began := time.Now()
		replies, result := w.ask("faults limit", r, 20*time.Second, nil)
		if err := result.Err(); err != nil {
			t.Fatalf("%d spare descriptors on rank %d: %v", spare, r.Limited, err)
		}
		for rank, a := range replies {
			if a.Code != plugin.OK && (a.Code != plugin.OutOfMemory || !strings.Contains(a.Message, "too many open files")) {
				t.Errorf("%d spare descriptors on rank %d: rank %d has %s: %s", spare, r.Limited, rank, a.Code, a.Message)
			}
			if a.Code != plugin.OK && a.At.Sub(began) > soon {
				t.Errorf("%d spare descriptors on rank %d: rank %d has its error after %v", spare, r.Limited, rank, a.At.Sub(began))
			}
			if a.Code != replies[0].Code {
				t.Errorf("%d spare descriptors on rank %d: rank 0 has %s (%s), rank %d has %s (%s)",
					spare, r.Limited, replies[0].Code, replies[0].Message, rank, a.Code, a.Message)
			}
			if len(a.Leaks) > 0 {
				t.Errorf("%d spare descriptors on rank %d: rank %d still holds %v", spare, r.Limited, rank, a.Leaks)
			}
		}
		if replies[0].Code != plugin.OK {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no limit was low enough to fail")
	}
}

// Shared memory files do not come from /dev/shm, so containers with a tiny one
// work. The test gives a copy of itself one of a page, filled.
func TestFullDevShmDoesNotMatter(t *testing.T) {
	if os.Getenv("FAULTSTEST_TINY_SHM") != "" {
		if err := os.WriteFile("/dev/shm/fill", make([]byte, 64<<10), 0o600); err == nil {
			t.Fatal("/dev/shm is not full")
		}
		w := newWorld(t, 2)
		r := w.meet(builtin, 20*time.Second)
		r.Rounds, r.Bytes = 50, 1<<20
		w.mustAsk("faults soak calls", r, time.Minute)
		return
	}
	script := `mount -t tmpfs -o size=4k tmpfs /dev/shm && exec "$0" -test.run '^TestFullDevShmDoesNotMatter$' -test.v`
	probe := exec.Command("unshare", "-m", "true")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("no mount namespace may be made here (CAP_SYS_ADMIN): %v %s", err, out)
	}
	command := exec.Command("unshare", "-m", "sh", "-c", script, "/proc/self/exe")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command.Args[len(command.Args)-1] = exe
	command.Env = append(os.Environ(), "FAULTSTEST_TINY_SHM=1")
	out, err := command.CombinedOutput()
	if err != nil || !slices.Contains(strings.Fields(string(out)), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
