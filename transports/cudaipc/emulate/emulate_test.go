package emulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Sizes of elements, and both ways in which they are combined, are covered by a
// few dtypes.
var types = map[string][]string{
	"":               {"float32", "float16", "int64"},
	"all_reduce":     {"float32", "float16", "int64", "uint8"},
	"reduce":         {"float32", "bfloat16", "float64", "int32"},
	"reduce_scatter": {"float32", "float16", "float8_e4m3"},
}

// waitKernels are launched behind the ones that signal.
var waitKernels = []string{"shunt_wait", "shunt_window_wait"}

// besideKernels are launched beside the ones that combine what is delivered.
var besideKernels = []string{"shunt_symmetric_turn"}

// compile builds the emulator, or skips the test where there is no g++.
func compile(t *testing.T, b Build) (program string, kernels []string) {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++")
	}
	b.Machine = "machine"
	if b.Kernels == "" {
		b.Kernels = "../kernels"
	}
	if other := os.Getenv("SHUNT_EMULATE_KERNELS"); other != "" {
		b.Kernels = other
	}
	if _, other := b.Constants["SHUNT_MAX_BLOCKS"]; !other { // none that the machine knows of
		harness.once.Do(func() { harness.objects, harness.err = b.Harness(context.Background(), folder) })
		require.NoError(t, harness.err)
		b.Objects = harness.objects
	}
	program, kernels, err := b.Compile(t.Context(), t.TempDir())
	require.NoError(t, err)
	return program, slices.DeleteFunc(kernels, func(k string) bool { return slices.Contains(waitKernels, k) || slices.Contains(besideKernels, k) })
}

// folder is for what tests have in common; it outlives each of them.
var folder string

var harness struct {
	once    sync.Once
	objects []string
	err     error
}

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "emulate"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// check runs a program of calls; the exit status, and what it said.
func check(ctx context.Context, program string, arguments ...string) (status int, output string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	data, err := exec.CommandContext(ctx, program, arguments...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), string(data)
	}
	if err != nil {
		return -1, err.Error()
	}
	return 0, string(data)
}

// seeds is how many programs of each world run.
func seeds(t *testing.T, n int) int {
	if s := os.Getenv("SHUNT_EMULATE_SEEDS"); s != "" {
		v, err := strconv.Atoi(s)
		require.NoError(t, err)
		return v
	}
	if testing.Short() {
		return n / 4
	}
	return n
}

func TestKernels(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: types})
	testWorlds(t, program, kernels, []int{2, 3, 4}, seeds(t, 16))
}

// As many ranks as a host may have need more blocks.
func TestManyRanks(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}, Constants: map[string]int{"SHUNT_MAX_BLOCKS": 9}})
	testWorlds(t, program, kernels, []int{5, 8}, seeds(t, 4))
}

func testWorlds(t *testing.T, program string, kernels []string, worlds []int, seeds int) {
	for _, world := range worlds {
		for seed := range seeds {
			t.Run(fmt.Sprintf("world %d seed %d", world, seed), func(t *testing.T) {
				t.Parallel()
				status, output := check(t.Context(), program, append([]string{strconv.Itoa(world), strconv.Itoa(seed), "12"}, kernels...)...)
				require.Zero(t, status, output)
			})
		}
	}
}

// What nobody does is named: the word that a rank waits for, and who waits. And a
// raised abort word ends every wait of every kernel.
func TestAbsentRank(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}})
	for _, kernel := range kernels {
		if kernel == "shunt_copy" { // needs nobody
			continue
		}
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			status, output := check(t.Context(), program, "--absent", "3", "5", "2", kernel)
			require.Equal(t, 3, status, output)
			require.Regexp(t, `(?m)^rank [01] block \d+ thread \d+ of shunt_\w+ waits for rank [01]'s (?:[A-Z0-9]+|buffers) \+ \d+$`, output)
			status, output = check(t.Context(), program, "--abort", "3", "5", "2", kernel)
			require.Zero(t, status, output)
		})
	}
}

// Lines that arrive in pieces, as over PCIe: kernels that are told are right, and those
// that are not are caught, of all that use LL128 or may fall back to it.
func TestTornLines(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}})
	whole := map[string]bool{ // that use no lines
		"shunt_barrier": true, "shunt_symmetric_begin": true, "shunt_copy": true, "shunt_signal": true, "shunt_window_signal": true,
		"shunt_all_reduce_delivered_float32": true, "shunt_all_reduce_delivered_any_float32": true, "shunt_reduce_scatter_staged_float32": true,
	}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 16) {
				status, output := check(t.Context(), program, "--torn", "--fenced", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "3", kernel)
				require.Zero(t, status, "seed %d: %s", seed, output)
			}
			if whole[kernel] || strings.Contains(kernel, "_ll_") || strings.HasSuffix(kernel, "_ll") {
				return
			}
			for seed := range 240 {
				if status, _ := check(t.Context(), program, "--torn", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "6", kernel); status != 0 {
					return
				}
			}
			require.Fail(t, "lines in pieces do it no harm")
		})
	}
}

// Rule 16: a kernel is right where every GPU has place for one block of it, and the next
// one begins when that has ended.
func TestRule16OneResidentBlockIsEnough(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}})
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 16) {
				status, output := check(t.Context(), program, "--one-block", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "4", kernel)
				require.Zero(t, status, "seed %d: %s", seed, output)
			}
		})
	}
}

func TestRule16AmongManyRanks(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}, Constants: map[string]int{"SHUNT_MAX_BLOCKS": 9}})
	for _, world := range []int{5, 8} {
		for seed := range seeds(t, 4) {
			t.Run(fmt.Sprintf("world %d seed %d", world, seed), func(t *testing.T) {
				t.Parallel()
				status, output := check(t.Context(), program, append([]string{"--one-block", strconv.Itoa(world), strconv.Itoa(seed), strconv.Itoa(len(kernels))}, kernels...)...)
				require.Zero(t, status, output)
			})
		}
	}
}

// Rule 17: ranks that make a call without the others give up, and then publish nothing
// and touch no memory of a peer, in this call and in those behind it; whoever comes later
// gets what is right, or gives up as well.
func TestRule17WhoHasGivenUpPublishesNothing(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}})
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			given := 0
			for seed := range seeds(t, 12) {
				status, output := check(t.Context(), program, "--alone", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "3", kernel)
				require.Zero(t, status, "seed %d: %s", seed, output)
				if !strings.Contains(output, " 0 gave up") {
					given++
				}
			}
			if kernel != "shunt_copy" { // needs nobody
				require.NotZero(t, given, "nobody has given up")
			}
		})
	}
}

// Kernels from which something is taken that rules 16 and 17 need, and what the emulator
// then has to say, for one seed of some at least.
func TestMutantsOfPlacesAndFaultsAreFound(t *testing.T) {
	const alone, oneBlock, torn = "--alone", "--one-block", "--torn --fenced"
	for _, m := range []struct {
		name, file, from, to, source, kernel, mode string
	}{
		{"the ends of a pair are served by different blocks", "all_to_all_v.cu", "(at / blocks - a.rank + a.world) % a.world", "(a.rank + at / blocks) % a.world", "all_to_all_v", "shunt_all_to_all_v", oneBlock},
		{"fenced lines have no fence", "ll128.cuh", "      fence_system();  // release: the warp's words", "      // release: the warp's words", "all_gather", "shunt_all_gather_ll128", torn},
		{"fenced lines are not loaded anew", "ll128.cuh", "      reload_fenced(l, [&] {", "      if (false) reload_fenced(l, [&] {", "all_gather", "shunt_all_gather_ll128", torn},
		{"fenced lines of channels are not loaded anew", "channel.cuh", "    reload_fenced(l, [&] {", "    if (false) reload_fenced(l, [&] {", "broadcast", "shunt_broadcast_ll128", torn},
		{"packets follow a fault", "exchange.cuh", "const u32 fault = round == 0 ? fault_of(a) : 0;\n    u64 outgoing", "const u32 fault = 0;\n    u64 outgoing", "all_gather", "shunt_all_gather_ll", alone},
		{"packets follow a wait that was given up", "exchange.cuh", "if (!ll_wait_all(a, e, words)) break;", "(void)ll_wait_all(a, e, words);", "all_gather", "shunt_all_gather_ll", alone},
		{"units follow a fault", "exchange.cuh", "const u32 fault = round == 0 ? fault_of(a) : 0;  // of an earlier kernel", "const u32 fault = 0;", "all_gather", "shunt_all_gather_ll128", alone},
		{"units follow a wait that was given up", "exchange.cuh", "if (!met) break;\n#pragma unroll\n    for (int s = 0; s < SHUNT_MAX_RANKS; s++) lines", "#pragma unroll\n    for (int s = 0; s < SHUNT_MAX_RANKS; s++) lines", "all_gather", "shunt_all_gather_ll128", alone},
		{"results follow a fault", "two_shot.cuh", "const u32 fault = round == 0 ? fault_of(a) : 0;", "const u32 fault = 0;", "all_reduce", "shunt_all_reduce_two_shot_ll128", alone},
		{"results of what never came", "two_shot.cuh", "if (!ll128_wait_all(a, l, in + ring(unit), unit, lines)) return false;", "(void)ll128_wait_all(a, l, in + ring(unit), unit, lines);", "all_reduce", "shunt_all_reduce_two_shot_ll128", alone},
		{"credit follows a fault", "all_to_all_v.cu", "  if (__any_sync(~0u, fault != SHUNT_FAULT_NONE)) return;\n", "", "all_to_all_v", "shunt_all_to_all_v", alone},
		{"credit follows a wait that was given up", "all_to_all_v.cu", "contradicted(a, peer, in.bytes); }))) return;", "contradicted(a, peer, in.bytes); }))) break;", "all_to_all_v", "shunt_all_to_all_v", alone},
		{"offers follow a fault", "all_to_all_v.cu", "if (__syncthreads_or(fault != SHUNT_FAULT_NONE)) return false;", "__syncthreads();", "all_to_all_v", "shunt_all_to_all_v_long", alone},
		{"an offer that never came", "all_to_all_v.cu", "met = offered || later;", "met = true;", "all_to_all_v", "shunt_all_to_all_v_long", alone},
		{"a root sends behind a fault", "broadcast.cu", "const u32 fault = k == 0 ? fault_of(a) : 0;", "const u32 fault = 0;", "broadcast", "shunt_broadcast_ll128", alone},
		{"an owner forwards what never came", "channel.cuh", "give_up.over(peer_, received_ + 1, in_vain))) return false;", "give_up.over(peer_, received_ + 1, in_vain))) return true;", "broadcast", "shunt_broadcast_ll128", alone},
		{"an owner combines what never came", "fallback.cuh", "lines))\n      return;", "lines))\n      ;", "reduce", "shunt_reduce_ll128", alone},
		{"addresses of an earlier call", "direct.cuh", "        m.lost = 1;  // the words are those of an earlier call", "        m.send[p] = m.send[a.rank];", "all_reduce", "shunt_all_reduce_direct", alone},
		{"a direct call follows a fault", "direct.cuh", "if (fault != SHUNT_FAULT_NONE) m.lost = 1;", "", "all_gather", "shunt_all_gather_direct", alone},
		{"the end is told of what was given up", "direct.cuh", "met = !__syncthreads_or(!met);", "__syncthreads();\n  met = true;", "all_to_all", "shunt_all_to_all_direct", alone},
		{"a fallback's faults are forgotten", "direct.cuh", "met = reduce_scatter_ll128_body<T>(a);", "(void)reduce_scatter_ll128_body<T>(a);", "reduce_scatter", "shunt_reduce_scatter_direct", alone},
		{"a chunk that never came is forwarded", "broadcast.cu", "if (__syncthreads_or(!met)) break;", "__syncthreads();\n      met = true;", "broadcast", "shunt_broadcast_direct", alone},
		{"a chain forwards what never came", "broadcast.cu", "        if (!met) break;\n", "        met = true;\n", "broadcast", "shunt_broadcast_chain", alone},
		{"a chain tells of what was given up", "chain.cuh", "if (__any_sync(~0u, done == kLost)) return;", "if (__any_sync(~0u, done == kLost)) done = limit;", "broadcast", "shunt_broadcast_chain", alone},
		{"a stage is taken without leave", "staged.cuh", "const bool met = wait_words(a, SHUNT_OFF_TAKEN, owner, n + 1 - SHUNT_STAGES, seen, fault);", "const bool met = wait_words(a, SHUNT_OFF_TAKEN, owner, n + 1 - SHUNT_STAGES, seen, fault) || true;", "reduce_scatter", "shunt_reduce_scatter_staged", alone},
		{"stages that were given up are told", "staged.cuh", "if (__any_sync(~0u, staged == kLost)) break;", "if (staged == kLost) staged = last;", "reduce_scatter", "shunt_reduce_scatter_staged", alone},
		{"a chunk that never came is combined", "staged.cuh", "if (!wait_words(a, SHUNT_OFF_STAGED, source, n + 1, seen, fault)) return false;", "(void)wait_words(a, SHUNT_OFF_STAGED, source, n + 1, seen, fault);", "reduce_scatter", "shunt_reduce_scatter_staged", alone},
		{"chunks that were given up are told as taken", "staged.cuh", "if (__syncthreads_or(!met)) return false;", "__syncthreads();", "reduce", "shunt_reduce_staged", alone},
		{"blocks without chunks forget a fault", "staged.cuh", "bool met = share.chunks > 0 || fault_of(a) == SHUNT_FAULT_NONE;  // who has chunks looks behind the first loads\n  if (warp", "bool met = true;\n  if (warp", "reduce_scatter", "shunt_reduce_scatter_staged", alone},
		{"what engines never delivered is combined", "delivered.cuh", "if (__syncthreads_or(!met)) return;", "__syncthreads();", "all_reduce symmetric barrier one_sided", "shunt_all_reduce_delivered", alone},
		{"deliveries are told behind a fault", "symmetric.cu", "if (a.root < kDeliveries && peer && met) {", "if (a.root < kDeliveries && peer) {", "all_reduce symmetric barrier one_sided", "shunt_all_reduce_delivered", alone},
		{"a symmetric operation begins behind a fault", "symmetric.cu", "if (active && met) {", "if (active) {", "symmetric", "shunt_symmetric_begin", alone},
		{"a barrier behind a fault", "barrier.cu", "if (threadIdx.x == 0 && !lost) {", "if (threadIdx.x == 0) {", "barrier", "shunt_barrier", alone},
		{"a signal behind a fault", "one_sided.cu", "  const u64 value = *raised + 1;\n  if (fault != SHUNT_FAULT_NONE) return;\n  *raised = value;\n  // Release: puts of earlier", "  const u64 value = *raised + 1;\n  *raised = value;\n  // Release: puts of earlier", "one_sided", "shunt_signal", alone},
		{"a window's signal behind a fault", "one_sided.cu", "  const u64 value = *raised + 1;\n  if (fault != SHUNT_FAULT_NONE) return;\n  *raised = value;\n  // Release: puts before", "  const u64 value = *raised + 1;\n  *raised = value;\n  // Release: puts before", "one_sided", "shunt_window_signal", alone},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			program, kernels := mutant(t, Build{Types: map[string][]string{"": {"float32"}}, Only: strings.Fields(m.source)}, m.file, m.from, m.to)
			kernels = slices.DeleteFunc(kernels, func(k string) bool { return strings.TrimSuffix(k, "_float32") != m.kernel })
			require.Len(t, kernels, 1)
			for seed := range 240 {
				arguments := append(strings.Fields(m.mode), strconv.Itoa(2+seed%3), strconv.Itoa(seed), "4", kernels[0])
				if status, output := check(t.Context(), program, arguments...); status != 0 {
					t.Logf("found by seed %d: %.300s", seed, output)
					return
				}
			}
			require.Fail(t, "not found by any seed")
		})
	}
}

// channels are the sources of the kernels that use channels, and looks makes waits look
// always at why they may be given up.
var (
	channels = []string{"all_to_all_v", "broadcast", "reduce"}
	looks    = map[string]int{"kLook": 1}
)

func usesChannels(kernel string) bool {
	return strings.HasPrefix(kernel, "shunt_all_to_all_v") || strings.Contains(kernel, "shunt_broadcast_ll128") || strings.Contains(kernel, "shunt_reduce_ll128")
}

// The ends of a message that differ are told of, with both lengths, whichever ways the
// two ends have for messages so long; nothing of it arrives. And nothing is told where
// they are alike, whenever anybody looks.
func TestLengths(t *testing.T) {
	t.Parallel()
	testLengths(t, looks, []int{2, 3, 4}, seeds(t, 24))
}

func TestLengthsAmongManyRanks(t *testing.T) {
	t.Parallel()
	testLengths(t, map[string]int{"kLook": 1, "SHUNT_MAX_BLOCKS": 9}, []int{5, 8}, seeds(t, 4))
}

func testLengths(t *testing.T, constants map[string]int, worlds []int, seeds int) {
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}, Only: channels, Constants: constants})
	kernels = slices.DeleteFunc(kernels, func(k string) bool { return !usesChannels(k) })
	require.Len(t, kernels, 5)
	for _, world := range worlds {
		for seed := range seeds {
			for _, kernel := range kernels {
				t.Run(fmt.Sprintf("%s world %d seed %d", kernel, world, seed), func(t *testing.T) {
					t.Parallel()
					status, output := check(t.Context(), program, "--lengths", strconv.Itoa(world), strconv.Itoa(seed), "4", kernel)
					require.Zero(t, status, output)
				})
			}
			t.Run(fmt.Sprintf("alike world %d seed %d", world, seed), func(t *testing.T) {
				t.Parallel()
				status, output := check(t.Context(), program, append([]string{strconv.Itoa(world), strconv.Itoa(seed), "12"}, kernels...)...)
				require.Zero(t, status, output)
			})
		}
	}
}

// Kernels that use peers' addresses are told that a rank has called with another length
// before they do: nothing is stored on any rank.
func TestCallsThatDifferUseNoAddress(t *testing.T) {
	t.Parallel()
	program, kernels := compile(t, Build{Types: map[string][]string{"": {"float32"}}})
	kernels = slices.DeleteFunc(kernels, func(k string) bool { return !usesAddresses(k) })
	require.NotEmpty(t, kernels)
	for _, world := range []int{2, 3, 4} {
		for seed := range seeds(t, 8) {
			for _, kernel := range kernels {
				if world == 2 && strings.HasPrefix(kernel, "shunt_reduce_staged") {
					continue // two ranks need no addresses there
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

func usesAddresses(kernel string) bool {
	return !strings.HasPrefix(kernel, "shunt_reduce_scatter_staged") && (strings.Contains(kernel, "_direct") || strings.Contains(kernel, "_staged") || strings.Contains(kernel, "_chain"))
}

// Counts on the device that cannot be are told of, the first of them, and the rank that
// has them stores nothing.
func TestImpossibleCounts(t *testing.T) {
	t.Parallel()
	program, _ := compile(t, Build{Only: []string{"all_to_all_v"}})
	for seed := range 3 * seeds(t, 24) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			status, output := check(t.Context(), program, "--impossible", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "3", onDevice)
			require.Zero(t, status, output)
		})
	}
}

// onDevice is the kernel that reads counts from device memory.
const onDevice = "shunt_all_to_all_v_on_device"

func TestImpossibleCountMutantsAreFound(t *testing.T) {
	for _, m := range []struct{ name, from, to string }{
		{"negative counts", "count >= 0 && ", ""},
		{"negative displacements", "displ >= 0 && ", ""},
		{"counts past the end", "count <= room && (count == 0", "(count == 0 || count > room"},
		{"displacements past the end", " && (count == 0 || displ <= room - count)", ""},
		{"a sum that wraps", "displ <= room - count", "displ + count <= room"},
		{"what a rank sends itself", "!possible || differ", "!possible"},
		{"receive counts", "= !used || (", "= !used || side == 1 || ("},
		{"receive memory is shorter than it is", ": v.recv_capacity;", ": v.recv_capacity / 2;"},
		{"the last peer is named", "__ffs(peers) - 1", "(peers >= 8 ? 3 : peers >= 4 ? 2 : peers >= 2 ? 1 : 0)"},
		{"displacements are not looked at", "== 0 ? packed : given;", "== 0 ? packed : packed;"},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			program, _ := mutant(t, Build{Only: []string{"all_to_all_v"}}, "all_to_all_v.cu", m.from, m.to)
			for seed := range 240 {
				if status, output := check(t.Context(), program, "--impossible", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "2", onDevice); status != 0 {
					t.Logf("found by seed %d: %.300s", seed, output)
					return
				}
			}
			require.Fail(t, "not found by any seed")
		})
	}
}

// What cannot be is told, but the call goes on.
func TestImpossibleCountsEndTheCall(t *testing.T) {
	t.Parallel()
	program, _ := compile(t, Build{Only: []string{"all_to_all_v"}, Edit: func(name, text string) string {
		if name != "all_to_all_v.cu" {
			return text
		}
		for _, edit := range [][2]string{
			{"if (wrong == 0)\n", "\n"},
			{"else if (lane == __ffs(wrong", "if (wrong != 0 && lane == __ffs(wrong"},
			{"wrong != 0 ? Reading::kImpossible : ", ""},
		} {
			require.Contains(t, text, edit[0])
			text = strings.Replace(text, edit[0], edit[1], 1)
		}
		return text
	}})
	for seed := range 240 {
		if status, output := check(t.Context(), program, "--impossible", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "2", onDevice); status != 0 {
			t.Logf("found by seed %d: %.300s", seed, output)
			return
		}
	}
	require.Fail(t, "not found by any seed")
}

// mutant builds the emulator of kernels in which something has changed.
func mutant(t *testing.T, b Build, file, from, to string) (program string, kernels []string) {
	t.Helper()
	applied := 0
	b.Edit = func(name, text string) string {
		if name == file {
			applied = strings.Count(text, from)
			text = strings.Replace(text, from, to, 1)
		}
		return text
	}
	program, kernels = compile(t, b)
	require.NotZero(t, applied, "%s no longer has %q", file, from)
	return program, kernels
}

// What lengths need, taken away: then a message goes wrong, or nobody tells, or somebody
// does without reason.
func TestLengthMutantsAreFound(t *testing.T) {
	for _, m := range []struct {
		name, file, from, to, source, kernel string
		alike                                bool           // found where lengths are alike
		looks                                map[string]int // in which builds
	}{
		{"flags have no length", "channel.cuh", "(unit & 0xFFFFFF) | u64(bytes) << 24", "unit", "all_to_all_v", "shunt_all_to_all_v", false, looks},
		{"units have the length of the other direction", "all_to_all_v.cu", "Outlet(a, peer, lane, out.bytes)", "Outlet(a, peer, lane, in.bytes)", "all_to_all_v", "shunt_all_to_all_v", true, looks},
		{"units are not compared", "channel.cuh", "const u64 begun = other(slot);", "const u64 begun = 0;", "broadcast", "shunt_broadcast_ll128", false, looks},
		{"owners do not compare", "fallback.cuh", " && contradicted_by_any(a)", " && false", "reduce", "shunt_reduce_ll128_float32", false, looks},
		{"senders that wait for an offer are not asked", "channel.cuh", ": other(own(a) + SHUNT_OFF_PENDING + peer * 8);", ": 0;", "all_to_all_v", "shunt_all_to_all_v_long", false, looks},
		{"senders that wait for an offer do not say what for", "all_to_all_v.cu", "if (says && !said) store_release(pending, outgoing);", "", "all_to_all_v", "shunt_all_to_all_v_long", false, looks},
		{"what a sender has said stays", "all_to_all_v.cu", "if (met && said) store_relaxed(pending, 0);", "", "all_to_all_v", "shunt_all_to_all_v_long", true, looks},
		{"any offer will do", "all_to_all_v.cu", " && (ll_word(offer) == 0 || ll_word(terms) == outgoing);", ";", "all_to_all_v", "shunt_all_to_all_v_long", false, looks},
		{"an offer is for a length, whatever came before", "all_to_all_v.cu", "ll_word(terms) == outgoing);", "bytes_of(ll_word(terms)) == bytes_of(outgoing));", "all_to_all_v", "shunt_all_to_all_v_long", false, nil},
		{"who waits for what lands does not compare", "all_to_all_v.cu", "if (other_length(a, p, bytes) == 0) return false;", "return false;", "all_to_all_v", "shunt_all_to_all_v_long", false, looks},
		{"an offer of nothing must be seen", "all_to_all_v.cu", "later = is_later(offer);", "later = false;", "all_to_all_v", "shunt_all_to_all_v_long", true, looks},
		{"calls are not compared", "direct.cuh", "if (met && word[3] != call) {", "if (false) {", "all_gather", "shunt_all_gather_direct", false, nil},
		{"calls differ in their length unseen", "direct.cuh", "| (u64(a.bytes) & ((1ull << 48) - 1))", "", "all_gather", "shunt_all_gather_direct", false, nil},
		{"who hears of another call goes on", "direct.cuh", "tell_other_call(a, p, e, call, word[3]);\n        m.lost = 1;", "tell_other_call(a, p, e, call, word[3]);", "broadcast", "shunt_broadcast_direct", false, nil},
		{"every lane compares", "all_to_all_v.cu", "return lane == 0 && in.bytes > 0", "return in.bytes > 0", "all_to_all_v", "shunt_all_to_all_v", true, looks},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			program, kernels := mutant(t, Build{Types: map[string][]string{"": {"float32"}}, Only: strings.Fields(m.source), Constants: m.looks}, m.file, m.from, m.to)
			require.Contains(t, kernels, m.kernel)
			for seed := range 240 {
				arguments := []string{strconv.Itoa(2 + seed%3), strconv.Itoa(seed), "6", m.kernel}
				if !m.alike {
					arguments = append([]string{"--lengths"}, arguments...)
				}
				if status, output := check(t.Context(), program, arguments...); status != 0 {
					t.Logf("found by seed %d: %.300s", seed, output)
					return
				}
			}
			require.Fail(t, "not found by any seed")
		})
	}
}

// Rule 1: in a reduce of two the rank that only stages waits for the root too, however
// little there is to stage.
func TestRule01ReduceOfTwoWaits(t *testing.T) {
	t.Parallel()
	program, _ := compile(t, Build{Types: map[string][]string{"": {"float32"}}, Only: []string{"reduce"}})
	for seed := range 16 {
		status, output := check(t.Context(), program, "--absent", "2", strconv.Itoa(seed), "1", "shunt_reduce_staged_float32")
		require.Equal(t, 3, status, "seed %d: %s", seed, output)
	}
}

// Kernels from which something is taken that the protocols need, and what the
// emulator then has to say of them, for one seed of some at least.
func TestMutantsAreFound(t *testing.T) {
	for _, m := range []struct {
		name, file, from, to, source, kernel string
	}{
		{"staged chunks are counted before they arrived", "staged.cuh", "      fence_system();\n      __syncwarp();\n", "      __syncwarp();\n", "all_reduce", "shunt_all_reduce_staged"},
		{"a stage is used again before its owner is done", "staged.cuh", "wait_words(a, SHUNT_OFF_TAKEN, owner, n + 1 - SHUNT_STAGES, seen, fault)", "true", "reduce", "shunt_reduce_staged"},
		{"a chunk is whole that ends behind the last shard", "staged.cuh", "at + SHUNT_STAGE_BYTES(a.world) <= deed.length(deed.owners - 1)", "at + SHUNT_STAGE_BYTES(a.world) <= deed.length(0)", "all_reduce", "shunt_all_reduce_staged"},
		{"a chunk is whole whatever the results' memory is", "staged.cuh", "straight && is_whole", "is_whole", "reduce_scatter", "shunt_reduce_scatter_staged"},
		{"chunks that a rank does not combine are not counted", "staged.cuh", "  if (threadIdx.x < 32) tell_peers(a, SHUNT_OFF_TAKEN, next);\n", "", "reduce", "shunt_reduce_staged"},
		{"a stage is combined before it is filled", "staged.cuh", "wait_words(a, SHUNT_OFF_STAGED, source, n + 1, seen, fault)", "true", "reduce_scatter", "shunt_reduce_scatter_staged"},
		{"forwarded chunks are counted before they arrived", "broadcast.cu", "fence_system();  // release: the block's stores come before the counts", "", "broadcast", "shunt_broadcast_direct"},
		{"forwarding does not wait", "broadcast.cu", "if (threadIdx.x == 0) met = wait_for(a, own(a) + SHUNT_OFF_FORWARD", "if (false) met = wait_for(a, own(a) + SHUNT_OFF_FORWARD", "broadcast", "shunt_broadcast_direct"},
		{"a chain tells of chunks before they arrived", "chain.cuh", "    fence_system();\n", "", "broadcast", "shunt_broadcast_chain"},
		{"a chain does not wait", "broadcast.cu", "wait_word(a, SHUNT_OFF_FORWARD, previous, base + k + 1, seen)", "true", "broadcast", "shunt_broadcast_chain"},
		{"a block of threads is not joined before its stores are counted", "broadcast.cu", "      __syncthreads();\n      if (threadIdx.x == 0) {\n        fence_system();", "      if (threadIdx.x == 0) {\n        fence_system();", "broadcast", "shunt_broadcast_direct"},
		{"a rank leaves before its peers have stored", "direct.cuh", "met = wait_for(a, own(a) + SHUNT_OFF_DONE", "if (false) met = wait_for(a, own(a) + SHUNT_OFF_DONE", "all_gather", "shunt_all_gather_direct"},
		{"the end is told before the stores arrived", "direct.cuh", "store_release(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_DONE", "store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_DONE", "all_to_all", "shunt_all_to_all_direct"},
		{"a lane is used beyond its credit", "channel.cuh", "if (sent_ + 1 - credit_ <= SHUNT_RING) return true;", "return true;", "broadcast", "shunt_broadcast_ll128"},
		{"credit is given for what is not read", "channel.cuh", "store_relaxed(credit_word_, received_);", "store_relaxed(credit_word_, received_ + 4);", "all_to_all_v", "shunt_all_to_all_v"},
		{"LL slots have no parity", "ll.cuh", "(int(epoch) & 1) * world", "0 * world", "all_gather", "shunt_all_gather_ll"},
		{"LL128 has a ring of two", "ll128.cuh", "(int(unit) & (SHUNT_RING - 1)) * 512", "(int(unit) & 1) * 512", "all_gather", "shunt_all_gather_ll128"},
		{"a root's units are not waited for", "two_shot.cuh", "if (!ll128_wait_all(a, l, in + ring(unit), unit, lines)) return false;", `const int other = (a.root + 1) % a.world != a.rank ? (a.root + 1) % a.world : (a.root + 2) % a.world;
			if (!ll128_wait_each(a, l, [&](int s) { return in + ring(unit) + (s == a.root ? other : s) * kLL128SourceStride; }, [&](int) { return unit; }, [] { return false; }, lines)) return false;
			if (apart) lines[a.root] = load_line(in + ring(unit) + a.root * kLL128SourceStride);`, "reduce", "shunt_reduce_two_shot_ll128"},
		{"a root that owns nothing sends before it hears", "two_shot.cuh", "idle ? 0 : max(", "idle ? max(deal.mine - 1, int64_t(0)) : max(", "reduce", "shunt_reduce_two_shot_ll128"},
		{"what engines deliver is combined before it is there", "delivered.cuh", "wait_delivered(a, number, p)", "true", "all_reduce symmetric barrier one_sided", "shunt_all_reduce_delivered"},
		{"engines copy results where a peer has not combined", "symmetric.cu", "if (peer) met = wait_for(a, combined + p * 8", "if (false) met = wait_for(a, combined + p * 8", "all_reduce symmetric barrier one_sided", "shunt_all_reduce_delivered"},
		{"engines copy results that are not there", "symmetric.cu", "if (p == 0) met = wait_for(a, combined + a.rank * 8", "if (false) met = wait_for(a, combined + a.rank * 8", "all_reduce symmetric barrier one_sided", "shunt_all_reduce_delivered_any"},
		{"a long message is counted before it arrived", "all_to_all_v.cu", "store_release(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_LANDED", "store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_LANDED", "all_to_all_v", "shunt_all_to_all_v_long"},
		{"counts on the device are taken for bytes", "all_to_all_v.cu", "array % 2 == 0 ? count * v.element :", "array % 2 == 0 ? count :", "all_to_all_v", "shunt_all_to_all_v_on_device"},
		{"counts on the device are used before they are read", "all_to_all_v.cu", "  }\n  __syncthreads();\n}\n\n// The outcome", "  }\n}\n\n// The outcome", "all_to_all_v", "shunt_all_to_all_v_on_device"},
		{"messages on the device are all short", "all_to_all_v.cu", "count * v.element >= offered_from(a)", "false", "all_to_all_v", "shunt_all_to_all_v_on_device"},
		{"displacements on the device are not looked at", "all_to_all_v.cu", "== 0 ? packed : given;", "== 0 ? packed : packed;", "all_to_all_v", "shunt_all_to_all_v_on_device"},
		{"what was sent ahead is sent again", "all_to_all_v.cu", "sent[i] = ahead.units[i]", "sent[i] = 0", "all_to_all_v", "shunt_all_to_all_v_long"},
		{"turns leave out the last rows", "all_to_all_v.cu", " + u32(shared) - 1) / u32(shared)", ") / u32(shared)", "all_to_all_v", "shunt_all_to_all_v_long"},
		{"what is left behind whole vectors is dropped", "direct.cuh", "if (end >= length || block_index() != 0 || threadIdx.x != 0) return;", "return;", "all_reduce", "shunt_all_reduce_direct"},
		{"a round takes vectors that are not there", "direct.cuh", "auto there = [&](int u) { return at + u * step < bytes; };", "auto there = [&](int) { return true; };", "all_reduce", "shunt_all_reduce_direct"},
		{"whole vectors between rounds are left out", "direct.cuh", "at < bytes; at += kVectors * step)", "at < bytes; at += (kVectors + 1) * step)", "reduce_scatter", "shunt_reduce_scatter_direct"},
		{"whole vectors of memory that is not aligned", "direct.cuh", " && ((m.send[0] | m.send[1] | at | to) & 15) == 0;", ";", "reduce_scatter", "shunt_reduce_scatter_direct"},
		{"blocks that only hold a place work too", "element.cuh", "if (shunt::spare_block()) return;", "", "reduce_scatter", "shunt_reduce_scatter_ll128"},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			program, kernels := mutant(t, Build{Types: map[string][]string{"": {"float32"}}, Only: strings.Fields(m.source)}, m.file, m.from, m.to)
			kernels = slices.DeleteFunc(kernels, func(k string) bool { return strings.TrimSuffix(k, "_float32") != m.kernel })
			require.Len(t, kernels, 1)
			for seed := range 240 {
				if status, _ := check(t.Context(), program, strconv.Itoa(2+seed%3), strconv.Itoa(seed), "6", kernels[0]); status != 0 {
					t.Logf("found by seed %d", seed)
					return
				}
			}
			require.Fail(t, "not found by any seed")
		})
	}
}

// A line of device.cuh of each kind.
func TestTranslate(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{`asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");`, `::emulate::ptx::ld_relaxed_sys_global_u64(v, p);`},
		{`asm volatile("fence.acq_rel.sys;" ::: "memory");`, `::emulate::ptx::fence_acq_rel_sys();`},
		{`asm volatile("st" SHUNT_LINE_STORE ".global.v2.u64 [%0], {%1,%2};" ::"l"(p), "l"(v.x), "l"(f(v.y)) : "memory");`, `::emulate::ptx::st_volatile_global_v2_u64(p, v.x, f(v.y));`},
		{`asm volatile("{ .reg .b32 before; atom.release.cta.shared.exch.b32 before, [%0], %1; }" ::"r"(p), "r"(v) : "memory");`, `::emulate::ptx::atom_release_cta_shared_exch_b32(p, v);`},
		{`asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;" : "=r"(b) : "r"(p) : "memory");`, `::emulate::ptx::atom_acq_rel_cta_shared_add_u32(b, p, 1);`},
		{`asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));`, `::emulate::ptx::mov_u64_globaltimer(t);`},
		{"#define N 64  /* many */\nconstexpr int kN = 8;  // few\n", "#define N 3  /* many */\nconstexpr int kN = 2;  // few\n"},
	} {
		got, err := Translate(c.from, map[string]int{"N": 3, "kN": 2})
		require.NoError(t, err)
		require.Equal(t, c.to, got)
	}
	for _, wrong := range []string{`asm volatile("a; b;" ::)`, `asm volatile("a" OTHER "b" ::)`, `asm volatile("a"`} {
		_, err := Translate(wrong, nil)
		require.Error(t, err, wrong)
	}
}
