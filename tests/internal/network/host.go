package network

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hostVariable names, in the environment of a host's first process, the host.
const hostVariable = "NETWORK_TEST_HOST"

// Host is a host: a process in namespaces of its own, which the ranks on it enter.
type Host struct {
	Name  string
	Links []*Link
	pid   int
}

// Missing returns the reason why hosts cannot be made here, or "".
func Missing() string {
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return "there is no " + program
		}
	}
	if os.Geteuid() != 0 {
		return "only root makes network namespaces"
	}
	s := &Segment{}
	l, err := s.newLink()
	if err != nil {
		return err.Error()
	}
	l.tap.Close()
	if err := exec.Command("unshare", "--net", "--pid", "--fork", "--uts", "--mount", "true").Run(); err != nil {
		return "no namespaces: " + err.Error()
	}
	return ""
}

// First is the program of a host's first process, which every program that makes hosts runs at its beginning: it
// returns unless this process is one.
func First() {
	name := os.Getenv(hostVariable)
	if name == "" {
		return
	}
	err := errors.Join(unix.Sethostname([]byte(name)), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""))
	if err == nil {
		fmt.Println("ready")
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// NewHost makes a host on no network. It ends with the test.
func NewHost(t testing.TB, name string) *Host {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), hostVariable+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: 0,
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWNS}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close() // with the first process of their namespace all others end
		_ = cmd.Wait()
	})
	var ready [6]byte
	if _, err := io.ReadFull(stdout, ready[:]); err != nil || string(ready[:]) != "ready\n" {
		rest, _ := io.ReadAll(stdout)
		t.Fatalf("host %s: %s%s %v", name, ready[:], rest, err)
	}
	h := &Host{Name: name, pid: cmd.Process.Pid}
	h.Do(t, "ip link set lo up")
	return h
}

// Join gives the host an interface on a segment, and addresses such as 10.0.0.1/24.
func (h *Host) Join(t testing.TB, s *Segment, name string, addresses ...string) *Link {
	t.Helper()
	l, err := s.newLink()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.tap.Close() })
	run(t, exec.Command("ip", "link", "set", l.Name, "netns", strconv.Itoa(h.pid), "name", name))
	l.Name = name
	h.Links = append(h.Links, l)
	h.Do(t, "ip link set "+name+" up")
	for _, a := range addresses {
		h.Do(t, "ip addr add "+a+" dev "+name+noDetection(a))
	}
	return l
}

// noDetection saves a new address of IPv6 the second in which it is not used yet.
func noDetection(address string) string {
	if strings.Contains(address, ":") {
		return " nodad"
	}
	return ""
}

// Command returns a command that runs a program on the host.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-n", "-p", "-u", "-m", "--", name},
		args...)...)
}

// Do runs words as a command on the host.
func (h *Host) Do(t testing.TB, words string) string {
	t.Helper()
	fields := strings.Fields(words)
	return run(t, h.Command(fields[0], fields[1:]...))
}

func run(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// File gives the host a file of its own in the place of one that there is.
func (h *Host) File(t testing.TB, path, text string) {
	t.Helper()
	own := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(own, []byte(text), 0o644); err != nil { //nolint:gosec // as /etc/hosts
		t.Fatal(err)
	}
	h.Do(t, "mount --bind "+own+" "+path)
}
