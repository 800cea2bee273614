package host_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// On GPUs costs are those of the topology's class and of the job's mode.
func TestModeAndTopologyOfCosts(t *testing.T) {
	const message = 20 << 10
	explain := func(path string) (e selector.Explanation) {
		errs := deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.TuningFile = path }, func(r *rank) error {
			explained, err := r.Explain(plugin.AllReduce, plugin.Float32, plugin.OpSum, message)
			if r.Rank() == 0 {
				e = explained
			}
			return errors.Join(err, deviceSum(r, message/4))
		})
		require.NoError(t, errors.Join(errs...))
		return e
	}
	before := explain("")
	require.Equal(t, selector.ModeGraph, before.Mode)
	require.NotEmpty(t, before.Topology)
	require.Equal(t, selector.SourceEstimate, before.Source)
	entry := func(algorithm, topology string, mode selector.Mode, us float64) selector.Entry {
		return selector.Entry{Collective: "all_reduce", Algorithm: "cudaipc/" + algorithm, Topology: topology, Mode: mode,
			Points: []selector.Point{{Bytes: message, Microseconds: us}}}
	}
	for _, test := range []struct {
		topology, mode, want, source string
	}{
		{before.Topology, "", "one_shot_ll", selector.SourceMeasured},
		{before.Topology, "eager", "one_shot_ll128", selector.SourceMeasured},
		{"h200-elsewhere", "eager", before.Chosen[len("cudaipc/"):], selector.SourceEstimate},
	} {
		file := selector.Tuning{Entries: []selector.Entry{
			entry("one_shot_ll", test.topology, selector.ModeGraph, 0.001),
			entry("one_shot_ll128", test.topology, selector.ModeGraph, 9),
			entry("one_shot_ll", test.topology, selector.ModeEager, 9),
			entry("one_shot_ll128", test.topology, selector.ModeEager, 0.001),
		}}
		path := filepath.Join(t.TempDir(), "tuning.json")
		require.NoError(t, file.WriteFile(path))
		t.Setenv("SHUNT_TUNING_MODE", test.mode)
		e := explain(path)
		require.Equal(t, "cudaipc/"+test.want+" "+test.source, e.Chosen+" "+e.Source, "%+v", test)
	}
}

// tuningFile writes a file by which a call of 8 bytes runs an algorithm.
func tuningFile(t *testing.T, algorithm string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tuning.json")
	text := fmt.Sprintf(`{"shunt_tuning": 1, "entries": [
		{"collective": "all_reduce", "algorithm": %q, "points": [{"bytes": 8, "us": 0.001}]}]}`, algorithm)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A tuning file of which nothing is for a communicator, or that names what no transport offers, is a warning of rank 0
// alone; else a line at level info says how much of it counts. Parts of a job warn of nothing.
func TestTuningFileWithoutEffect(t *testing.T) {
	const points = `, "points": [{"bytes": 8, "us": 1}]}`
	for name, test := range map[string]struct{ entries, level, want string }{
		"all": {`{"collective": "all_reduce", "algorithm": "shm/two_shot"` + points, "INFO", "entries=1 for_it=1"},
		"some": {`{"collective": "all_reduce", "algorithm": "shm/two_shot", "world": 3` + points +
			`, {"collective": "all_reduce", "algorithm": "shm/two_shot", "world": 5` + points, "INFO", "entries=2 for_it=1"},
		"another world": {`{"collective": "all_reduce", "algorithm": "shm/two_shot", "world": 2` + points, "WARN",
			"entries=1 for_it=0 world=3 hosts=1 memory=host topology=host"},
		"other hosts": {`{"collective": "all_reduce", "algorithm": "shm/two_shot", "hosts": 2` + points, "WARN", "for_it=0"},
		"other memory": {`{"collective": "all_reduce", "algorithm": "shm/two_shot", "memory": "cuda"` + points, "WARN",
			"for_it=0"},
		"another machine": {`{"collective": "all_reduce", "algorithm": "shm/two_shot", "topology": "h200-nvlink"` + points,
			"WARN", "for_it=0"},
		"another mode": {`{"collective": "all_reduce", "algorithm": "shm/two_shot", "mode": "eager"` + points, "WARN",
			"for_it=0"},
		"misspelt": {`{"collective": "all_reduce", "algorithm": "shm/one_shoot"` + points, "WARN",
			`collective=all_reduce algorithm=shm/one_shoot there_are="shm/one_shot, `},
		"of another collective": {`{"collective": "all_gather", "algorithm": "shm/two_shot"` + points, "WARN",
			"collective=all_gather algorithm=shm/two_shot"},
		"of a transport that is not loaded": {`{"collective": "all_reduce", "algorithm": "nccl/ring"` + points, "INFO",
			"for_it=1"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tuning.json")
			require.NoError(t, os.WriteFile(path, []byte(`{"shunt_tuning": 1, "entries": [`+test.entries+`]}`), 0o600))
			var logs [3]bytes.Buffer
			errs := worldErrors(t, 3, func(rank int, o *host.Options) {
				o.TuningFile, o.Logger = path, slog.New(slog.NewTextHandler(&logs[rank], nil))
			}, func(c *host.Communicator) error {
				part, err := c.Split(t.Context(), 0, 0)
				if err != nil {
					return err
				}
				return part.Close()
			})
			require.NoError(t, errors.Join(errs...))
			about := func(rank int, level string) (lines []string) {
				for line := range strings.Lines(logs[rank].String()) {
					if strings.Contains(line, `msg="tuning file`) && strings.Contains(line, "level="+level) {
						lines = append(lines, line)
					}
				}
				return lines
			}
			require.Contains(t, strings.Join(about(0, test.level), ""), test.want)
			warned := 0
			if test.level == "WARN" {
				warned = 1
			}
			require.Len(t, about(0, "WARN"), warned)
			require.Empty(t, append(about(1, ""), about(2, "")...))
		})
	}
}

// Rank 0's costs count for all ranks, of the world and of parts of it, whatever files the others have, or have not.
func TestRankZerosCostsCount(t *testing.T) {
	twoShot, generic := tuningFile(t, "shm/two_shot"), tuningFile(t, "shm/generic/put_one_shot")
	for name, test := range map[string]struct{ zero, one, want string }{
		"all have the same":      {twoShot, twoShot, "shm/two_shot"},
		"others differ":          {twoShot, generic, "shm/two_shot"},
		"only rank 0 has one":    {twoShot, "", "shm/two_shot"},
		"others' is not there":   {twoShot, "/does/not/exist", "shm/two_shot"},
		"only another has one":   {"", generic, "shm/one_shot"},
		"no files":               {"", "", "shm/one_shot"},
		"others' is malformed":   {generic, "/proc/self/status", "shm/generic/put_one_shot"},
		"others' is a directory": {generic, "/etc", "shm/generic/put_one_shot"},
	} {
		t.Run(name, func(t *testing.T) {
			var logs [3]bytes.Buffer
			errs := worldErrors(t, 3, func(rank int, o *host.Options) {
				o.TuningFile, o.Logger = test.one, slog.New(slog.NewTextHandler(&logs[rank], nil))
				if rank == 0 {
					o.TuningFile = test.zero
				}
			}, func(c *host.Communicator) error {
				part, err := c.Split(t.Context(), c.Rank()%2, 0) // {0, 2} and {1}
				if err != nil {
					return err
				}
				defer func() { _ = part.Close() }()
				for _, comm := range []*host.Communicator{c, part} {
					e, err := comm.Explain(plugin.AllReduce, plugin.Float32, plugin.OpSum, 8)
					if err != nil {
						return err
					}
					if comm.World() > 1 && e.Chosen != test.want {
						return fmt.Errorf("rank %d runs %s, want %s", c.Rank(), e.Chosen, test.want)
					}
				}
				x := []float32{1}
				return c.AllReduce(at(x), at(x), 1, plugin.Float32, plugin.OpSum, nil)
			})
			for rank, err := range errs {
				require.NoError(t, err, "rank %d", rank)
				differs := rank > 0 && test.one != test.zero
				require.Equal(t, differs, bytes.Contains(logs[rank].Bytes(), []byte("rank 0's")), "rank %d: %s", rank, &logs[rank])
			}
		})
	}
}

// What rank 0, or any rank, cannot use of the choice's options is every rank's error, at once.
func TestBadOptionsOfTheChoiceAreEveryRanks(t *testing.T) {
	for want, adjust := range map[string]func(rank int, o *host.Options){
		"rank 0: tuning file: open /does/not/exist": func(rank int, o *host.Options) {
			if rank == 0 {
				o.TuningFile = "/does/not/exist"
			}
		},
		"rank 2: SHUNT_ALGO, byte 0": func(rank int, o *host.Options) {
			if rank == 2 {
				o.Algo = "nonsense=shm"
			}
		},
	} {
		began := time.Now()
		for rank, err := range worldErrors(t, 3, adjust, func(*host.Communicator) error { return nil }) {
			require.ErrorContains(t, err, want, "rank %d", rank)
		}
		require.Less(t, time.Since(began), 10*time.Second)
	}
}
