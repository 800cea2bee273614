package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// join is a rank that another launcher starts: it prints the sum of all ranks.
func join() int {
	c, err := host.Init(context.Background(), host.Options{})
	if err == nil {
		sum := int32(c.Rank())
		err = c.AllReduce(unsafe.Pointer(&sum), unsafe.Pointer(&sum), 1, plugin.Int32, plugin.OpSum, nil)
		fmt.Printf("the sum of %d is %d\n", c.World(), sum)
		if closed := c.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// machines writes a hostfile, and a command in the place of ssh that runs commands here, without this environment, and
// keeps them in a file. Beside that each host has a temporary directory, by its name.
func machines(t *testing.T, lines string) (flags []string, commands string) {
	t.Helper()
	dir := t.TempDir()
	commands = filepath.Join(dir, "commands")
	hostfile, shell := filepath.Join(dir, "hosts"), filepath.Join(dir, "shell")
	require.NoError(t, os.WriteFile(hostfile, []byte(lines), 0o600))
	text := "#!/bin/sh\necho \"$*\" >>" + commands + "\nhost=$1\nshift\ncd /\nmkdir -p " + dir + "/$host\n" +
		"exec env -i ON=$host TMPDIR=" + dir + "/$host sh -c \"$*\"\n"
	require.NoError(t, os.WriteFile(shell, []byte(text), 0o700)) //nolint:gosec // a program
	return []string{"run", "--hostfile", hostfile, "--remote-shell", shell, "--address", "127.0.0.1", "--grace", "100ms"},
		commands
}

const two = "# of the test\nnode0 slots=2\n\nme@node1 slots=2 max_slots=4\n"

func TestHostfile(t *testing.T) {
	flags, commands := machines(t, two)
	t.Setenv("NCCL_TRIED", "yes")
	t.Setenv("UNRELATED", "no")
	const say = `echo $ON $SHUNT_RANK/$SHUNT_WORLD $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR $A $NCCL_TRIED$UNRELATED $PWD $SHUNT_ID $SHUNT_SECRET`
	stdout, stderr, code := shunt(t, append(flags, "--prefix", "--env", "A=b c", "sh", "-c", say)...)
	require.Zero(t, code, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	slices.Sort(lines)
	require.Len(t, lines, 4)
	dir, err := os.Getwd()
	require.NoError(t, err)
	places := map[string]bool{}
	for rank, line := range lines {
		fields := strings.Fields(line)
		require.Equal(t, []string{fmt.Sprintf("[%d]", rank), []string{"node0", "me@node1"}[rank/2], fmt.Sprintf("%d/4", rank),
			fmt.Sprintf("%d/4", rank), fmt.Sprintf("%d/2", rank%2), "127.0.0.1", "b", "c", "yes", dir}, fields[:10])
		places[strings.Join(fields[10:], " ")] = true
	}
	require.Len(t, places, 1, "all meet at one place, by one secret")
	secret := strings.Fields(lines[0])[11]
	require.GreaterOrEqual(t, float64(len(secret))*math.Log2(26), 128.0, "no rank warns of it, also if it has letters only")
	text, err := os.ReadFile(commands)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(text), " agent\n"))
	require.NotContains(t, string(text), secret, "other users see command lines")

	// Arguments, variables and the working directory need not be UTF-8.
	folder := filepath.Join(t.TempDir(), "caf\xe9")
	require.NoError(t, os.Mkdir(folder, 0o700))
	there := append(slices.Clone(flags), "-n", "3", "--env", "A=b\xe9", "sh", "-c",
		`printf '%s|%s|%s\n' "$A" "$1" "$PWD"`, "sh", "c\xe9")
	t.Run("in "+strconv.Quote(folder), func(t *testing.T) {
		t.Chdir(folder)
		stdout, stderr, code := shunt(t, there...)
		require.Zero(t, code, stderr)
		require.Equal(t, strings.Repeat("b\xe9|c\xe9|"+folder+"\n", 3), stdout)
	})

	// Ranks fill the machines in their order, and meet.
	self, err := os.Executable()
	require.NoError(t, err)
	stdout, stderr, code = shunt(t, append(flags, "-n", "3", self, "join")...)
	require.Zero(t, code, stderr)
	require.Equal(t, strings.Repeat("the sum of 3 is 3\n", 3), stdout)
}

// The remote shell starts the ranks of this machine where the hostfile names another user, and only there.
func TestHostfileOfThisMachine(t *testing.T) {
	self, err := user.Current()
	require.NoError(t, err)
	name, err := os.Hostname()
	require.NoError(t, err)
	for line, remote := range map[string]bool{
		"localhost": false, name: false, self.Username + "@localhost": false, self.Username + "@" + name: false,
		"not-" + self.Username + "@localhost": true, "not-" + self.Username + "@" + name: true,
	} {
		flags, commands := machines(t, line+" slots=1\n")
		_, stderr, code := shunt(t, append(slices.Clone(flags), "true")...)
		require.Zero(t, code, "%s: %s", line, stderr)
		text, _ := os.ReadFile(commands)
		host, _, _ := strings.Cut(string(text), " ")
		flags[4] = "true" // a remote shell that runs nothing, as the missing report says
		_, stderr, code = shunt(t, append(flags, "true")...)
		if remote {
			require.Equal(t, line, host)
			require.NotZero(t, code, "%s: %s", line, stderr)
		} else {
			require.Empty(t, host)
			require.Zero(t, code, "%s: %s", line, stderr)
		}
	}
}

// A signal ends a job whose remote shell does not connect.
func TestHostfileSignalWhileConnecting(t *testing.T) {
	flags, _ := machines(t, "node0\n")
	begun := filepath.Join(t.TempDir(), "begun")
	require.NoError(t, unix.Mkfifo(begun, 0o600))
	shell := []byte("#!/bin/sh\n: >" + begun + "\nexec sleep 60\n")
	require.NoError(t, os.WriteFile(flags[4], shell, 0o700)) //nolint:gosec // a program
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, append(flags, "true")...)
	require.NoError(t, cmd.Start())
	defer time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	_, err = os.ReadFile(begun)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, cmd.Wait())
	require.Equal(t, 128+int(syscall.SIGTERM), cmd.ProcessState.ExitCode())
}

func TestHostfileFailure(t *testing.T) {
	flags, _ := machines(t, two)
	_, stderr, code := shunt(t, append(flags, "sh", "-c", `[ $SHUNT_RANK = 2 ] && exit 7; sleep 60`)...)
	require.Equal(t, 7, code, stderr)
	require.Regexp(t, `shunt run on me@node1: rank 2 \(pid \d+\) exited with status 7`, stderr)
	require.Contains(t, stderr, "the launcher on me@node1 exited with status 7")
	require.Contains(t, stderr, "the launcher on node0 had to be ended")

	// Each start is at a place of its own, on all machines alike.
	stdout, stderr, code := shunt(t, append(flags, "--max-restarts", "1", "sh", "-c",
		`echo $TORCHELASTIC_RESTART_COUNT $SHUNT_ID; sleep 0.1; exit 1`)...)
	require.Equal(t, 1, code, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	slices.Sort(lines)
	require.Len(t, slices.Compact(lines), 2, stdout)

	flags[4] = "false"
	_, stderr, code = shunt(t, append(flags, "true")...)
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stderr, "the launcher on node0 exited with status 1")
	flags[4] = "/does/not/exist"
	_, stderr, code = shunt(t, append(flags, "true")...)
	require.Equal(t, exitUsage, code, stderr)
	require.Contains(t, stderr, "/does/not/exist")
}

// A remote shell that exits with status 0 may have run nothing. That ends the job, with what the other machines run.
func TestHostfileWithoutAReport(t *testing.T) {
	for name, shell := range map[string]string{
		"nothing runs":    "exit 0",
		"output":          "echo '{}'; echo shunt-message; exit 0",
		"its shell is ok": "sh -c ':'",
	} {
		t.Run(name, func(t *testing.T) {
			flags, _ := machines(t, two)
			text, err := os.ReadFile(flags[4])
			require.NoError(t, err)
			begin, rest, _ := strings.Cut(string(text), "\n")
			text = []byte(begin + "\nif [ $1 = me@node1 ]; then " + shell + "; exit; fi\n" + rest)
			require.NoError(t, os.WriteFile(flags[4], text, 0o700)) //nolint:gosec // a program
			began := time.Now()
			_, stderr, code := shunt(t, append(flags, "sleep", "60")...)
			require.Equal(t, exitFailure, code, stderr)
			require.Less(t, time.Since(began), 30*time.Second)
			require.Regexp(t, `the launcher on me@node1 exited with status 0 after \S+, without a report that its ranks ran; `+
				`the job ended with it\n`, stderr)
			require.Contains(t, stderr, "the launcher on node0 had to be ended")

			stdout, stderr, code := shunt(t, append(flags, "--json", "true")...)
			require.Equal(t, exitFailure, code, stderr)
			_, value, found := strings.Cut(stdout, "{\n")
			require.True(t, found, stdout)
			agrees(t, "run", "{"+value, name)
			var all runReport
			require.NoError(t, json.Unmarshal([]byte("{"+value), &all))
			require.False(t, all.OK)
			require.Empty(t, all.Hosts[0].Problems)
			require.Equal(t, []string{"its launcher ended without a report"}, all.Hosts[1].Problems)
		})
	}
	// It is started again as after other failures.
	flags, _ := machines(t, two)
	flags[4] = "true"
	_, stderr, code := shunt(t, append(flags, "--max-restarts", "1", "touch", "never")...)
	require.Equal(t, exitFailure, code, stderr)
	require.Contains(t, stderr, "starting the job again, 1 of 1")
	// The launcher of this machine is started by no remote shell.
	require.NoError(t, os.WriteFile(flags[2], []byte("localhost slots=2\n"), 0o600))
	_, stderr, code = shunt(t, append(flags, "true")...)
	require.Zero(t, code, stderr)
	require.NoError(t, os.WriteFile(flags[2], []byte("localhost\nnode1\n"), 0o600))
	_, stderr, code = shunt(t, append(flags, "true")...)
	require.Equal(t, exitFailure, code, stderr)
	require.Contains(t, stderr, "the launcher on node1 exited with status 0")
}

// TestHostfileLeavesNothing: the launchers of the machines end with that of the job, also with SIGKILL. Of the folders
// of records only one that has some stays.
func TestHostfileLeavesNothing(t *testing.T) {
	flags, _ := machines(t, two)
	self, err := os.Executable()
	require.NoError(t, err)
	pids := t.TempDir()
	cmd := exec.Command(self, append(flags, "--records", t.TempDir(), "sh", "-c",
		`[ $SHUNT_RANK = 2 ] && echo x >$SHUNT_RECORDS_DIR/x.json; echo $$ >`+pids+`/$SHUNT_RANK.part && mv `+pids+
			`/$SHUNT_RANK.part `+pids+`/$SHUNT_RANK; exec sleep 60`)...)
	require.NoError(t, cmd.Start())
	var ranks []int
	require.Eventually(t, func() bool {
		ranks = nil
		for rank := range 4 {
			text, err := os.ReadFile(filepath.Join(pids, strconv.Itoa(rank)))
			if err != nil {
				return false
			}
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			ranks = append(ranks, pid)
		}
		return true
	}, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(ranks, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
	}, 30*time.Second, 10*time.Millisecond, "ranks %v outlive the launcher", ranks)
	require.Eventually(t, func() bool {
		left, err := filepath.Glob(at(flags, "node0") + "/shunt-records-*")
		return err == nil && len(left) == 0
	}, 30*time.Second, 10*time.Millisecond, "the empty folder of records stays")
	kept, err := filepath.Glob(at(flags, "me@node1") + "/shunt-records-*/x.json")
	require.NoError(t, err)
	require.Len(t, kept, 1)
}

// ssh by itself waits for hours for a machine that is lost.
func TestHostfileNoticesALostMachine(t *testing.T) {
	flags, commands := machines(t, "node0 slots=1\n")
	shell := flags[4]
	t.Setenv("PATH", filepath.Dir(shell)+":"+os.Getenv("PATH"))
	ssh := "#!/bin/sh\nwhile [ \"$1\" = -o ]; do echo \"$2\" >>" + commands + "; shift 2; done\nexec " + shell + " \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(shell), "ssh"), []byte(ssh), 0o700)) //nolint:gosec // a program
	_, stderr, code := shunt(t, slices.Concat(flags[:3], flags[5:], []string{"true"})...)
	require.Zero(t, code, stderr)
	text, err := os.ReadFile(commands)
	require.NoError(t, err)
	require.Contains(t, string(text), "BatchMode=yes\n", "it does not ask")
	require.Regexp(t, `ServerAliveInterval=\d\d\n`, string(text))
}

// ssh returns 255 when it is interrupted, whatever the ranks do.
func TestHostfileInterrupted(t *testing.T) {
	flags, _ := machines(t, "node0 slots=1\n")
	here := filepath.Join(t.TempDir(), "here")
	text := "#!/bin/sh\ntrap 'exit 255' INT USR1\nexec 3<&0\nshift\nsh -c \"$*\" <&3 &\nwait $!\n"
	require.NoError(t, os.WriteFile(flags[4], []byte(text), 0o700)) //nolint:gosec // a program
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, append(flags, "sh", "-c", "touch "+here+"; exec sleep 60")...)
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(here); return err == nil }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 128+int(syscall.SIGINT), cmd.ProcessState.ExitCode())
}

func TestHostfileBadInput(t *testing.T) {
	for lines, want := range map[string]string{
		"":                        "names no host",
		"# only this\n":           "names no host",
		"node0 slots=0":           `line 1: "slots=0" is unknown; want slots=N`,
		"node0\nnode1 slots=many": `line 2: "slots=many" is unknown`,
		"node0 cpus=3":            `"cpus=3" is unknown`,
		"-oProxyCommand=x":        `"-oProxyCommand=x" is no name of a host`,
		"slots=4":                 `"slots=4" is no name of a host`,
		"node0 slots=1025":        "want slots=N, from 1 to 1024",
		"\nnode0:4\n":             `line 2: "node0:4" is no name of a host; want node0 slots=4`,
		"me@node0:16 slots=2":     `line 1: "me@node0:16" is no name of a host; want me@node0 slots=16`,
		"a slots=1024\nb":         "a job at most 1024 ranks",
	} {
		flags, _ := machines(t, lines)
		_, stderr, code := shunt(t, append(flags, "true")...)
		require.Equal(t, exitUsage, code, lines)
		require.Contains(t, stderr, want, lines)
	}
	flags, _ := machines(t, two)
	for line, want := range map[string]string{
		"-n 5":             "5 ranks; the hostfile has 4 slots",
		"-n 0":             "0 ranks; want 1",
		"--hosts 2":        "--hostfile excludes --hosts",
		"--stdin":          "--hostfile excludes --hosts and --stdin",
		"--port 70000":     "--port 70000; want 1 to 65526",
		"--hostfile /none": "no such file",
		"--remote-shell=":  "--remote-shell is empty",

		"--address 127.0.0.1:29500": `--address "127.0.0.1:29500" is neither a name nor an address`,
		"--address [::1]:29500":     `--address "[::1]:29500" is neither a name nor an address`,
		"--address tcp://node0":     `--address "tcp://node0" is neither a name nor an address`,

		"--env SHUNT_SECRET=x": "--env SHUNT_SECRET has no effect: shunt run --hostfile, unless its own environment has it, sets",
		"--env LOCAL_RANK=0":   "--env LOCAL_RANK has no effect: shunt run sets this variable",
	} {
		_, stderr, code := shunt(t, slices.Concat(flags, strings.Fields(line), []string{"true"})...)
		require.Equal(t, exitUsage, code, line)
		require.Contains(t, stderr, want, line)
	}
	for _, first := range []string{"localhost", "me@localhost", "127.0.1.1", "::1"} {
		flags, commands := machines(t, "# comment\n"+first+"\nnode1\n")
		flags = slices.DeleteFunc(flags, func(flag string) bool { return flag == "--address" || flag == "127.0.0.1" })
		_, stderr, code := shunt(t, append(flags, "true")...)
		require.Equal(t, exitUsage, code, first)
		require.Regexp(t, `hosts, line 2: other hosts cannot reach .*: write this host's name, or use --address`, stderr)
		require.NoFileExists(t, commands, "nothing was started")
		_, stderr, code = shunt(t, append(flags, "-n", "1", "true")...)
		require.Zero(t, code, "%s alone: %s", first, stderr)
	}
	_, stderr, code := shunt(t, "agent")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "shunt agent is for jobs that shunt run --hostfile launches")
}
