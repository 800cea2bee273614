package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func sample() Report {
	return Report{
		Head: Head{
			Communicator: "world/1.0", Job: "5f", Rank: 3, World: 4, PID: 4711, Host: "a", Code: "timeout",
			Failure: "rank 2 did not come",
			Last:    &Call{Number: 7, Collective: "all_reduce", State: Called},
		},
		Operations: []Entry{{Number: 1, Collective: "barrier", DType: "int8", State: Ended}},
	}
}

func TestReportsAreReadAsTheyWereWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	for _, failure := range []string{"an older one", "rank 2 did not come"} {
		r := sample()
		r.Failure = failure
		require.NoError(t, r.WriteFile(dir))
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.Equal(t, "world_1.0.5f.3.json", names[0].Name())
	text, err := os.ReadFile(filepath.Join(dir, names[0].Name()))
	require.NoError(t, err)
	var whole Report
	require.NoError(t, json.Unmarshal(text, &whole))
	require.Equal(t, sample(), whole)
	head, err := ReadHead(bytes.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, sample().Head, head)
}

func TestReportsThatCannotBeWrittenLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	r := sample()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, r.FileName(), "in the way"), 0o700))
	require.ErrorIs(t, r.WriteFile(dir), plugin.System)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.ErrorIs(t, r.WriteFile("/dev/null/x"), plugin.System)
}

func TestFileNames(t *testing.T) {
	long := strings.Repeat("world/1.0", 100)
	seen := map[string]string{}
	for _, label := range []string{
		"world", "world/1.0", "world_1.0", "world%2F1.0", "world-1", "..", ".", "../../etc/passwd", "a\x00b", "a\nb", "Ünï",
		"a~b", long, long + "/1.0", long + "/2.0",
	} {
		h := Head{Communicator: label, Rank: 1023}
		name := h.FileName()
		require.Equal(t, filepath.Base(name), name)
		require.True(t, strings.HasSuffix(name, ".1023.json") && !strings.HasPrefix(name, "."), name)
		require.Regexp(t, `^[A-Za-z0-9.%_~-]{1,200}$`, name)
		require.Empty(t, seen[name], "%q and %q", seen[name], label)
		seen[name] = label
		for _, job := range []string{"5fc0a1e2d3b4", "6fc0a1e2d3b4", "../../..", "."} {
			h.Job = job
			name := h.FileName()
			require.Equal(t, filepath.Base(name), name)
			require.Regexp(t, `^[A-Za-z0-9%][A-Za-z0-9.%_~-]{1,220}\.1023\.json$`, name)
			require.Empty(t, seen[name], "%q and %q", seen[name], label)
			seen[name] = label
		}
	}
}

func TestWhatIsNoReport(t *testing.T) {
	text := func(change func(*Head)) string {
		h := sample().Head
		change(&h)
		b, err := json.Marshal(h)
		require.NoError(t, err)
		return string(b)
	}
	for text, want := range map[string]string{
		"":                            "unexpected end",
		"[]":                          "cannot unmarshal array",
		"{}":                          "no communicator",
		text(func(*Head) {}) + "{}":   "after top-level value",
		`{"communicator":7}`:          "cannot unmarshal number",
		strings.Repeat("[", 100_000):  "not a report",
		text(func(*Head) {})[:30]:     "unexpected end",
		strings.Repeat(" ", 64<<20+1): "longer than 67108864 bytes",
		text(func(h *Head) { h.Communicator = strings.Repeat("x", 4097) }): "no communicator",
		text(func(h *Head) { h.World = 0 }):                                "its world",
		text(func(h *Head) { h.World = 1025 }):                             "its world",
		text(func(h *Head) { h.Rank = 4 }):                                 "its rank",
		text(func(h *Head) { h.Rank = -1 }):                                "its rank",
		text(func(h *Head) { h.PID = -1 }):                                 "make no sense",
		text(func(h *Head) { h.Host = strings.Repeat("x", 257) }):          "make no sense",
		text(func(h *Head) { h.Code = "" }):                                "do not go together",
		text(func(h *Head) { h.Last.Collective = "" }):                     "has no name",
		text(func(h *Head) { h.Last.State = "asleep" }):                    "in no state",
		text(func(h *Head) { h.Last.Peer = &h.World }):                     "with no rank of its world",
	} {
		_, err := ReadHead(strings.NewReader(text))
		require.ErrorIs(t, err, plugin.Protocol, "%.60s", text)
		require.ErrorContains(t, err, want, "%.60s", text)
	}
	_, err := ReadHead(strings.NewReader(`{"communicator":"world","world":1,"of_a_later_version":[1,2]}`))
	require.NoError(t, err)
}

func FuzzReadHead(f *testing.F) {
	var text bytes.Buffer
	if err := sample().WriteJSON(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte(`{"communicator":"../x","world":1}`))
	f.Add([]byte(`{"communicator":"\u0000","world":2,"rank":1,"last":{"collective":"recv","state":"ended","number":18446744073709551615}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ReadHead(bytes.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, plugin.Protocol)
			require.Zero(t, h)
			return
		}
		require.Equal(t, filepath.Base(h.FileName()), h.FileName())
		var again bytes.Buffer // what is accepted survives being written
		require.NoError(t, Report{Head: h}.WriteJSON(&again))
		back, err := ReadHead(&again)
		require.NoError(t, err)
		require.Equal(t, h, back)
	})
}
