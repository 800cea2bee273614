package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/host/topology/topologytest"
)

var update = flag.Bool("update", false, "write what docs/topology.md shows and docs/schemas has")

const (
	topologyPage    = "../../docs/topology.md"
	topologyExample = "../../docs/images/topology-dgx-h200.json"
	topologyPicture = "../../docs/images/topology-dgx-h200.svg"
)

// example is the machine of the documents: go-nvml's mock of a DGX H200, and a process that may use all of it.
func example() *topology.Machine {
	b := topologytest.DGXH200()
	b.Env["SHUNT_HOST_ID"] = "dgx-h200"
	m := topology.Scan(b.Sources())
	m.Container = topology.Container{CPUSet: m.CPUs, PIDNamespace: "pid:[4026531836]",
		NetworkNamespace: "net:[4026531840]"}
	return m
}

// shown returns a block of a page, behind the command whose output it is.
func shown(page []byte, command string) []int {
	quoted := regexp.QuoteMeta("```console\n$ " + command + "\n")
	return regexp.MustCompile("(?s)" + quoted + "(.*?)```\n").FindSubmatchIndex(page)
}

// The page shows the command's output for the saved machine, which is Scan's result for the mock.
func TestTopologyPageShowsWhatTopoPrints(t *testing.T) {
	text, err := json.MarshalIndent(example(), "", "  ")
	require.NoError(t, err)
	text = append(text, '\n')
	picture := filepath.Join(t.TempDir(), "picture.svg")
	if *update {
		require.NoError(t, os.WriteFile(topologyExample, text, 0o644))
	}
	stdout, stderr, code := shunt(t, "topo", "--from", topologyExample, "--svg", picture)
	require.Zero(t, code, stderr)
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	page, err := os.ReadFile(topologyPage)
	require.NoError(t, err)
	at := shown(page, "shunt topo --from docs/images/topology-dgx-h200.json --svg docs/images/topology-dgx-h200.svg")
	require.NotNil(t, at)
	if *update {
		page = append(append(append([]byte{}, page[:at[2]]...), stdout...), page[at[3]:]...)
		require.NoError(t, os.WriteFile(topologyPage, page, 0o644))
		require.NoError(t, os.WriteFile(topologyPicture, svg, 0o644))
		return
	}
	saved, err := os.ReadFile(topologyExample)
	require.NoError(t, err)
	require.Equal(t, string(text), string(saved), "go test ./cmd/shunt -run TopologyPage -update")
	require.Equal(t, stdout, string(page[at[2]:at[3]]))
	drawn, err := os.ReadFile(topologyPicture)
	require.NoError(t, err)
	require.Equal(t, string(drawn), string(svg))
	stdout, _, code = shunt(t, "topo", "--from", topologyExample, "--json")
	require.Zero(t, code)
	require.Equal(t, string(saved), stdout, "what is read is printed again")
}

// fields collects the paths of a type's fields as JSON names them, each with its kind.
func fields(prefix string, typ reflect.Type, found map[string]string) {
	switch typ.Kind() {
	case reflect.Slice:
		fields(prefix+"[]", typ.Elem(), found)
	case reflect.Struct:
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			fields(strings.TrimPrefix(prefix+"."+name, "."), typ.Field(i).Type, found)
		}
	case reflect.Int, reflect.Int64:
		found[prefix] = "number"
	case reflect.Bool:
		found[prefix] = "true or false"
	default:
		found[prefix] = "text"
	}
}

// The page's table of the JSON form names every field that there is, with its kind, and no other.
func TestTopologyPageNamesEveryField(t *testing.T) {
	page, err := os.ReadFile(topologyPage)
	require.NoError(t, err)
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\| ([a-z ]+) \\| (.+) \\|$").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	want := map[string]string{}
	fields("", reflect.TypeFor[topology.Machine](), want)
	require.Equal(t, want, documented)
	// And what is printed has those fields alone.
	var m any
	stdout, _, code := shunt(t, "topo", "--json", "-n", "2")
	require.Zero(t, code)
	require.NoError(t, json.Unmarshal([]byte(stdout), &m))
	var check func(path string, v any)
	check = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				check(strings.TrimPrefix(path+"."+name, "."), inner)
			}
		case []any:
			for _, inner := range v {
				check(path+"[]", inner)
			}
		default:
			require.Contains(t, documented, path)
		}
	}
	check("", m)
}

func TestTopoReadsFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for want, args := range map[string][]string{
		"--from: open " + dir + "/none: no such file":                   {"--from", filepath.Join(dir, "none")},
		"topology: schema is 0, want 1":                                 {"--from", file("empty", "{}")},
		"topology: unexpected end of JSON input":                        {"--from", file("cut", `{"schema": 1`)},
		"--from and -n exclude each other":                              {"--from", file("any", "{}"), "-n", "2"},
		"the file cannot be written: open " + dir + "/none/picture.svg": {"--svg", filepath.Join(dir, "none", "picture.svg")},
	} {
		_, stderr, code := shunt(t, append([]string{"topo"}, args...)...)
		require.NotZero(t, code, want)
		require.Contains(t, stderr, want)
	}
	_, stderr, code := shunt(t, "topo", "--from", dir)
	require.Equal(t, exitUsage, code, stderr)
	require.Contains(t, stderr, "is a directory")
}

// Texts of a file reach the terminal without control characters, and JSON as they are.
func TestTopoOfAFileIsPrintable(t *testing.T) {
	const bad = "\x1b[31mX\nGPU9: \u009b"
	for _, name := range []string{topologyExample, ""} {
		var text []byte
		if name != "" {
			var err error
			text, err = os.ReadFile(name)
			require.NoError(t, err)
		} else {
			stdout, stderr, code := shunt(t, "topo", "--json", "-n", "2")
			require.Zero(t, code, stderr)
			text = []byte(stdout)
		}
		m, err := topology.Parse(text)
		require.NoError(t, err)
		m.Host, m.CPUs, m.Driver, m.Problems = bad, bad, bad, append(m.Problems, bad)
		m.Container.Kind, m.Container.VisibleDevices = bad, bad
		for i := range m.GPUs {
			m.GPUs[i].Name, m.GPUs[i].UUID, m.GPUs[i].CPUs = bad, bad, bad
		}
		for i := range m.Places {
			m.Places[i].Host = bad
		}
		path := filepath.Join(t.TempDir(), "m.json")
		text, err = json.Marshal(m)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		stdout, stderr, code := shunt(t, "topo", "--from", path)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "[31mX GPU9:")
		require.NotContains(t, stdout, "\nGPU9: \n")
		for _, r := range stdout {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%q", r)
		}
		stdout, stderr, code = shunt(t, "topo", "--json", "--from", path)
		require.Zero(t, code, stderr)
		back, err := topology.Parse([]byte(stdout))
		require.NoError(t, err)
		require.Equal(t, m, back)
	}
}

// Without a driver topo says so, shows the rest of the machine, and succeeds.
func TestTopoWithoutADriver(t *testing.T) {
	if _, version, _ := machineGPUs(); version != 0 {
		t.Skip("needs a machine without the NVIDIA driver")
	}
	stdout, stderr, code := shunt(t, "topo")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "\nno GPU: no CUDA driver: ")
	require.Regexp(t, `(?m)^NUMA node 0: CPUs `, stdout)
	picture := filepath.Join(t.TempDir(), "picture.svg")
	stdout, stderr, code = shunt(t, "topo", "--json", "--svg", picture)
	require.Zero(t, code, stderr)
	m, err := topology.Parse([]byte(stdout))
	require.NoError(t, err)
	require.Empty(t, m.GPUs)
	require.NotEmpty(t, m.Problems)
	require.FileExists(t, picture)
}
