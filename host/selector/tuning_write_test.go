package selector

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// An algorithm whose measurement was given up while its curve was level would
// win far beyond; continued, it never does.
func TestGivenUpNeverWins(t *testing.T) {
	level := []Point{{8, 100}, {1 << 10, 100}}
	rising := []Point{{8, 2}, {1 << 10, 3}, {1 << 20, 300}, {1 << 24, 5000}}
	chosen := func(points []Point, bytes int64) string {
		tuning := &Tuning{Entries: []Entry{
			{Collective: "all_reduce", Algorithm: "shm/one_shot", Points: rising},
			{Collective: "all_reduce", Algorithm: "shm/two_shot", Points: points},
		}}
		candidates := []Candidate{candidate("shm/one_shot", 1, 1, 0, 0), candidate("shm/two_shot", 1, 1, 0, 0)}
		c, err := New(WithTuning(tuning)).Compile(request, candidates, nil)
		require.NoError(t, err)
		return name(c, bytes)
	}
	require.Equal(t, "shm/two_shot", chosen(level, 1<<30), "a curve goes on as it ended")
	continued := GivenUp(level, [][]Point{rising})
	require.Len(t, continued, 4)
	require.Equal(t, level, continued[:2], "what was measured stays")
	for _, bytes := range []int64{8, 1 << 10, 5000, 1 << 19, 1 << 20, 1 << 22, 1 << 24, 1 << 30, math.MaxInt64} {
		require.Equal(t, "shm/one_shot", chosen(continued, bytes), "%d bytes", bytes)
	}
}

// Whatever the others' curves are, nowhere from the end on is a given-up
// algorithm cheaper than any that was measured at both ends of a piece.
func TestGivenUpCurves(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 9))
	for range 2000 {
		var others [][]Point
		sizes := 2 + random.IntN(8)
		end := 1 + random.IntN(sizes-1) // sizes that were measured
		for range 1 + random.IntN(3) {
			var points []Point
			for i := range sizes {
				points = append(points, Point{8 << (2 * i), 0.1 + random.Float64()*100})
			}
			others = append(others, points)
		}
		var points []Point
		for i := range end {
			worst := 0.0
			for _, other := range others {
				worst = math.Max(worst, other[i].Microseconds)
			}
			points = append(points, Point{8 << (2 * i), 9 * worst})
		}
		list := GivenUp(points, others)
		require.Len(t, list, sizes)
		require.NoError(t, (&Entry{Collective: "all_reduce", Algorithm: "a/b", Points: list}).check())
		given := pointCurve(list)
		for range 50 {
			bytes := points[end-1].Bytes + random.Int64N(1<<(8+2*sizes))
			for _, other := range others {
				require.GreaterOrEqual(t, given.cost(bytes), pointCurve(other).cost(bytes), "%d bytes, given up %v, other %v",
					bytes, list, other)
			}
		}
	}
	require.Empty(t, GivenUp(nil, [][]Point{{{8, 1}}}))
	require.Equal(t, []Point{{8, 1}}, GivenUp([]Point{{8, 1}}, nil))
}

func TestTuningIsWrittenWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tuning.json")
	tuning := &Tuning{Comment: "here", Entries: []Entry{{Collective: "barrier", Algorithm: "shm/one_shot", World: 2,
		Hosts: 1, Memory: "host", Points: []Point{{0, 1.5}}}}}
	require.NoError(t, tuning.WriteFile(path))
	back, err := ReadTuning(path)
	require.NoError(t, err)
	require.Equal(t, tuning, back)
	// A link stays, and a device is written.
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, tuning.WriteFile(link))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(fifo)
		read <- err
	}()
	require.NoError(t, tuning.WriteFile(fifo))
	require.NoError(t, <-read)
	// What is refused leaves the old file, and nothing beside it.
	bad := &Tuning{Entries: []Entry{{Collective: "barrier", Algorithm: "shm/one_shot"}}}
	require.ErrorIs(t, bad.WriteFile(path), plugin.InvalidArgument)
	require.ErrorIs(t, tuning.WriteFile(filepath.Join(dir, "absent", "x")), plugin.System)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.ErrorIs(t, tuning.WriteFile(filepath.Join(dir, "folder")), plugin.System)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	back, err = ReadTuning(path)
	require.NoError(t, err)
	require.Equal(t, tuning, back)
}
