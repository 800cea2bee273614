package affinity

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/seccomptest"
)

func TestMasks(t *testing.T) {
	for _, cpus := range [][]int{nil, {0}, {63, 64}, {1, 1023, 1024, 8191, most - 1}} {
		m := maskOf(cpus)
		require.Equal(t, cpus, m.cpus())
	}
}

func TestGetAndSet(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := Get()
	require.NoError(t, err)
	require.NotEmpty(t, before)
	for _, cpu := range before {
		require.NoError(t, Set([]int{cpu}))
		now, err := Get()
		require.NoError(t, err)
		require.Equal(t, []int{cpu}, now)
	}
	require.ErrorIs(t, Set(nil), unix.EINVAL)
	require.ErrorIs(t, Set([]int{most - 1}), unix.EINVAL)
	require.NoError(t, Set(before))
	now, err := Get()
	require.NoError(t, err)
	require.Equal(t, before, now)
}

// Where more than 1,024 CPUs are possible, Linux refuses masks of 1,024 and less.
func TestMoreCPUsThan1024(t *testing.T) {
	if os.Getenv("FEW_CPUS") == "" {
		c := exec.Command("/proc/self/exe", "-test.run=^(TestGetAndSet|TestMoreCPUsThan1024)$")
		c.Env = append(os.Environ(), "FEW_CPUS=refused")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.NoError(t, seccomptest.DenyLess(unix.SYS_SCHED_GETAFFINITY, 1, 129, unix.EINVAL))
	var set unix.CPUSet
	require.ErrorIs(t, unix.SchedGetaffinity(0, &set), unix.EINVAL)
	TestGetAndSet(t)
}

// Nothing else in this repository reads or sets the CPUs of a thread.
func TestNoMaskOf1024CPUs(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	calls := regexp.MustCompile(`\bunix\.(CPUSet|Sched[GS]etaffinity)\b|\b(sched|pthread)_[gs]etaffinity(_np)?\(|\bcpu_set_t\b`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || name == "build" || name == "internal/affinity") {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".c", ".h", ".cpp", ".cu":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			require.NotRegexp(t, calls, string(text), name)
		}
		return nil
	}))
}
