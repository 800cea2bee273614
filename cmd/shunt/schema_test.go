package main

import (
	"encoding"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/records"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/tests/conformance"
)

const schemas = "../../docs/schemas"

// outputs are the values that --json prints, by the file of their schema, and command lines that print one.
var outputs = []struct {
	name  string
	value any
	lines []string
}{
	{"version", readVersion(), []string{"version --json"}},
	{"topo", topology.Machine{}, []string{"topo --json", "topo -n 2 --json"}},
	{"transports", []transportReport{}, []string{"transports --json", "transports --json builtin:shm /does/not/exist.so"}},
	{"explain", []explained{}, []string{"explain -n 2 --json", "explain -n 2 --json --bytes 8,1M all_reduce"}},
	{"doctor", []finding{}, []string{"doctor --json"}},
	{"failpoints", []listedPoint{}, []string{"doctor --failpoints --json"}},
	{"run", runReport{}, []string{"run --json true", "run -n 2 --json false"}},
	{"records", records.Summary{}, nil}, // in TestRunShowsWhereRanksWere
	{"bench", []benchResult{}, []string{"bench -n 2 --json --max 8 --iters 2 --memory host --collective all_reduce"}},
	{"bench-peers", []bench.Comparison{}, nil}, // needs torch and mpirun
	{"tune", tuneReport{}, nil}, // takes minutes
	{"conformance", conformance.Report{}, []string{"conformance --json --filter barrier -n 2"}},
}

// schemaOf is the schema of what encoding/json writes of a type. Every field that is not omitempty is there, and no
// other one is; a slice, map or pointer may be null.
func schemaOf(t *testing.T, of reflect.Type, definitions map[string]any) map[string]any {
	t.Helper()
	if of == reflect.TypeFor[time.Time]() {
		return map[string]any{"type": "string", "format": "date-time"}
	}
	if of.Implements(reflect.TypeFor[json.Marshaler]()) {
		t.Fatalf("%v writes its own JSON: say here what it is", of)
	}
	if of.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return map[string]any{"type": "string"}
	}
	switch of.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{schemaOf(t, of.Elem(), definitions), map[string]any{"type": "null"}}}
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": []any{"string", "null"}, "contentEncoding": "base64"}
		}
		return map[string]any{"type": []any{"array", "null"}, "items": schemaOf(t, of.Elem(), definitions)}
	case reflect.Array:
		return map[string]any{"type": "array", "items": schemaOf(t, of.Elem(), definitions), "minItems": of.Len(),
			"maxItems": of.Len()}
	case reflect.Map:
		return map[string]any{"type": []any{"object", "null"}, "additionalProperties": schemaOf(t, of.Elem(), definitions)}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		name := strings.ReplaceAll(of.String(), "main.", "")
		if _, known := definitions[name]; !known {
			object := map[string]any{"type": "object", "additionalProperties": false}
			definitions[name] = object // a type may have itself as a part
			properties, required := map[string]any{}, []any{}
			addFields(t, of, definitions, properties, &required)
			object["properties"], object["required"] = properties, required
		}
		return map[string]any{"$ref": "#/$defs/" + name}
	default:
		if of.Kind() >= reflect.Int && of.Kind() <= reflect.Uint64 {
			return map[string]any{"type": "integer"}
		}
		t.Fatalf("%v has no JSON", of)
		return nil
	}
}

func addFields(t *testing.T, of reflect.Type, definitions, properties map[string]any, required *[]any) {
	t.Helper()
	for i := range of.NumField() {
		field := of.Field(i)
		tag, has := field.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		embedded := field.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case tag == "-" || (!field.IsExported() && !field.Anonymous):
		case field.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			before := len(*required)
			addFields(t, embedded, definitions, properties, required)
			if field.Type.Kind() == reflect.Pointer { // nothing of it is there if it is nil
				*required = (*required)[:before]
			}
		default:
			if !has || name == "" {
				name = field.Name
			}
			properties[name] = schemaOf(t, field.Type, definitions)
			if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				*required = append(*required, name)
			}
		}
	}
}

// agrees compares what --json printed with a schema, which must not be one that takes everything.
func agrees(t *testing.T, name, stdout, what string) {
	t.Helper()
	compiled, err := jsonschema.NewCompiler().Compile(filepath.Join(schemas, name+".json"))
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	require.NoError(t, err, what+stdout)
	require.NoError(t, compiled.Validate(value), what)
	other := any(map[string]any{"what": "another one"})
	if _, list := value.([]any); list {
		other = []any{other}
	}
	require.Error(t, compiled.Validate(other), "the schema of %s takes everything", name)
}

// interrupted returns what a command with --json prints until SIGINT, see ended.
func interrupted(t *testing.T, failpoints, file, line string, begun func(stdout string) bool) string {
	t.Helper()
	stdout, _ := ended(t, failpoints, file, begun, append(strings.Fields(line), "--json")...)
	if !strings.Contains(line, "--regret") {
		agrees(t, strings.Fields(line)[0], stdout, line)
	}
	return stdout
}

// ended starts a command, sends it SIGINT once there is a file, and returns its output. Without a file it does so after
// two seconds, and again later if the command had not begun by then what the test is about.
func ended(t *testing.T, failpoints, file string, begun func(stdout string) bool, args ...string) (string, string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	for after := 2 * time.Second; ; after *= 2 {
		var stdout, stderr strings.Builder
		c := exec.Command(self, args...)
		c.Env, c.Stdout, c.Stderr = append(os.Environ(), failpoint.Variable+"="+failpoints), &stdout, &stderr
		require.NoError(t, c.Start())
		if file == "" {
			time.Sleep(after)
		} else {
			appears(t, file)
		}
		require.NoError(t, c.Process.Signal(os.Interrupt))
		require.Error(t, c.Wait())
		if file == "" && after < 30*time.Second && !begun(stdout.String()) {
			continue
		}
		require.Equal(t, exitFailure, c.ProcessState.ExitCode(), stderr.String())
		require.Regexp(t, `(?m)^shunt( \w+)?: `, stderr.String())
		return stdout.String(), stderr.String()
	}
}

// appears waits for a file.
func appears(t *testing.T, path string) {
	t.Helper()
	there := func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
	require.Eventually(t, there, 30*time.Second, 10*time.Millisecond)
}

// What is interrupted or fails midway prints the results until then.
func TestJSONUntilTheEnd(t *testing.T) {
	dir := t.TempDir()
	var results []benchResult
	stdout := interrupted(t, "bench.corrupt[1]=delay(1m)@3", filepath.Join(dir, "saved"),
		"bench -n 2 --min 8 --max 8 --budget 1ms --apart --collective sendrecv,all_reduce --save "+filepath.Join(dir, "saved"), nil)
	require.NoError(t, json.Unmarshal([]byte(stdout), &results))
	require.Len(t, results[0].Rows, 1)
	require.Equal(t, "sendrecv", results[0].Rows[0].Collective)

	t.Setenv(failpoint.Variable, "bench.corrupt[1]=exit@5")
	stdout, stderr, code := shunt(t, "bench", "--json", "-n", "2", "--min", "8", "--max", "8", "--budget", "1ms",
		"--collective", "all_reduce,sendrecv")
	require.Equal(t, exitFailure, code, stderr)
	agrees(t, "bench", stdout, "a rank dies")
	require.NoError(t, json.Unmarshal([]byte(stdout), &results))
	require.Len(t, results[0].Rows, 1)
	t.Setenv(failpoint.Variable, "")
	stdout, _, code = shunt(t, "bench", "--json", "--min", "3X")
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	stdout, _, code = shunt(t, "bench", "--json", "--factor", "1")
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)

	path := filepath.Join(dir, "tuning")
	var tuned tuneReport
	interrupted(t, "bench.first_algorithm=delay(1m)", "", "tune -n 2 --max 64 --memory host --collective "+
		"all_reduce,broadcast -o "+path, func(stdout string) bool {
		return json.Unmarshal([]byte(stdout), &tuned) == nil && len(tuned.Worlds) > 0
	})
	require.Empty(t, tuned.File)
	require.NoFileExists(t, path)
	require.Len(t, tuned.Worlds, 1)
	const regret = "tune --regret -n 2 --max 64 --memory host"
	stdout = interrupted(t, "bench.auto=delay(1m)", "", regret, func(stdout string) bool {
		return json.Unmarshal([]byte(stdout), &tuned.Worlds) == nil
	})
	require.NoError(t, json.Unmarshal([]byte(stdout), &tuned.Worlds), stdout)
	table := func(stdout string) bool { return strings.HasPrefix(stdout, "# regret") }
	stdout, stderr = ended(t, "bench.auto=delay(1m)", "", table, strings.Fields(regret)...)
	require.Regexp(t, `(?s)^# regret: 2 ranks.*\n# \d+ of \d+ sizes, .*\n# took [1-9]\d* s\n$`, stdout)
	require.Contains(t, stderr, "interrupted: the table ends with what was measured before")

	var report conformance.Report
	interrupted(t, "", "", "conformance -n 2", func(stdout string) bool {
		return json.Unmarshal([]byte(stdout), &report) == nil && len(report.Results) > 0
	})
	require.NotEmpty(t, report.Results)
	require.Zero(t, report.Count(conformance.Failed), "the case that was running has not failed")
}

// TestSchemas: docs/schemas has the types that --json prints, and what it prints agrees with them.
func TestSchemas(t *testing.T) {
	for _, o := range outputs {
		t.Run(o.name, func(t *testing.T) {
			definitions := map[string]any{}
			schema := schemaOf(t, reflect.TypeOf(o.value), definitions)
			schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "shunt "+o.name+" --json"
			if len(definitions) > 0 {
				schema["$defs"] = definitions
			}
			text, err := json.MarshalIndent(schema, "", " ")
			require.NoError(t, err)
			path := filepath.Join(schemas, o.name+".json")
			if *update {
				require.NoError(t, os.MkdirAll(schemas, 0o755))                   //nolint:gosec // documentation
				require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o644)) //nolint:gosec // documentation
			}
			kept, err := os.ReadFile(path) //nolint:gosec // a constant
			require.NoError(t, err)
			require.Equal(t, string(text)+"\n", string(kept), "go test ./cmd/shunt -run TestSchemas -update writes it")
			for _, line := range o.lines {
				stdout, stderr, _ := shunt(t, strings.Fields(line)...)
				agrees(t, o.name, stdout, line+": "+stderr)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(schemas, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, len(outputs))
}
