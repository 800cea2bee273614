package launch

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCoresComeBeforeTheirOtherThreads(t *testing.T) {
	neighbours := func(cpu int) string { return strconv.Itoa(cpu / 2) }
	require.Equal(t, []int{0, 2, 4, 1, 3, 5}, inOrder([]int{0, 1, 2, 3, 4, 5}, neighbours))
	halves := func(cpu int) string { return strconv.Itoa(cpu % 3) }
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, inOrder([]int{0, 1, 2, 3, 4, 5}, halves))
	require.Equal(t, []int{5, 7, 8, 6}, inOrder([]int{5, 6, 7, 8}, func(cpu int) string {
		return map[int]string{5: "a", 6: "a", 7: "b", 8: "c"}[cpu]
	}))
	require.Empty(t, inOrder(nil, halves))
}

func TestRanksAreBoundToCPUsOfTheirOwn(t *testing.T) {
	cpus, cores := CPUs()
	require.GreaterOrEqual(t, cores, 1)
	require.GreaterOrEqual(t, cpus, cores)
	j := Job{Bind: true, World: cpus}
	seen := map[int]bool{}
	for rank := range cpus {
		seen[j.cpuOf(rank)] = true
	}
	require.Len(t, seen, cpus)
	require.NotContains(t, seen, -1)
	require.Equal(t, -1, Job{Bind: true, World: cpus + 1}.cpuOf(0), "too few CPUs")
	require.Equal(t, -1, Job{World: 1}.cpuOf(0), "not asked for")
	// A core that the kernel does not describe is a core.
	_, err := os.Stat("/sys/devices/system/cpu/cpu99999")
	require.Error(t, err)
	require.Equal(t, "99999", coreOf(99999))
}
