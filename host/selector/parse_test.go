package selector

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestParse(t *testing.T) {
	o, err := Parse("all_reduce:0-64K=shm/one_shot; *:1M-=nccl , shm/two_shot,*;;broadcast:8=shm;send:-2G=shm/generic/put_direct")
	require.NoError(t, err)
	require.Equal(t, []Clause{
		{"all_reduce", 0, 64 << 10, []string{"shm/one_shot"}},
		{"*", 1 << 20, math.MaxInt64, []string{"nccl", "shm/two_shot", "*"}},
		{"broadcast", 8, 8, []string{"shm"}},
		{"send", 0, 2 << 30, []string{"shm/generic/put_direct"}},
	}, o.clauses)
	require.Equal(t, "all_reduce:0-64K=shm/one_shot;*:1M-=nccl,shm/two_shot,*;broadcast:8-8=shm;send:0-2G=shm/generic/put_direct", o.String())
}

// SHUNT_ALGO can name every algorithm that a transport may offer.
func TestEveryAlgorithmCanBeNamed(t *testing.T) {
	for r := rune(0); r < 0x180; r++ {
		for _, name := range []string{string(r), "a" + string(r), string(r) + "a", "a" + string(r) + "a"} {
			offered := plugin.Support{Algorithms: []plugin.Algorithm{{Name: name, Bandwidth: 1}}}.Validate()
			o, err := Parse("*=shm/" + name)
			named := err == nil && slices.Equal(o.clauses[0].Names, []string{"shm/" + name})
			require.True(t, named || offered != nil, "%q: %v", name, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		"all_reduce":                            `byte 0: clause "all_reduce" has no =`,
		"barrier=shm; allreduce=shm":            `byte 13: unknown collective "allreduce"; did you mean all_reduce?`,
		"xyzzyplugh=shm":                        "there are *, all_reduce",
		"=shm":                                  "byte 0: unknown collective",
		"all_reduce=":                           `byte 11: "" is not the name of a transport`,
		"all_reduce=shm,":                       `byte 15: "" is not the name`,
		"all_reduce=Shm":                        `"Shm" is not the name`,
		"all_reduce=shm/":                       `"shm/" is not the name`,
		"all_reduce:=shm":                       "empty size range",
		"all_reduce:-=shm":                      "empty size range",
		"all_reduce:64X-=shm":                   `byte 11: "64X" is not a size such as 512, 64K or 4M`,
		"all_reduce:0-9999999999G=shm":          `byte 13: "9999999999G" is not a size`,
		"all_reduce:2K-1K=shm":                  `size range "2K-1K" ends before it begins`,
		"all_reduce:+5-=shm":                    "is not a size",
		"all_reduce:1KK-=shm":                   "is not a size",
		"all_reduce:K-=shm":                     "is not a size",
		"send=a; recv:1K-=b":                    `byte 8: clause "recv:1K-=b" contradicts "send=a": send and recv are the two ends of one message`,
		"wait:-4K=a,b;signal:4K-=b,a":           `signal are the two ends`,
		strings.Repeat("x", 1<<17):              "SHUNT_ALGO has 131072 bytes, want at most",
		strings.Repeat("*=a;", maxClauses+1):    "more than 256 clauses",
		"*=" + strings.Repeat("a,", maxNames+1): "more than 32 names",
	} {
		_, err := Parse(spec)
		require.ErrorIs(t, err, plugin.InvalidArgument, "%.40q", spec)
		require.ErrorContains(t, err, want)
	}
}

// Both ends of a message choose alike, whichever end is spoken of.
func TestTwoEndsOfAMessageChooseAlike(t *testing.T) {
	for spec, want := range map[string]string{
		"send=shm/two_shot":                            "shm/two_shot",
		"recv=shm/two_shot":                            "shm/two_shot",
		"recv:0-1K=shm/two_shot;send:2K-=shm/one_shot": "shm/two_shot",
		"send=shm/two_shot;recv=shm/two_shot":          "shm/two_shot",
		"wait=shm/two_shot":                            "shm/two_shot",
	} {
		o, err := Parse(spec)
		require.NoError(t, err, spec)
		ends := []plugin.Collective{plugin.Send, plugin.Recv}
		if strings.HasPrefix(spec, "wait") {
			ends = []plugin.Collective{plugin.Signal, plugin.Wait}
		}
		for _, end := range ends {
			req := request
			req.Collective = end
			c, err := New(WithOverride(o)).Compile(req, three, nil)
			require.NoError(t, err)
			require.Equal(t, want, name(c, 100), "%s of %s", end, spec)
		}
	}
	tuning, err := ParseTuning([]byte(`{"shunt_tuning": 1, "entries": [
		{"collective": "send", "algorithm": "shm/two_shot", "points": [{"bytes": 0, "us": 0.001}]},
		{"collective": "recv", "algorithm": "shm/one_shot", "points": [{"bytes": 0, "us": 0.0001}]}]}`))
	require.NoError(t, err)
	for _, end := range []plugin.Collective{plugin.Send, plugin.Recv} {
		req := request
		req.Collective = end
		c, err := New(WithCosts(Costs{Tuning: tuning})).Compile(req, three, nil)
		require.NoError(t, err)
		require.Equal(t, "shm/two_shot", name(c, 0), end)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "8": 8, "1k": 1 << 10, "64K": 64 << 10, "4MB": 4 << 20, "4MiB": 4 << 20, "2g": 2 << 30, "12b": 12,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseSize(FormatSize(got))
		require.NoError(t, err)
		require.Equal(t, want, again)
	}
}

const goodTuning = `{"shunt_tuning": 1, "comment": "c", "entries": [
	{"collective": "all_reduce", "algorithm": "shm/one_shot", "points": [{"bytes": 0, "us": 50}]},
	{"collective": "all_reduce", "algorithm": "shm/one_shot", "world": 4, "points": [{"bytes": 0, "us": 10}, {"bytes": 1000, "us": 20}]},
	{"collective": "all_reduce", "algorithm": "shm/one_shot", "world": 8, "memory": "host", "points": [{"bytes": 0, "us": 1}]}]}`

func TestTuningReplacesEstimates(t *testing.T) {
	tuning, err := ParseTuning([]byte(goodTuning))
	require.NoError(t, err)
	c, err := New(WithCosts(Costs{Tuning: tuning})).Compile(request, three, nil)
	require.NoError(t, err)
	require.Equal(t, "shm/two_shot", name(c, 0), "measured at 10 µs, no longer estimated at 1")
	e := c.Explain(500)
	require.Equal(t, Alternative{Name: "shm/one_shot", Cost: 15, Source: "measured", Why: "9.94 µs slower"}, e.Fallback[0])
	require.Equal(t, 40.0, c.costs[0].cost(3000), "past the last point with the slope of the last two")
}

func TestTuningFile(t *testing.T) {
	tuning, err := ParseTuning([]byte(goodTuning))
	require.NoError(t, err)
	text, err := tuning.Marshal()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	back, err := ReadTuning(path)
	require.NoError(t, err)
	require.Equal(t, tuning, back)
	_, err = ReadTuning(path + ".gone")
	require.ErrorIs(t, err, plugin.System)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, unix.Mkfifo(path+".pipe", 0o600))
	for _, other := range []string{path + ".pipe", t.TempDir(), os.DevNull} {
		_, err = ReadTuning(other)
		require.ErrorIs(t, err, plugin.System)
		require.ErrorContains(t, err, "is no regular file")
	}
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = ReadTuning(path)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.ErrorContains(t, err, path)
}

func TestTuningRefuses(t *testing.T) {
	entry := func(fields string) string { return `{"shunt_tuning": 1, "entries": [{` + fields + `}]}` }
	const head = `"collective": "all_reduce", "algorithm": "a/b", `
	for text, want := range map[string]string{
		``:                                   "not JSON",
		`[]`:                                 "not JSON of the right form",
		`{}`:                                 "field shunt_tuning is 0; this version reads 1",
		`{"shunt_tuning": 2}`:                "field shunt_tuning is 2",
		`{"shunt_tuning": 1, "entires": []}`: "unknown field",
		entry(`"collective": "all_redcue"`):  `entry 0: unknown collective "all_redcue"`,
		entry(`"collective": "all_reduce"`):  `algorithm "" is not of the form`,
		entry(head + `"dtype": "f32"`):       "unknown dtype",
		entry(head + `"dtype": "halves"`):    "classes of dtypes are integer, float, half, float8",
		entry(head + `"mode": "captured"`):   `mode "captured" is unknown, want graph or eager`,
		entry(head + `"topology": "` + strings.Repeat("x", 300) + `"`):    "the class of topology has 300 bytes",
		entry(head + `"op": "plus"`):                                      "unknown reduction op",
		entry(head + `"memory": "tape"`):                                  `memory kind "tape" is unknown`,
		entry(head + `"world": -1`):                                       "a world of -1 ranks",
		entry(head + `"points": []`):                                      "0 points",
		entry(head + `"points": [{"bytes":8,"us":1},{"bytes":8,"us":1}]`): "sizes must ascend",
		entry(head + `"points": [{"bytes":8,"us":0}]`):                    "cost of 0 µs at 8 bytes",
		entry(head + `"points": [{"bytes":8,"us":1e300}]`):                "cost of 1e+300",
		entry(head + `"points": [{"bytes":-8,"us":1}]`):                   "sizes must ascend",
	} {
		_, err := ParseTuning([]byte(text))
		require.ErrorIs(t, err, plugin.InvalidArgument, text)
		require.ErrorContains(t, err, want)
	}
	_, err := ParseTuning(make([]byte, maxTuningBytes+1))
	require.ErrorContains(t, err, "more than")
}

func FuzzParse(f *testing.F) {
	f.Add("all_reduce:0-64K=shm/one_shot;*:1M-=nccl,shm/two_shot,*")
	f.Add("send : -2G = a/b/c ;;")
	f.Fuzz(func(t *testing.T, spec string) {
		o, err := Parse(spec)
		if err != nil {
			if len(err.Error()) > 2048 {
				t.Fatalf("unbounded message of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := Parse(o.String())
		if err != nil || again.String() != o.String() {
			t.Fatalf("%q became %q, then %q (%v)", spec, o.String(), again.String(), err)
		}
		if c, err := New(WithOverride(o)).Compile(request, three, nil); err == nil {
			for _, bytes := range []int64{0, 1, 1 << 10, 1 << 40, math.MaxInt64} {
				if i := c.Pick(bytes); i < -1 || i >= len(three) {
					t.Fatalf("Pick(%d) = %d", bytes, i)
				}
				_ = c.Explain(bytes).String()
			}
		}
	})
}

func FuzzParseTuning(f *testing.F) {
	f.Add([]byte(goodTuning))
	f.Fuzz(func(t *testing.T, text []byte) {
		tuning, err := ParseTuning(text)
		if err != nil {
			return
		}
		c, err := New(WithCosts(Costs{Tuning: tuning})).Compile(request, three, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, bytes := range []int64{0, 1, 1 << 10, 1 << 40, math.MaxInt64} {
			if c.Pick(bytes) < 0 {
				t.Fatalf("no choice for %d bytes", bytes)
			}
		}
	})
}
