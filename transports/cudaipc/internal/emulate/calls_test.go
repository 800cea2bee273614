package emulate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ranks that call something else, by its length, op, dtype, collective or root, are told so by every kernel whose ranks
// meet or hear all others; those of channels compare lengths. Nothing is stored on any rank.
func TestCallsThatDifferAreTold(t *testing.T) {
	t.Parallel()
	program, kernels := asking.compiled(t)
	kernels = slices.DeleteFunc(kernels, func(k string) bool { return !comparesCalls(k) })
	require.Greater(t, len(kernels), 25)
	for _, world := range []int{2, 3, 5} {
		for seed := range seeds(t, 8) {
			for _, kernel := range kernels {
				if world == 2 && strings.HasPrefix(kernel, "shunt_reduce_staged") {
					continue // two ranks need not meet there
				}
				t.Run(fmt.Sprintf("%s world %d seed %d", kernel, world, seed), func(t *testing.T) {
					t.Parallel()
					status, output := check(t.Context(), program, "--lengths", strconv.Itoa(world), strconv.Itoa(seed), "4", kernel)
					require.Zero(t, status, output)
				})
			}
		}
	}
}

// So is one rank whose kernel is another one: a peer has begun another call, and what is waited for does not come.
func TestRanksInOtherKernelsAreTold(t *testing.T) {
	t.Parallel()
	program, kernels := asking.compiled(t)
	kernels = slices.DeleteFunc(kernels, func(k string) bool {
		return !comparesCalls(k) && k != "shunt_barrier" && k != "shunt_symmetric_begin"
	})
	for _, world := range []int{2, 3, 5} {
		kernels := slices.Clone(kernels)
		if world == 2 {
			kernels = slices.DeleteFunc(kernels, func(k string) bool { return strings.HasPrefix(k, "shunt_reduce_staged") })
		}
		for seed := range seeds(t, 60) {
			t.Run(fmt.Sprintf("world %d seed %d", world, seed), func(t *testing.T) {
				t.Parallel()
				arguments := append([]string{"--others", strconv.Itoa(world), strconv.Itoa(seed), "2"}, kernels...)
				status, output := check(t.Context(), program, arguments...)
				require.Zero(t, status, output)
			})
		}
	}
}

func comparesCalls(kernel string) bool {
	k := strings.TrimPrefix(kernel, "shunt_")
	for _, other := range []string{"all_to_all_v", "broadcast_ll128", "reduce_ll128", "all_reduce_delivered",
		"reduce_scatter_staged"} { // whose ranks need not meet
		if strings.HasPrefix(k, other) {
			return false
		}
	}
	for _, collective := range []string{"all_reduce", "reduce", "broadcast", "all_gather", "all_to_all"} {
		if strings.HasPrefix(k, collective) {
			return true
		}
	}
	return false
}
