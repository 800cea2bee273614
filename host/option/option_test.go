package option

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaults(t *testing.T) {
	o, warnings := Load(nil)
	require.Empty(t, warnings)
	_, set := o.Rank()
	require.False(t, set)
	_, set = o.World()
	require.False(t, set)
	require.Equal(t, time.Minute, o.Timeout())
	require.Equal(t, time.Second, o.Stall())
	require.Equal(t, time.Second, o.Heartbeat())
	require.Equal(t, -1, o.Spin())
	require.Equal(t, slog.LevelWarn, o.LogLevel())
	require.Equal(t, 256, o.Records())
	require.False(t, o.Check())
	require.Nil(t, o.Transports())
	require.Empty(t, o.Set())
}

func TestValues(t *testing.T) {
	o, warnings := Load([]string{
		"PATH=/bin", "SHUNT_RANK=3", "SHUNT_WORLD=4", "SHUNT_ID=tcp://a:1", "SHUNT_HOST_ID=left",
		"SHUNT_LIBCUDA=/opt/libcuda.so.1", "SHUNT_TRANSPORTS=builtin:shm, process:/x/y,,", "SHUNT_TIMEOUT=1.5",
		"SHUNT_STALL_WARNING=250ms", "SHUNT_CHECK=Yes",
		"SHUNT_LOG=DEBUG", "SHUNT_SPIN_COUNT=100", "SHUNT_ALGO=all_reduce=shm", "SHUNT_FLIGHT_RECORDER_SIZE=", "SHUNT_RANK=2",
	})
	require.Empty(t, warnings)
	rank, set := o.Rank()
	require.True(t, set)
	require.Equal(t, 2, rank, "the last of two counts")
	world, _ := o.World()
	require.Equal(t, 4, world)
	require.Equal(t, "tcp://a:1", o.ID())
	require.Equal(t, []string{"builtin:shm", "process:/x/y"}, o.Transports())
	require.Equal(t, 1500*time.Millisecond, o.Timeout())
	require.Equal(t, 250*time.Millisecond, o.Stall())
	require.True(t, o.Check())
	require.Equal(t, slog.LevelDebug, o.LogLevel())
	require.Equal(t, 100, o.Spin())
	require.Equal(t, "all_reduce=shm", o.Algo())
	require.Equal(t, 256, o.Records(), "empty is unset")
	require.Contains(t, o.Set(), Setting{Name: "SHUNT_HOST_ID", Value: "left"})
}

func TestBadInput(t *testing.T) {
	for entry, want := range map[string]string{
		"SHUNT_RNAK=1":                            "SHUNT_RNAK is not a variable of Shunt and is ignored; did you mean SHUNT_RANK?",
		"SHUNT_TIME_OUT=1":                        "did you mean SHUNT_TIMEOUT?",
		"SHUNT_XYZZY=1":                           "docs/options.md lists them",
		"SHUNT_=1":                                "not a variable",
		"SHUNT_\x01=1":                            `"SHUNT_\x01" is not a variable`,
		"SHUNT_RANK=two":                          `SHUNT_RANK="two": not a whole number; a program that gives none itself cannot join`,
		"SHUNT_RANK=-1":                           "not between 0 and 1023",
		"SHUNT_RANK=99999999999999999999":         "not a whole number",
		"SHUNT_WORLD=0":                           "not between 1 and 1024",
		"SHUNT_TIMEOUT=soon":                      "not a duration such as 30s, 500ms or 2m; the default 60s is used",
		"SHUNT_TIMEOUT=0":                         "not between 1ms and 24h0m0s",
		"SHUNT_TIMEOUT=NaN":                       "not a sensible number of seconds",
		"SHUNT_TIMEOUT=1e300":                     "not a sensible number of seconds",
		"SHUNT_CHECK=maybe":                       "neither on nor off",
		"SHUNT_LOG=wran":                          "did you mean warn?",
		"SHUNT_LOG=loud":                          "not one of error, warn, info, debug; the default warn is used",
		"SHUNT_ALGO=a\nb":                         "control character '\\n'",
		"SHUNT_ID=" + strings.Repeat("x", 1<<17):  "longer than a variable may be",
		"SHUNT_" + strings.Repeat("X", 500) + "=": "longer than a variable may be",
	} {
		o, warnings := Load([]string{entry})
		if len(warnings) != 1 {
			t.Errorf("%.40q: %d warnings", entry, len(warnings))
			continue
		}
		require.Contains(t, warnings[0].String(), want)
		require.Empty(t, o.Set(), "what is malformed is not set")
		require.Equal(t, time.Minute, o.Timeout())
	}
}

func TestTransportOptions(t *testing.T) {
	o, warnings := Load([]string{"SHUNT_SHM_CHUNK=64K", "SHUNT_SHM_SLOT_BYTES=1", "SHUNT_MY_NET_PORT=7", "SHUNT_GONE_X=1"})
	require.Empty(t, warnings)
	require.Equal(t, map[string]string{"chunk": "64K", "slot_bytes": "1"}, o.Transport("shm"))
	require.Equal(t, map[string]string{"port": "7"}, o.Transport("my-net"))
	require.Equal(t, map[string]string{}, o.Transport("nccl"))
	require.Equal(t, []Setting{{"SHUNT_GONE_X", "1"}, {"SHUNT_MY_NET_PORT", "7"}, {"SHUNT_SHM_CHUNK", "64K"},
		{"SHUNT_SHM_SLOT_BYTES", "1"}}, o.Set())
	unclaimed := o.Unclaimed([]string{"shm", "my-net"})
	require.Len(t, unclaimed, 1)
	require.Equal(t, "SHUNT_GONE_X", unclaimed[0].Variable)

	o, warnings = Load([]string{"SHUNT_NCCL_LIBRARY=/x", "SHUNT_NCCL_FORWARD=all"})
	require.Empty(t, warnings)
	require.Equal(t, map[string]string{"library": "/x"}, o.Transport("nccl"), "the others are not the transport's")
	// A short name of a transport makes an option look like a mistyped variable.
	o, warnings = Load([]string{"SHUNT_UCX_LIBRARY=/y"})
	require.Empty(t, warnings)
	require.Equal(t, map[string]string{"library": "/y"}, o.Transport("ucx"))
	require.Len(t, o.Unclaimed([]string{"shm"}), 1)
}

func TestTable(t *testing.T) {
	known := map[string]bool{}
	for _, g := range Groups() {
		known[g] = true
	}
	seen := map[string]bool{}
	for _, v := range Variables() {
		require.True(t, strings.HasPrefix(v.Name, Prefix), v.Name)
		require.False(t, seen[v.Name], v.Name)
		seen[v.Name] = true
		require.True(t, known[v.Group], "%s: group %q", v.Name, v.Group)
		require.True(t, strings.HasSuffix(v.Doc, "."), "%s: the help is made of full sentences", v.Name)
		require.Equal(t, v.Kind == Choice, len(v.Choices) > 0, v.Name)
		if v.Kind == Integer || v.Kind == Duration {
			require.Less(t, v.Min, v.Max, v.Name)
		}
		if v.Default != "" {
			_, warnings := Load([]string{v.Name + "=" + v.Default})
			require.Empty(t, warnings, v.Name)
		}
	}
}

func TestPageIsCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/options.md")
	require.NoError(t, err)
	require.Equal(t, Markdown(), string(page), "run make generate")
}

func FuzzLoad(f *testing.F) {
	for _, v := range Variables() {
		f.Add(v.Name, v.Default)
	}
	f.Add("SHUNT_SHM_CHUNK", "64K")
	f.Fuzz(func(t *testing.T, name, value string) {
		o, warnings := Load([]string{name + "=" + value, "SHUNT_" + name + "=" + value})
		if len(warnings) > 2 {
			t.Fatalf("%d warnings for two variables", len(warnings))
		}
		for _, w := range warnings {
			if len(w.Message) > 2048 || len(w.Variable) > maxName+8 {
				t.Fatalf("unbounded warning of %d bytes", len(w.Message))
			}
		}
		if rank, set := o.Rank(); set && (rank < 0 || rank > 1023) {
			t.Fatalf("rank %d", rank)
		}
		if o.Timeout() < time.Millisecond || o.Timeout() > 24*time.Hour {
			t.Fatalf("timeout %v", o.Timeout())
		}
		o.Unclaimed([]string{"shm"})
	})
}

// Numbers and durations are taken up to both of their bounds and not beyond, where the default stays.
func TestBounds(t *testing.T) {
	for i := range table {
		v := &table[i]
		if v.Kind != Integer && v.Kind != Duration {
			continue
		}
		unit := ""
		if v.Kind == Duration {
			unit = "ns"
		}
		for _, c := range []struct {
			value int64
			good  bool
		}{{v.Min, true}, {v.Max, true}, {v.Min - 1, false}, {v.Max + 1, false}} {
			if (c.value < v.Min || c.value > v.Max) == c.good {
				continue // there is no number beyond that bound
			}
			o, warnings := Load([]string{fmt.Sprintf("%s=%d%s", v.Name, c.value, unit)})
			require.Equal(t, c.good, len(warnings) == 0, "%s=%d: %v", v.Name, c.value, warnings)
			require.Equal(t, c.good, o.set[i], "%s=%d", v.Name, c.value)
			if c.good {
				require.Equal(t, c.value, o.integers[i], v.Name)
				continue
			}
			defaults, _ := Load(nil)
			require.Equal(t, defaults.integers[i], o.integers[i], "%s=%d", v.Name, c.value)
		}
	}
}

// What lets a process join the job is not shown where settings are listed, and in no warning: it is taken as it is, as
// with the end of the line in the file that it comes from.
func TestSecretsAreNotShown(t *testing.T) {
	o, warnings := Load([]string{"SHUNT_ID=tcp://host:1?secret=word\n", "SHUNT_SECRET=word\n"})
	require.Empty(t, warnings)
	require.Equal(t, []string{"tcp://host:1?secret=word\n", "word\n"}, []string{o.ID(), o.Secret()})
	o, _ = Load([]string{"SHUNT_ID=tcp://host:1?secret=word", "SHUNT_SECRET=word", "SHUNT_TRANSPORTS=shm"})
	require.Equal(t, []Setting{{"SHUNT_ID", "(set; not shown)"}, {"SHUNT_SECRET", "(set; not shown)"},
		{"SHUNT_TRANSPORTS", "shm"}}, o.Set())
}
