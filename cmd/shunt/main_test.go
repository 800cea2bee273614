package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// TestMain lets this binary be what the real one is: a rank of its own jobs,
// and of the conformance suite.
func TestMain(m *testing.M) {
	denyAsAsked()
	serveTransport()
	pool.Main()
	if len(os.Args) > 1 && slices.Contains([]string{"rank", "agent", "run", "tune", "doctor", "bench", "transports",
		"conformance", "explain", "topo"}, os.Args[1]) { // to be interrupted, too
		main()
	}
	if len(os.Args) > 1 && os.Args[1] == "join" {
		os.Exit(join())
	}
	if len(os.Args) > 1 && os.Args[1] == "endless" {
		os.Exit(endless())
	}
	if len(os.Args) > 3 && os.Args[1] == "fail" {
		os.Exit(fail(os.Args[2], os.Args[3]))
	}
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "SHUNT_") && name != failpoint.Variable {
			_ = os.Unsetenv(name) // the tests say what they need
		}
	}
	os.Exit(m.Run())
}

// shunt runs a command line in this process.
func shunt(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return out.String(), err.String(), code
}

func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"nonsense":                        `unknown command "nonsense"; see shunt --help`,
		"expain":                          `unknown command "expain" (did you mean explain?); see shunt --help`,
		"run -n 2":                        `no PROGRAM given; see shunt run --help`,
		"run -n two true":                 `invalid argument "two" for "-n, --ranks" flag: invalid syntax; see shunt run --help`,
		"records":                         `no FILE given; see shunt records --help`,
		"explain all_redcue":              `unknown collective "all_redcue": did you mean all_reduce?`,
		"tune all_gather":                 `tune takes flags only, not "all_gather" (did you mean --collective all_gather?); see`,
		"run":                             "no PROGRAM given",
		"run -n 0 true":                   "0 ranks; want 1 to 1024",
		"run -n 1 /does/not/exist":        "no such file",
		"run -n 2 --hosts 3 true":         "3 hosts for 2 ranks",
		"run -n 2 --hosts 0 true":         "0 hosts for 2 ranks; want 1 to 2",
		"run --env A true":                `--env "A"; want NAME=VALUE`,
		"run --env =b true":               `--env "=b"; want NAME=VALUE`,
		"run --env SHUNT_RANK=5 true":     "--env SHUNT_RANK has no effect: shunt run sets this variable",
		"run --env SHUNT_WORLD=5 true":    "--env SHUNT_WORLD has no effect: shunt run sets this variable",
		"run --env SHUNT_ID= true":        "--env SHUNT_ID has no effect: shunt run sets this variable",
		"run --env A=1 --env RANK=0 true": "--env RANK has no effect: shunt run sets this variable",
		"run --env MASTER_PORT=1 true":    "--env MASTER_PORT has no effect: shunt run sets this variable",
		"run --grace -1s true":            "--grace -1s is negative",
		"run --timeout -1s true":          "--timeout -1s is negative",
		"run --grace -1 true":             "--grace -1s is negative",
		"run --timeout soon true":         "not a duration such as 30s, 500ms or 2m",
		"run --timeout 1e300 true":        "not a sensible number of seconds",
		"run --max-restarts -1 true":      "--max-restarts -1 is negative",
		"run --max-restarts 1 --stdin x":  "--max-restarts and --stdin exclude each other",
		"run --address node1 true":        "--address is for --hostfile",
		"run --port 0 true":               "--port is for --hostfile",
		"run --remote-shell ssh true":     "--remote-shell is for --hostfile",
		"bench -n 2,3 --hosts 3":          "3 hosts for 2 ranks",
		"bench --limit -1s":               "--limit -1s is negative",
		"bench --limit 1s":                "--limit is for --apart",
		"bench --nccl libnccl.so.2":       "--nccl is for --against nccl",
		"bench --in-place --no-in-place":  "exclude each other",
		"explain -n 2 --hosts 3":          "3 hosts for 2 ranks",
		"topo -n -1":                      "-1 ranks; want 1 to 1024",
		"topo --hosts 2":                  "--hosts is for ranks that are started; see -n",
		"transports -n 0":                 "0 ranks; want 1 to 1024",
		"doctor -n 0":                     "0 ranks; want 1 to 1024",
		"bench --colective x":             "unknown flag: --colective; see shunt bench --help",
		"bench --collective allreduce":    "did you mean all_reduce?",
		"bench --min 3X":                  `"3X" is not a size such as 512, 64K or 4M`,
		"bench --dtype f32":               `unknown dtype "f32"; known are int8, uint8, int32,`,
		"bench --op plus":                 `unknown reduction op "plus"`,
		"bench --root 4":                  "root 4 is not a rank of a world of 4",
		"bench --factor 1":                "factor 1; want 2 at least",
		"bench extra":                     `bench takes flags only, not "extra"; see shunt bench --help`,
		"bench-peers --collective gather": `Open MPI is not measured for "gather"`,
		"bench-peers --rounds 0":          "--rounds is 0, want 1 or more",
		"conformance --filter (":          "--filter: error parsing regexp",
		"tune --collective put":           `"put" cannot be tuned; there are all_reduce,`,
		"tune --collective broadcst":      "did you mean broadcast?",
		"tune --memory host --eager":      "--graph, --eager and --nccl are for --memory cuda",
		"tune -o /does/not/exist/x":       "-o /does/not/exist/x: the file cannot be written: open /does/not/exist/",
		"tune -o /proc/x":                 "-o /proc/x: the file cannot be written: open /proc/",
		"tune -o /tmp":                    "-o /tmp: the file cannot be written: write /tmp: is a directory",
		"tune -n 0":                       "0 ranks; want 1 to 1024",
		"tune --min 16 --max 8":           "sizes from 16 to 8 bytes",
		"conformance -n 2,0":              "0 ranks; want 1 to 1024",
		"conformance --mode eager":        "--mode is for --memory cuda",
		"conformance --timeout 0":         "--timeout 0s",
		"conformance --stop-after -1s":    "--stop-after -1s",
		"rank bench":                      "accepts 2 arg(s)",
		"rank nothing {}":                 "shunt rank is for jobs that shunt itself launches",
		"topo what":                       `topo takes flags only, not "what"`,
		"completion tcsh":                 `unknown command "tcsh" (did you mean bash?); see shunt completion --help`,
		"completion bash x":               "unknown command",
	} {
		_, stderr, code := shunt(t, strings.Fields(line)...)
		require.Equal(t, exitUsage, code, "%s: %s", line, stderr)
		require.Contains(t, stderr, want, line)
	}
}

// Every flag that is a duration takes what a variable takes, and prints no default of zero.
func TestDurationsAreWrittenAsInVariables(t *testing.T) {
	found := 0
	for _, c := range newRoot().Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			found++
			require.NotEqual(t, "0s", f.DefValue, "%s --%s", c.Name(), f.Name)
			for text, want := range map[string]string{"1": "1s", "0.25": "250ms", "90": "1m30s", "2m": "2m0s", "0": "0s"} {
				require.NoError(t, f.Value.Set(text), "%s --%s %s", c.Name(), f.Name, text)
				require.Equal(t, want, f.Value.String(), "%s --%s %s", c.Name(), f.Name, text)
			}
		})
	}
	require.GreaterOrEqual(t, found, 8)
}

// TestFullDisk: a command whose output is lost does not succeed. Every command is
// in the table.
func TestFullDisk(t *testing.T) {
	lines := map[string][]string{
		"":        {""},
		"help":    {"help", "help bench", "bench --help"},
		"run":     {"run -n 1 echo text", "run -n 2 --prefix echo text"},
		"records": {"records " + recordsFile(t)},
		"bench": {
			"bench --memory host -n 1 --collective all_reduce --max 8 --iters 1",
			"bench --memory host -n 1 --collective all_reduce --max 8 --iters 1 --json",
		},
		"bench-peers": {"bench-peers --against builtin:shm -n 2 --collective barrier --max 8 --rounds 1"},
		"tune": {"tune --memory host -n 2 --collective all_reduce --max 8 --iters 1 -o " +
			filepath.Join(t.TempDir(), "tuning.json")},
		"conformance": {"conformance -n 1 --filter barrier", "conformance -n 1 --filter barrier --json"},
		"explain":     {"explain all_reduce", "explain all_reduce --json"},
		"transports":  {"transports", "transports --json"},
		"topo":        {"topo", "topo --json"},
		"doctor":      {"doctor", "doctor --json"},
		"version":     {"version", "version --json"},
	}
	for _, c := range newRoot().Commands() {
		if !c.Hidden && c.Name() != "completion" {
			require.Contains(t, lines, c.Name(), "a command that this test does not run")
		}
	}
	for name, each := range lines {
		for _, line := range each {
			t.Run(cmp.Or(line, name, "no command"), func(t *testing.T) {
				full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
				require.NoError(t, err)
				defer full.Close()
				var stderr bytes.Buffer
				require.Equal(t, exitFailure, run(strings.Fields(line), full, &stderr), stderr.String())
				require.Contains(t, stderr.String(), "no space left on device")
			})
		}
	}
}

// Where the output of ranks is lost they fail, as they would by themselves, and the command says why.
func TestFullDiskUnderRanks(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	var stderr bytes.Buffer
	require.Equal(t, 128+int(syscall.SIGPIPE), run([]string{"run", "-n", "2", "yes"}, full, &stderr))
	require.Contains(t, stderr.String(), "shunt: standard output: write /dev/full: no space left on device\n")
}

// recordsFile returns the path of the records of a rank that has not failed.
func recordsFile(t *testing.T) string {
	t.Helper()
	c, err := host.Init(t.Context(), host.Options{Rank: 0, World: 1})
	require.NoError(t, err)
	defer c.Close()
	path := filepath.Join(t.TempDir(), "rank-0.json")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, c.WriteRecords(file))
	return path
}

func TestRun(t *testing.T) {
	stdout, stderr, code := shunt(t, "run", "-n", "2", "--prefix", "--env", "A=b", "--", "sh", "-c",
		"echo $SHUNT_RANK $A --json")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "[0] 0 b --json\n")
	require.Contains(t, stdout, "[1] 1 b --json\n")
	_, stderr, code = shunt(t, "run", "-n", "2", "--grace", "10ms", "--", "sh", "-c",
		"[ $SHUNT_RANK = 1 ] && exit 7; sleep 300")
	require.Equal(t, 7, code)
	require.Regexp(t, `^shunt run: rank 1 \(pid \d+\) exited with status 7 after \S+; the job of 2 ended with it\nshunt run: rank 0 \(pid \d+\) had to be ended\n$`, stderr)
	stdout, _, code = shunt(t, "run", "--json", "-n", "2", "--", "sh", "-c", "kill -9 $$")
	require.Equal(t, 137, code)
	var report runReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.False(t, report.OK)
	require.Len(t, report.Exits, 2)
}

func TestExplain(t *testing.T) {
	stdout, stderr, code := shunt(t, "explain", "all_reduce", "-n", "2", "--bytes", "8,16M")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "all_reduce float32 sum, 8 bytes, world 2 on 1 host, host memory\n  runs shm/")
	require.Contains(t, stdout, "16M bytes")
	require.Contains(t, stdout, "  else shm/")
	stdout, _, code = shunt(t, "explain", "all_reduce", "-n", "2", "--json", "--algo",
		"all_reduce:64K-=shm/generic/put_two_shot")
	require.Zero(t, code)
	var explanations []explained
	require.NoError(t, json.Unmarshal([]byte(stdout), &explanations))
	last := explanations[len(explanations)-1]
	require.Equal(t, "shm/generic/put_two_shot", last.Chosen)
	require.Equal(t, int64(64<<10), last.From)
	require.Equal(t, "all_reduce:64K-=shm/generic/put_two_shot", last.Clause)
	stdout, _, code = shunt(t, "explain", "all_reduce", "-n", "2", "--algo", "all_reduce=shm/one_shoot")
	require.Equal(t, exitWrong, code)
	require.Contains(t, stdout, "did you mean shm/one_shot?")
}

// TestExplainPassesWarningsOn: what the ranks warn of reaches the user also when they succeed.
func TestExplainPassesWarningsOn(t *testing.T) {
	t.Setenv("SHUNT_SPIN_CUONT", "4")
	stdout, stderr, code := shunt(t, "explain", "all_reduce", "-n", "2", "--bytes", "8")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, "SHUNT_SPIN_CUONT")
	require.Contains(t, stderr, "did you mean SHUNT_SPIN_COUNT?")
}

// TestExplainPlan: with --plan the steps of what is chosen follow, rank by rank; without it there is none.
func TestExplainPlan(t *testing.T) {
	line := []string{"explain", "all_gather", "-n", "3", "--memory", "host", "--dtype", "float64", "--bytes", "64",
		"--algo", "all_gather=shm/generic/put_direct"}
	stdout, stderr, code := shunt(t, line...)
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, "plan ")
	stdout, stderr, code = shunt(t, append(line, "--plan")...)
	require.Zero(t, code, stderr)
	_, plans, found := strings.Cut(stdout, "  runs shm/generic/put_direct")
	require.True(t, found, stdout)
	at := 0
	for _, want := range []string{"rank 0 of 3: ", "rank 1 of 3: ", "rank 2 of 3: "} {
		next := strings.Index(plans, "plan generic/put_direct: all_gather of int64, "+want)
		require.Greater(t, next, at, plans)
		at = next
		require.Regexp(t, `^plan .*\ntrack 0\n +0  `, plans[at:])
		require.Contains(t, plans[at:], "  wait    [")
	}
	stdout, _, code = shunt(t, append(line, "--plan", "--json")...)
	require.Zero(t, code)
	var explanations []explained
	require.NoError(t, json.Unmarshal([]byte(stdout), &explanations))
	require.Len(t, explanations, 1)
	require.Len(t, explanations[0].Plans, 3)
}

func TestTransports(t *testing.T) {
	stdout, stderr, code := shunt(t, "transports")
	require.Zero(t, code, stderr)
	if _, _, err := machineGPUs(); err != nil {
		require.Contains(t, stdout, "not usable on this machine: ")
	}
	require.Contains(t, stdout, "builtin:shm\n")
	require.Contains(t, stdout, "all_reduce ")
	text := filepath.Join(t.TempDir(), "shunt-transport-text.so")
	require.NoError(t, os.WriteFile(text, []byte("not an object"), 0o700))
	t.Setenv("SHUNT_PLUGIN_DIR", filepath.Dir(text))
	stdout, _, code = shunt(t, "transports", "--json")
	require.Equal(t, exitWrong, code)
	var reports []transportReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &reports))
	require.Len(t, reports, 5)
	require.Equal(t, "cudaipc", reports[0].Name)
	require.Equal(t, "nccl", reports[1].Name)
	require.Equal(t, "shm", reports[2].Name)
	require.Empty(t, reports[2].Unusable)
	for _, r := range []transportReport{reports[0], reports[2]} {
		require.NotEmpty(t, r.Algorithms["all_reduce"])
	}
	require.Equal(t, "ucx", reports[3].Name)
	require.Equal(t, "shared:"+text, reports[4].Spec)
	require.NotEmpty(t, reports[4].Rejected)
}

func TestTopo(t *testing.T) {
	stdout, _, code := shunt(t, "topo")
	require.Zero(t, code)
	require.Contains(t, stdout, "this process: CPUs ")
	stdout, stderr, code := shunt(t, "topo", "-n", "4", "--hosts", "2", "--json")
	require.Zero(t, code, stderr)
	var topo topology.Topology
	require.NoError(t, json.Unmarshal([]byte(stdout), &topo))
	require.Equal(t, 4, topo.World())
	require.Len(t, topo.Hosts(), 2)
	require.True(t, topo.SameHost(0, 1))
	require.False(t, topo.SameHost(1, 2))
}

func TestDoctor(t *testing.T) {
	t.Setenv("SHUNT_TIMOUT", "5")
	stdout, stderr, code := shunt(t, "doctor", "--json")
	require.Zero(t, code, stderr)
	var findings []finding
	require.NoError(t, json.Unmarshal([]byte(stdout), &findings))
	levels := map[string]level{}
	for _, f := range findings {
		levels[f.Check] = f.Level
		require.NotEqual(t, broken, f.Level, f.Detail)
	}
	require.Equal(t, warn, levels["environment"])
	require.Equal(t, fine, levels["ranks"])
	require.Equal(t, fine, levels["NCCL"])
	t.Setenv("SHUNT_TRANSPORTS", "builtin:gone")
	stdout, _, code = shunt(t, "doctor")
	require.Equal(t, exitWrong, code)
	require.Regexp(t, `fail +transports +builtin:gone is rejected`, stdout)
	require.Regexp(t, `fail +ranks `, stdout)
	stdout, _, code = shunt(t, "doctor", "--failpoints")
	require.Zero(t, code)
	require.Contains(t, stdout, "bench.corrupt")
}

// A check that Ctrl-C ends tells nothing of the machine.
func TestDoctorInterrupted(t *testing.T) {
	for _, check := range []string{"transports", "ranks"} {
		t.Run(check, func(t *testing.T) {
			here := filepath.Join(t.TempDir(), "here")
			plugin := filepath.Join(t.TempDir(), "plugin")
			text := "#!/bin/sh\ntouch " + here + "\nexec sleep 60\n"
			if check == "ranks" { // it does not hold up the check of transports
				text = "#!/bin/sh\ngrep -q SHUNT_RANK= /proc/$PPID/environ || exit 1\n" + text
			}
			require.NoError(t, os.WriteFile(plugin, []byte(text), 0o700)) //nolint:gosec // a program
			self, err := os.Executable()
			require.NoError(t, err)
			var stdout, stderr strings.Builder
			c := exec.Command(self, "doctor", "--json")
			c.Env = append(os.Environ(), "SHUNT_TRANSPORTS=process:"+plugin)
			c.Stdout, c.Stderr = &stdout, &stderr
			require.NoError(t, c.Start())
			appears(t, here)
			require.NoError(t, c.Process.Signal(os.Interrupt))
			require.Error(t, c.Wait())
			require.Equal(t, exitFailure, c.ProcessState.ExitCode(), stderr.String())
			require.Equal(t, "shunt doctor was interrupted in the check \""+check+"\"\n", stderr.String())
			agrees(t, "doctor", stdout.String(), "interrupted")
			var findings []finding
			require.NoError(t, json.Unmarshal([]byte(stdout.String()), &findings))
			require.NotEmpty(t, findings)
			for _, f := range findings {
				require.NotEqual(t, check, f.Check)
			}
		})
	}
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	junit, file := filepath.Join(dir, "report.xml"), filepath.Join(dir, "report.json")
	stdout, stderr, code := shunt(t, "conformance", "--short", "-n", "2", "--filter", "^all_gather/", "--junit", junit,
		"--json-file", file)
	require.Zero(t, code, "%s\n%s", stdout, stderr)
	text, err := os.ReadFile(junit)
	require.NoError(t, err)
	require.NoError(t, xml.Unmarshal(text, new(struct{ XMLName xml.Name })))
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, json.Valid(text))
	stdout, stderr, code = shunt(t, "conformance", "-n", "2", "-v", "--stop-after", "1s")
	require.Contains(t, stderr, "stopped after 1s")
	require.NotRegexp(t, `(?m)^failed`, stdout, "the case that was running then has not failed")
	require.NotContains(t, stdout, "cases failed")
	if code == 0 { // on a busy machine no case may have run by then
		require.Contains(t, stdout, "cases passed")
	}
	_, stderr, code = shunt(t, "conformance", "-n", "2", "--stop-after", "1us")
	require.NotZero(t, code, "nothing ran")
	require.Contains(t, stderr, "no case ran")
	stdout, stderr, code = shunt(t, "conformance", "--short", "-n", "1", "--filter", "^barrier/")
	require.Zero(t, code, stderr)
	require.Regexp(t, `\n\n\d+ cases? passed( \(.*\))?\n$`, stdout)
	_, stderr, code = shunt(t, "conformance", "--short", "-n", "2", "--filter", "no such case")
	require.Equal(t, exitWrong, code, stderr)
	require.Contains(t, stderr, `no case of worlds [2] has a name that "no such case" matches`)
}

func TestGPUOptions(t *testing.T) {
	for _, args := range [][]string{{"--graph"}, {"--eager"}, {"--busy", "10"}, {"--against", "nccl"}, {"--symmetric"}} {
		_, stderr, code := shunt(t, append([]string{"bench", "--memory", "host"}, args...)...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, "are for --memory cuda")
	}
	_, stderr, code := shunt(t, "bench", "--memory", "video")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "want auto, host or cuda")
	_, stderr, code = shunt(t, "bench", "--in-place", "--no-in-place")
	require.Equal(t, exitUsage, code, stderr)
	if _, version, err := machineGPUs(); err != nil && version == 0 {
		for _, command := range []string{"bench", "explain"} {
			_, stderr, code = shunt(t, command, "--memory", "cuda")
			require.Equal(t, exitFailure, code)
			require.Contains(t, stderr, "no CUDA driver")
		}
	}
}

func TestGPUInWords(t *testing.T) {
	g := gpu{
		MachineGPU: topology.MachineGPU{Ordinal: 1, Name: "H", UUID: "GPU-1", PCI: "0000:18:00.0", Memory: 139 << 30,
			Capability: "9.0"},
		Peers: []gpuPeer{
			{0, topology.Path{Access: topology.AccessYes, NVLinks: 18, PCIe: topology.SYS}},
			{2, topology.Path{Access: topology.AccessYes, PCIe: topology.PXB}},
			{3, topology.Path{Access: topology.AccessNo, PCIe: topology.PXB}},
			{4, topology.Path{Access: topology.AccessUnknown, PCIe: topology.Unknown}},
		}}
	require.Equal(t, "GPU 1: H GPU-1 at 0000:18:00.0, 139G, compute capability 9.0; to GPU 0: NVLink (18), GPU 2: PCIe (PXB), GPU 3: no access, GPU 4: access", g.String())
}

// Whatever SHUNT_NCCL_LIBRARY names, transports and doctor say what is wrong with it, and continue.
func TestBadLibrariesOfNCCL(t *testing.T) {
	build := func(flags ...string) string {
		path, err := nccltest.Build(t.TempDir(), flags...)
		require.NoError(t, err)
		return path
	}
	for path, want := range map[string]string{
		"/nowhere/libnccl.so.2":       "no such file or directory",
		"/etc/passwd":                 "it is not a shared object",
		t.TempDir():                   "is a directory",
		"libm.so.6":                   "it has no ncclGetVersion; NCCL 2.18 is the oldest that serves",
		build("-DLACKING"):            "it has no ncclSend; NCCL 2.18 is the oldest that serves",
		build("-DFAKE_VERSION=21700"): "is NCCL 2.17.0; 2.18 is the oldest that serves",
	} {
		t.Setenv("SHUNT_NCCL_LIBRARY", path)
		stdout, stderr, code := shunt(t, "transports")
		require.Zero(t, code, stderr)
		require.Regexp(t, `(?m)^builtin:nccl\n(  .*\n)+  serves nothing here: SHUNT_NCCL_LIBRARY: .*`+regexp.QuoteMeta(want), stdout)
		var list []finding
		for _, f := range checkTransports(t.Context(), 2) {
			if strings.HasPrefix(f.Detail, "builtin:nccl ") {
				list = append(list, f)
			}
		}
		require.Len(t, list, 1)
		require.Equal(t, warn, list[0].Level)
		require.Contains(t, list[0].Detail, "it serves nothing here: SHUNT_NCCL_LIBRARY: ")
		require.Contains(t, list[0].Detail, want)
		require.Equal(t, "correct or unset SHUNT_NCCL_LIBRARY", list[0].Advice)
	}
	t.Setenv("SHUNT_NCCL_LIBRARY", build())
	stdout, stderr, code := shunt(t, "transports")
	require.Zero(t, code, stderr)
	// ucx serves nothing where its library is not installed.
	require.Regexp(t, `(?m)^builtin:nccl\n(  .*\n)+  algorithms for float32 sum`, stdout)
	require.NotRegexp(t, `(?m)^builtin:nccl\n(  .*\n)+  serves nothing here`, stdout)
}
