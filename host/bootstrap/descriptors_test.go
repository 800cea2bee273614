package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// leave lets this process open only n more descriptors until restore is called.
func leaveDescriptors(n int) (restore func(), err error) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return nil, err
	}
	limit := unix.Rlimit{Max: old.Max}
	for fd := uint64(0); ; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			continue
		}
		if n == 0 {
			limit.Cur = fd
			break
		}
		n--
	}
	return func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
}

// A process that cannot look at /proc for lack of descriptors must not take
// others for dead.
func TestLackOfDescriptorsIsNoDeath(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	id := identify(child.Process.Pid)
	if id.start == "" || id.ended() {
		t.Fatalf("%+v, ended: %v", id, id.ended())
	}
	for _, reserve := range []bool{true, false} {
		restoreLimit, err := leaveDescriptors(0)
		if err != nil {
			t.Fatal(err)
		}
		back := func() {}
		if !reserve { // neither a descriptor nor the reserve is left
			back = descriptors.Release()
			for {
				if _, err := unix.Dup(0); err != nil {
					break
				}
			}
		}
		dead := id.ended()
		told := make(chan struct{}, 1)
		watch := watchProcess(id, func() { told <- struct{}{} })
		restoreLimit()
		if dead {
			t.Errorf("reserve %v: a living process counts as ended", reserve)
		}
		select {
		case <-told:
			t.Errorf("reserve %v: the watch reports the end of a living process", reserve)
		case <-time.After(50 * time.Millisecond):
		}
		watch.stop()
		back()
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not waited for, the process is a zombie, which has ended all the same.
	for deadline := time.Now().Add(2 * time.Second); !id.ended(); {
		if time.Now().After(deadline) {
			t.Fatal("a killed process that nobody waits for does not count as ended")
		}
	}
}

// A rank that has no descriptors to join with says so to all ranks, at once.
func TestRankWithoutDescriptorsTellsAll(t *testing.T) {
	for how, url := range meetingPlaces(t) {
		for _, lacking := range []int{0, 2} {
			for _, spare := range []int{0, 1, 3} {
				t.Run(fmt.Sprintf("%s/rank=%d/spare=%d", how, lacking, spare), func(t *testing.T) {
					began := time.Now()
					var ranks []*process
					for rank := range 3 {
						env := rankEnv(rank, 3, url+fmt.Sprint(lacking, spare))
						if rank == lacking {
							env = append(env, fmt.Sprint("SHUNT_TEST_SPARE=", spare))
						}
						ranks = append(ranks, start(t, "barrier", env...))
					}
					for rank, p := range ranks {
						line := p.line()
						if !strings.Contains(line, fmt.Sprintf("rank %d (pid %d", lacking, ranks[lacking].cmd.Process.Pid)) ||
							!strings.Contains(line, "EMFILE") {
							t.Errorf("rank %d says %q", rank, line)
						}
					}
					if took := time.Since(began); took > 3*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			}
		}
	}
}

// Rank 0 can hold its own descriptors, but not the connections of all ranks.
func TestStoreWithoutDescriptorsTellsAll(t *testing.T) {
	const world = 16
	url := meetingPlaces(t)["file"]
	ranks := make([]*process, world)
	for rank := 1; rank < world; rank++ {
		ranks[rank] = start(t, "barrier", append(rankEnv(rank, world, url), "SHUNT_TEST_STARTED=1")...)
	}
	for _, p := range ranks[1:] {
		p.expect("started")
	}
	began := time.Now()
	// When it has failed it stays for a second only, which is not enough for processes to start in.
	ranks[0] = start(t, "barrier", append(rankEnv(0, world, url), "SHUNT_TEST_SPARE=8")...)
	for rank, p := range ranks {
		if line := p.line(); !strings.Contains(line, "EMFILE") || !strings.Contains(line, "rank 0 (pid") {
			t.Errorf("rank %d says %q", rank, line)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Connections of strangers take a quarter of the descriptors at most.
func TestStrangersLeaveDescriptors(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	id := newID(t)
	limit := unix.Rlimit{Cur: 200, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }()
	// The strangers' ends are of another process, as they have a limit too.
	address := id.Addresses()[0].String()
	stranger := start(t, "stranger", "SHUNT_TEST_ADDRESS="+address)
	stranger.expect("connected 300")
	if err := descriptors.Need(100); err != nil {
		t.Errorf("beside strangers: %v", err)
	}
	noErrors(t, each(3, func(rank int) error {
		s, err := Join(t.Context(), Config{Rank: rank, World: 3, ID: id, HaveID: true, Timeout: 20 * time.Second,
			Logger: quiet})
		if err == nil {
			err = s.Close()
		}
		return err
	}))
	if err := stranger.stdin.Close(); err != nil {
		t.Error(err)
	}
}

// A process without free descriptors waits for strangers that have just connected: they may be
// ranks, and many that come at once would drop each other for ever. The one that has
// said nothing for long makes room.
func TestLackOfDescriptorsDropsNoNewcomer(t *testing.T) {
	old, _ := net.Pipe()
	young, peer := net.Pipe()
	h := &hub{unverified: []unverified{{old, time.Now().Add(-2 * fairTime)}, {young, time.Now()}}}
	for range 3 {
		if !h.makeRoom() {
			t.Fatal("no room, with a stranger there")
		}
	}
	if len(h.unverified) != 1 || h.unverified[0].conn != young {
		t.Fatalf("%d strangers are left, want the young one", len(h.unverified))
	}
	if _, err := old.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writing to the old one: %v, want a closed connection", err)
	}
	if !h.leave(young) || h.makeRoom() {
		t.Error("there is room to make without strangers")
	}
	_, _ = young.Close(), peer.Close()
}

// beStranger holds connections that never say anything until stdin ends.
func beStranger() int {
	var conns []net.Conn
	for range 300 {
		conn, err := net.Dial("tcp", os.Getenv("SHUNT_TEST_ADDRESS"))
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		conns = append(conns, conn)
	}
	fmt.Println("connected", len(conns))
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

func TestCodeOfLackIsOutOfMemory(t *testing.T) {
	err := descriptors.Error(unix.EMFILE, 3)
	if plugin.CodeOf(err) != plugin.OutOfMemory || !descriptors.Lacking(err) ||
		!strings.Contains(err.Error(), "ulimit -n") {
		t.Error(err)
	}
}
