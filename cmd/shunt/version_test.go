package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestVersion(t *testing.T) {
	stdout, _, code := shunt(t, "version", "--json")
	require.Zero(t, code)
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Equal(t, runtime.Version(), report["go"])
	require.Equal(t, "1.1", report["transport_contract"])
	require.Equal(t, "shunt_transport_v1", report["transport_symbol"])
	require.NotEmpty(t, report["version"])
	stdout, _, _ = shunt(t, "version", "--help")
	require.Contains(t, stdout, "or for one before 1.1, is rejected") // as check.Version does

	release, commit = "7.8.9", "abc"
	defer func() { release, commit = "", "" }()
	stdout, _, code = shunt(t, "version")
	require.Zero(t, code)
	require.Contains(t, stdout, "shunt 7.8.9\ncommit abc")
	stdout, _, _ = shunt(t, "--version")
	require.Contains(t, stdout, "7.8.9")
}

// What packages do before main, every program pays that has the command or libshunt.so in it, one without a GPU too.
func TestNothingLargeIsMadeAtTheStart(t *testing.T) {
	const most = 4 << 20 // bytes, of all packages; 2.4 MB are of those that only tests have
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, "-test.run=^$")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes, \d+ allocs$`).FindAllStringSubmatch(string(out), -1)
	require.Greater(t, len(lines), 20, "%s", out)
	total := 0
	for _, line := range lines {
		bytes, err := strconv.Atoi(line[2])
		require.NoError(t, err)
		total += bytes
	}
	require.Less(t, total, most, "%s", out)
}

// completed are the values that a shell would offer for the last word of a command line.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	stdout, _, code := shunt(t, append([]string{"__complete"}, words...)...)
	require.Zero(t, code)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	require.Regexp(t, `^:\d+$`, lines[len(lines)-1])
	return lines[:len(lines)-1]
}

func TestCompletion(t *testing.T) {
	require.Equal(t, []string{"float8_e4m3", "float8_e5m2"}, completed(t, "bench", "--dtype", "float8"))
	require.Len(t, completed(t, "explain", "--op", ""), len(plugin.Ops()))
	require.Equal(t, []string{"all_gather,broadcast"}, completed(t, "bench", "--collective", "all_gather,broad"))
	require.Equal(t, []string{"all_to_all", "all_to_all_v"}, completed(t, "explain", "all_to"))
	require.Contains(t, completed(t, "run", "--transports", "builtin:"), "builtin:shm")
	require.Contains(t, completed(t, "bench", "--algo", "all_reduce="), "all_reduce=shm/one_shot")
	require.Contains(t, completed(t, "conformance", "--mode", ""), "graph")
	require.Contains(t, completed(t, "vers"), "version\tPrint the versions of the command and of what it was built with")
	for _, shell := range []string{"bash", "zsh", "fish"} {
		stdout, _, code := shunt(t, "completion", shell)
		require.Zero(t, code)
		require.Contains(t, stdout, "__complete")
	}
}

// Whatever flag takes the names of a table offers them: one that is added later too.
func TestCompletionOfEveryFlagWithNames(t *testing.T) {
	for _, c := range newRoot().Commands() {
		for name := range values {
			if c.Flags().Lookup(name) == nil {
				continue
			}
			require.NotEmpty(t, completed(t, c.Name(), "--"+name, ""), "%s --%s", c.Name(), name)
		}
	}
}

// Every command and every variable has its manual page, without a word that the typesetter takes for a command.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	_, stderr, code := shunt(t, "man", dir)
	require.Zero(t, code, stderr)
	for _, c := range newRoot().Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		page, err := os.ReadFile(filepath.Join(dir, "shunt-"+c.Name()+".1"))
		require.NoError(t, err)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				require.Contains(t, string(page), roff("--"+f.Name), c.Name())
			}
		})
	}
	page, err := os.ReadFile(filepath.Join(dir, "shunt-options.7"))
	require.NoError(t, err)
	for _, v := range option.Variables() {
		require.Contains(t, string(page), ".B "+v.Name)
	}
	man, err := exec.LookPath("man")
	if err != nil {
		return // the rest asks the typesetter itself
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for _, name := range pages {
		out, err := exec.Command(man, "--warnings", "-l", "-Tutf8", "-P", "cat", name).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.NotContains(t, string(out), "warning:", name)
	}
}

func TestRoff(t *testing.T) {
	require.Equal(t, `a \-b \e`+"\n"+`\&.x`+"\n"+`\&'y`, roff("a -b \\\n.x\n'y"))
	require.Equal(t, "a\n.PP\n.br\n  b\n.br\nc", paragraphs("a\n\n  b\nc\n", "none"))
	require.Equal(t, "none", paragraphs("", "none"))
}
