package emulate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/transports/cudaipc/internal/parts"
)

// waitKernels are launched behind the ones that signal.
var waitKernels = []string{"shunt_wait", "shunt_window_wait"}

// gateKernels are launched before the ones that ranks wait for with one block.
var gateKernels = []string{"shunt_gate_direct", "shunt_gate_staged", "shunt_gate_ll128"}

// besideKernels are launched beside the ones that combine what is delivered.
var besideKernels = []string{"shunt_symmetric_turn"}

// compile builds the emulator, or skips the test where there is no g++.
func compile(t *testing.T, b Build) (program string, kernels []string) {
	t.Helper()
	if err := tool(t.Context(), "g++", "--version").Run(); err != nil {
		t.Skip("no g++:", err)
	}
	b.Machine, b.Kernels = "machine", sources()
	var err error
	b.Harness, err = harness(b)
	require.NoError(t, err)
	out, err := os.MkdirTemp(folder, "") //nolint:usetesting // outlives the test that compiles it
	require.NoError(t, err)
	program, kernels, err = b.Compile(context.Background(), out)
	require.NoError(t, err)
	return program, slices.DeleteFunc(kernels, func(k string) bool {
		return slices.Contains(waitKernels, k) || slices.Contains(gateKernels, k) || slices.Contains(besideKernels, k)
	})
}

func sources() string {
	if other := os.Getenv("SHUNT_EMULATE_KERNELS"); other != "" {
		return other
	}
	return "../../kernels"
}

// harness is compiled once for each number of blocks, the only constant of which there
// are several that the machine knows of.
func harness(b Build) (*Harness, error) {
	harnesses.Lock()
	defer harnesses.Unlock()
	blocks := b.Constants["SHUNT_MAX_BLOCKS"]
	if h := harnesses.of[blocks]; h != nil {
		return h, nil
	}
	out, err := os.MkdirTemp(folder, "") //nolint:usetesting // outlives the test that compiles it
	if err != nil {
		return nil, err
	}
	h, err := b.CompileHarness(context.Background(), out)
	harnesses.of[blocks] = h
	return h, err
}

var harnesses = struct {
	sync.Mutex
	of map[int]*Harness
}{of: map[int]*Harness{}}

// A variant of the kernels as they are is compiled once for all tests.
type variant struct {
	Build
	once    sync.Once
	program string
	kernels []string
}

var (
	// The kernels of all tests but those below. Sizes of elements, and both ways in which
	// they are combined, are covered by a few dtypes.
	standard = &variant{Build: Build{Types: map[string][]string{
		"":               {"float32", "float16", "int64"},
		"all_reduce":     {"float32", "float16", "int64", "uint8"},
		"reduce":         {"float32", "bfloat16", "float64", "int32"},
		"reduce_scatter": {"float32", "float16", "float8_e4m3"},
	}}}
	// As many ranks as a host may have need more blocks.
	manyRanks = &variant{Build: Build{Types: float32Only, Constants: map[string]int{"SHUNT_MAX_BLOCKS": 9}}}
	// Waits look often at what peers do, and soon believe it.
	asking = &variant{Build: Build{Types: float32Only,
		Constants: map[string]int{"SHUNT_MAX_BLOCKS": 9, "kLook": 16, "kPatience": 2}}}
	// The kernels that use channels. Waits look always at why they may be given up, and blocks are few, which do not join
	// at their end.
	looking = &variant{Build: Build{Types: float32Only, Only: usesChannels,
		Constants: map[string]int{"kLook": 1, "kFewBlocks": 16}}}
	lookingManyRanks = &variant{Build: Build{Types: float32Only, Only: usesChannels,
		Constants: map[string]int{"kLook": 1, "kFewBlocks": 16, "SHUNT_MAX_BLOCKS": 9}}}

	// Epochs of LL come round after eight calls.
	comingRound = &variant{Build: Build{Types: float32Only, Only: inPackets,
		Constants: map[string]int{"kEpochBits": 3}}}

	float32Only  = map[string][]string{"": {"float32"}}
	usesChannels = []string{"shunt_all_to_all_v", inTurns, "shunt_all_to_all_v_long", onDevice,
		"shunt_broadcast_ll128", "shunt_reduce_ll128"}
	inPackets = []string{"shunt_all_gather_ll"}
)

// compiled returns the program and all of its kernels.
func (v *variant) compiled(t *testing.T) (program string, kernels []string) {
	t.Helper()
	v.once.Do(func() { v.program, v.kernels = compile(t, v.Build) })
	if v.program == "" {
		t.Skip("not compiled; see another test")
	}
	return v.program, slices.Clone(v.kernels)
}

// ofFloats returns the program and the kernels that have no dtype or float32.
func (v *variant) ofFloats(t *testing.T) (program string, kernels []string) {
	t.Helper()
	program, kernels = v.compiled(t)
	return program, slices.DeleteFunc(kernels, func(k string) bool {
		return slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(v.Types))...),
			func(dtype string) bool { return dtype != "float32" && strings.HasSuffix(k, "_"+dtype) })
	})
}

// folder is for what tests have in common; it outlives each of them.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "emulate"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(folder)
	if log := flag.Lookup("test.testlogfile").Value.String(); log != "" && status == 0 {
		if asked, err := os.ReadFile(log); err != nil || strings.Contains(string(asked), "getenv PATH\n") {
			fmt.Fprintln(os.Stderr, "a test has read PATH, so Go would keep the results for this shell alone; see tool", err)
			status = 1
		}
	}
	os.Exit(status)
}

// check runs a program of calls; the exit status, and what it said.
func check(ctx context.Context, program string, arguments ...string) (status int, output string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute) // beside tests that go before it
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

// seeds returns the number of programs that run for each world.
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
	program, kernels := standard.compiled(t)
	testPrograms(t, program, kernels, []int{2, 3, 4}, seeds(t, 16), 12)
}

// As many ranks as a host may have need more blocks.
func TestManyRanks(t *testing.T) {
	t.Parallel()
	program, kernels := manyRanks.compiled(t)
	testPrograms(t, program, kernels, []int{5, 8}, seeds(t, 4), 12)
}

func testPrograms(t *testing.T, program string, kernels []string, worlds []int, seeds, calls int) {
	for _, world := range worlds {
		for seed := range seeds {
			t.Run(fmt.Sprintf("world %d seed %d", world, seed), func(t *testing.T) {
				t.Parallel()
				status, output := check(t.Context(), program, append([]string{strconv.Itoa(world), strconv.Itoa(seed),
					strconv.Itoa(calls)}, kernels...)...)
				require.Zero(t, status, output)
			})
		}
	}
}

// Packets that were left where they are while epochs came round are not taken for new ones.
func TestEpochsThatComeRound(t *testing.T) {
	t.Parallel()
	program, kernels := comingRound.compiled(t)
	testPrograms(t, program, kernels, []int{2, 3}, seeds(t, 4), 24)
}

// Where a signal never comes the error names the word that a rank waits for, and the rank. And a
// raised abort word ends every wait of every kernel.
func TestAbsentRank(t *testing.T) {
	t.Parallel()
	program, kernels := standard.ofFloats(t)
	for _, kernel := range kernels {
		if kernel == "shunt_copy" { // waits for no peer
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

// Lines that arrive in pieces, as over PCIe: kernels that know of it are right, and those that do not are caught, of
// all that use LL128 or may fall back to it.
func TestTornLines(t *testing.T) {
	t.Parallel()
	program, kernels := standard.ofFloats(t)
	whole := map[string]bool{ // that use no lines
		"shunt_barrier": true, "shunt_symmetric_begin": true, "shunt_copy": true, "shunt_signal": true,
		"shunt_window_signal":                true,
		"shunt_all_reduce_delivered_float32": true, "shunt_all_reduce_delivered_any_float32": true,
		"shunt_reduce_scatter_staged_float32": true, "shunt_reduce_scatter_staged_any_float32": true,
	}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 8) {
				status, output := check(t.Context(), program, "--torn", "--fenced", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "3",
					kernel)
				require.Zero(t, status, "seed %d: %s", seed, output)
			}
			if whole[kernel] || strings.Contains(kernel, "_ll_") || strings.HasSuffix(kernel, "_ll") {
				return
			}
			for seed := range 240 {
				if status, _ := check(t.Context(), program, "--torn", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "6",
					kernel); status != 0 {
					return
				}
			}
			require.Fail(t, "lines in pieces do it no harm")
		})
	}
}

// Long messages of memory that is not aligned are moved in vectors: pieces of them take as much of a link, and many
// times as long.
func TestLongMessagesAreMovedInVectors(t *testing.T) {
	t.Parallel()
	program, kernels := standard.compiled(t)
	for _, kernel := range kernels {
		worlds := []int{2, 3, 4}
		switch {
		case strings.HasPrefix(kernel, "shunt_broadcast_direct"):
			worlds = worlds[:1] // more than two use lines instead
		case strings.Contains(kernel, "delivered"), strings.HasSuffix(kernel, "_on_device"):
			continue
		case strings.Contains(kernel, "_any_"), kernel == "shunt_all_gather_direct", kernel == "shunt_all_to_all_direct",
			kernel == "shunt_all_to_all_v_long", kernel == "shunt_copy":
		default:
			continue // of short messages, or of lines, or has a twin for such memory
		}
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			for _, world := range worlds {
				for seed := range seeds(t, 4) {
					status, output := check(t.Context(), program, "--apart", strconv.Itoa(world), strconv.Itoa(seed), "3", kernel)
					require.Zero(t, status, "world %d, seed %d: %s", world, seed, output)
				}
			}
		})
	}
}

// A kernel uses the parts of the region that its plan has made, and no others; and each of them at times.
func TestKernelsUseTheirParts(t *testing.T) {
	t.Parallel()
	program, kernels := standard.ofFloats(t)
	run := func(without parts.Set, seed int, kernel string) (status int, output string) {
		return check(t.Context(), program, fmt.Sprintf("--without=%d", without), strconv.Itoa(2+seed%3), strconv.Itoa(seed), "4",
			kernel)
	}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			uses := parts.Of(kernel)
			for seed := range seeds(t, 4) {
				status, output := run(parts.All&^uses, seed, kernel)
				require.Zero(t, status, "seed %d: %s", seed, output)
			}
			for part := parts.Set(1); part < parts.All; part <<= 1 {
				used := uses&part == 0
				for seed := 0; !used && seed < 240; seed++ {
					status, output := run(part, seed, kernel)
					used = status == 4 && strings.Contains(output, "a part that is not there")
				}
				require.True(t, used, "part %d is never used", part)
			}
		})
	}
}

// Rule 16: a kernel is right where every GPU has place for one block of it, and the next
// one begins when that has ended.
func TestRule16OneResidentBlockIsEnough(t *testing.T) {
	t.Parallel()
	program, kernels := standard.ofFloats(t)
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, 8) {
				status, output := check(t.Context(), program, "--one-block", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "4",
					kernel)
				require.Zero(t, status, "seed %d: %s", seed, output)
			}
		})
	}
}

func TestRule16AmongManyRanks(t *testing.T) {
	t.Parallel()
	program, kernels := manyRanks.compiled(t)
	for _, world := range []int{5, 8} {
		for seed := range seeds(t, 4) {
			t.Run(fmt.Sprintf("world %d seed %d", world, seed), func(t *testing.T) {
				t.Parallel()
				status, output := check(t.Context(), program, append([]string{"--one-block", strconv.Itoa(world),
					strconv.Itoa(seed), strconv.Itoa(len(kernels))}, kernels...)...)
				require.Zero(t, status, output)
			})
		}
	}
}

// Rule 17: ranks that make a call without the others give up, and then publish nothing and touch no memory of a peer,
// in this call and in those behind it; a rank that comes later gets the right result, or gives up as well.
func TestRule17WhoHasGivenUpPublishesNothing(t *testing.T) {
	t.Parallel()
	program, kernels := standard.ofFloats(t)
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			given := 0
			for seed := range seeds(t, 6) {
				status, output := check(t.Context(), program, "--alone", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "3", kernel)
				require.Zero(t, status, "seed %d: %s", seed, output)
				if !strings.Contains(output, " 0 gave up") {
					given++
				}
			}
			if kernel != "shunt_copy" { // which waits for no peer
				require.NotZero(t, given, "nobody has given up")
			}
		})
	}
}

// Where one rank's receive memory lies elsewhere every rank says so, and stays as long as a wait may last: the copies
// behind the kernel would go astray, and the abort that ends them may be under way.
func TestAsymmetricPlacesAreTold(t *testing.T) {
	t.Parallel()
	program, _ := standard.compiled(t)
	for seed := range seeds(t, 12) {
		status, output := check(t.Context(), program, "--asymmetric", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "2",
			"shunt_symmetric_begin")
		require.Zero(t, status, "seed %d: %s", seed, output)
	}
}

// The ends of a message that differ are reported, with both lengths, whichever ways the two ends have for messages so
// long; nothing of it arrives. And nothing is reported where they are alike, whenever a rank looks.
func TestLengths(t *testing.T) {
	t.Parallel()
	testLengths(t, looking, []int{2, 3, 4}, seeds(t, 24))
}

func TestLengthsAmongManyRanks(t *testing.T) {
	t.Parallel()
	testLengths(t, lookingManyRanks, []int{5, 8}, seeds(t, 12))
}

func testLengths(t *testing.T, v *variant, worlds []int, seeds int) {
	program, kernels := v.compiled(t)
	require.Len(t, kernels, len(usesChannels))
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
				arguments := append([]string{strconv.Itoa(world), strconv.Itoa(seed), "12"}, kernels...)
				status, output := check(t.Context(), program, arguments...)
				require.Zero(t, status, output)
			})
		}
	}
}

// Invalid counts on the device are reported, the first of them, and the rank that
// has them stores nothing.
func TestImpossibleCounts(t *testing.T) {
	t.Parallel()
	program, _ := standard.compiled(t)
	for seed := range 3 * seeds(t, 24) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			status, output := check(t.Context(), program, "--impossible", strconv.Itoa(2+seed%3), strconv.Itoa(seed), "3",
				onDevice)
			require.Zero(t, status, output)
		})
	}
}

// onDevice is the kernel that reads counts from device memory.
const onDevice = "shunt_all_to_all_v_on_device"

// inTurns is the kernel that takes the place of all_to_all_v where a budget has fewer blocks than it needs.
const inTurns = "shunt_all_to_all_v_in_turns"

// Rule 1: in a reduce of two the rank that only stages waits for the root too, however
// little there is to stage.
func TestRule01ReduceOfTwoWaits(t *testing.T) {
	t.Parallel()
	program, _ := standard.compiled(t)
	for seed := range 16 {
		status, output := check(t.Context(), program, "--absent", "2", strconv.Itoa(seed), "1", "shunt_reduce_staged_float32")
		require.Equal(t, 3, status, "seed %d: %s", seed, output)
	}
}

// A line of device.cuh of each kind.
func TestTranslate(t *testing.T) {
	for _, c := range []struct{ from, to string }{
		{`asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");`,
			`::emulate::ptx::ld_relaxed_sys_global_u64(v, p);`},
		{`asm volatile("fence.acq_rel.sys;" ::: "memory");`, `::emulate::ptx::fence_acq_rel_sys();`},
		{`asm volatile("st" SHUNT_LINE_STORE ".global.v2.u64 [%0], {%1,%2};" ::"l"(p), "l"(v.x), "l"(f(v.y)) : "memory");`,
			`::emulate::ptx::st_volatile_global_v2_u64(p, v.x, f(v.y));`},
		{`asm volatile("{ .reg .b32 before; atom.release.cta.shared.exch.b32 before, [%0], %1; }" ::"r"(p), "r"(v) : "memory");`, `::emulate::ptx::atom_release_cta_shared_exch_b32(p, v);`},
		{`asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;" : "=r"(b) : "r"(p) : "memory");`,
			`::emulate::ptx::atom_acq_rel_cta_shared_add_u32(b, p, 1);`},
		{`asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));`, `::emulate::ptx::mov_u64_globaltimer(t);`},
		{"#define N 64  /* many */\nconstexpr int kN = 8;  // few\n",
			"#define N 3  /* many */\nconstexpr int kN = 2;  // few\n"},
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
