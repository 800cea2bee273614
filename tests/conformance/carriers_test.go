package conformance_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// build compiles a main package of the shm transport.
func build(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := builttest.Command("go", append([]string{"build", "-o", path}, arguments...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func TestBuiltinShm(t *testing.T) { conformance.Test(t, config(t, "builtin:shm")) }

func TestSharedShm(t *testing.T) {
	path := build(t, "libshunt_shm.so", "-buildmode=c-shared", "github.com/shunt-ccl/shunt/transports/shm/shared")
	conformance.Test(t, carried(t, "shared:"+path))
}

func TestProcessShm(t *testing.T) {
	path := build(t, "shunt-transport-shm", "github.com/shunt-ccl/shunt/transports/shm/process")
	conformance.Test(t, carried(t, "process:"+path))
}

// The transport in C has memory and little else: the host's generic algorithms
// do almost everything.
func TestSharedC99(t *testing.T) {
	path, err := ctransport.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	conformance.Test(t, carried(t, "shared:"+path))
}

// inMemory is for GPUs in memory: ranks are goroutines of this process, and kernels
// are slow. tests/internal/device replays the graph of a hundred operations more often.
func inMemory(cfg *conformance.Config, worlds []int) {
	cfg.Local, cfg.Timeout = true, 5*time.Minute // only what hangs is not done by then, however busy the machine is
	if !*full {
		cfg.MaxBytes, cfg.MaxRounds = 64<<10, 20
	}
	if *world == 0 {
		cfg.Worlds = worlds
	}
}

// Symmetric memory on the same GPUs: every algorithm that is offered for it, those
// that copy into the receive memory of peers among them.
func TestSymmetricCudaipc(t *testing.T) {
	cfg := config(t, machine.Builtin)
	cfg.Memory, cfg.Modes, cfg.Symmetric = plugin.MemoryKindCuda, modes(t), true
	if !machine.Real() {
		inMemory(&cfg, symmetricWorlds)
	}
	before := cudaipctest.Copied.Load()
	conformance.Test(t, cfg)
	if machine.Real() {
		return
	}
	part := *filter != "" || strings.Contains(flag.Lookup("test.run").Value.String(), "/")
	if !part && cudaipctest.Copied.Load() == before {
		t.Error("no operation ran by copies")
	}
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// A world of more ranks than there are GPUs is skipped, and says what lets them share.
func TestRanksThatShareAGPU(t *testing.T) {
	if machine.Real() {
		t.Skip("needs GPUs in memory, of which there are as many as it wants")
	}
	machine.With(t, 2)
	cfg := config(t, machine.Builtin)
	cfg.Memory, cfg.Filter = plugin.MemoryKindCuda, regexp.MustCompile("all_reduce/w3.*float32")
	inMemory(&cfg, nil)
	cfg.Worlds = []int{3}
	for on, want := range map[string]string{
		"off": "needs 3 GPUs, there are 2; SHUNT_SHARE_GPU=on lets ranks share", "on": "",
	} {
		t.Setenv("SHUNT_SHARE_GPU", on)
		report, err := conformance.Run(t.Context(), cfg)
		switch {
		case report == nil:
			t.Errorf("SHUNT_SHARE_GPU=%s: %v", on, err)
		case want == "" && (err != nil || report.Err() != nil || report.Count(conformance.Passed) == 0):
			t.Errorf("SHUNT_SHARE_GPU=%s: %v, %+v; want cases that pass", on, err, report.Results)
		case want != "" && (len(report.Results) != 1 || report.Results[0].Detail != want):
			t.Errorf("SHUNT_SHARE_GPU=%s: %v; want a skip that says %q", on, report.Results, want)
		}
	}
}

// NCCL, or what has its functions on GPUs in memory.
func TestBuiltinNccl(t *testing.T) {
	cfg := config(t, "builtin:nccl")
	cfg.Memory, cfg.Modes = plugin.MemoryKindCuda, modes(t)
	if !machine.Real() {
		machine.InstallNCCL(t)
		inMemory(&cfg, memoryWorlds)
	}
	nccltest.Violations()
	conformance.Test(t, cfg)
	if v := nccltest.Violations(); len(v) > 0 {
		t.Errorf("%d violations, the first is %s", len(v), v[0])
	}
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// stagedBytes is staging memory in which the suite's longer messages have several pieces.
const stagedBytes = 16 << 10

// stagedWorlds is enough: a world of one goes the same way.
var stagedWorlds = []int{3}

// NCCL behind commands and staging memory, as in a process of its own.
func TestStagedNccl(t *testing.T) {
	cfg := config(t, "builtin:nccl_staged")
	cfg.Memory, cfg.Modes = plugin.MemoryKindCuda, modes(t)
	if !machine.Real() {
		machine.InstallNCCL(t)
		inMemory(&cfg, stagedWorlds)
	}
	conformance.Test(t, cfg)
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// The same in processes: each rank's plugin has a driver, a library and a communicator of its own. On GPUs in memory
// elements of one type stand for all, which TestStagedNccl has: what the processes tell each other takes its time.
func TestProcessNccl(t *testing.T) {
	main := "github.com/shunt-ccl/shunt/transports/nccl/process"
	if !machine.Real() {
		main = "github.com/shunt-ccl/shunt/transports/nccl/nccltest/process"
	}
	cfg := config(t, "process:"+build(t, "shunt-transport-nccl", main))
	cfg.Memory, cfg.Modes = plugin.MemoryKindCuda, modes(t)
	if !machine.Real() {
		machine.InstallNCCL(t)
		t.Setenv("NCCL_FAKE", os.Getenv(nccl.Variable))
		t.Setenv("NCCL_FAKE_STAGING", strconv.Itoa(stagedBytes))
		inMemory(&cfg, stagedWorlds)
		if cfg.Filter == nil && !*full {
			cfg.Filter = regexp.MustCompile("float32|barrier|two_graphs")
		}
	}
	conformance.Test(t, cfg)
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// A world on several hosts runs over NCCL alone, flat: its ranks share no memory, and meet by what the host carries
// between them.
func TestNcclOnHosts(t *testing.T) {
	cfg := config(t, "builtin:nccl")
	cfg.Memory, cfg.Modes = plugin.MemoryKindCuda, modes(t)
	if !machine.Real() {
		cfg.Env = machine.NCCLOfRanks(t)
	}
	cfg.Hosts, cfg.Worlds, cfg.MaxBytes, cfg.MaxRounds = []int{2, 3}, []int{3}, 16<<10, 2
	if cfg.Filter == nil && !*full {
		cfg.Filter = regexp.MustCompile("float32|barrier|two_graphs")
	}
	conformance.Test(t, cfg)
}

// NCCL in the rank's process where the caller's memory is registered. What NCCL calls undefined would be seen.
func TestRegisteredNccl(t *testing.T) {
	if machine.Real() {
		t.Skip("needs GPUs in memory, whose NCCL checks registrations")
	}
	cfg := config(t, "builtin:nccl")
	cfg.Memory = plugin.MemoryKindCuda
	if cfg.Filter == nil {
		cfg.Filter = regexp.MustCompile(
			`^(fresh_memory|send_recv_order|group_exchange|mixed_sequence|two_graphs|two_communicators|split)/`)
	}
	machine.InstallNCCL(t, "-DFAKE_VERSION=22902")
	t.Setenv(nccl.RegisterVariable, "on")
	inMemory(&cfg, memoryWorlds)
	nccltest.Violations()
	before, _ := nccltest.Registrations()
	conformance.Test(t, cfg)
	if calls, left := nccltest.Registrations(); calls == before || len(left) > 0 {
		t.Errorf("%d registrations, of which are left %v", calls-before, left)
	}
	if v := nccltest.Violations(); len(v) > 0 {
		t.Errorf("%d violations, the first is %s", len(v), v[0])
	}
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// uncounted is cudaipc without counts on the device.
type uncounted struct{ plugin.Transport }

func (u uncounted) Info() plugin.Info {
	i := u.Transport.Info()
	i.Name, i.Features = "uncounted", i.Features&^plugin.FeatureDeviceCounts
	return i
}

// What a transport does not offer is skipped, and the reason names it.
func TestCountsOnTheDeviceAreSkippedByName(t *testing.T) {
	cfg := conformance.Config{
		Transport: "builtin:uncounted", Worlds: []int{2}, Memory: plugin.MemoryKindCuda, Local: !machine.Real(), Short: true,
		MaxBytes: 1 << 10,
		Timeout:  5 * time.Minute, Filter: regexp.MustCompile(`^(all_to_all_v|changing_splits)/.*/n(0|1|7|33)/`),
	}
	report, err := conformance.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	skipped := map[string]bool{}
	for _, r := range report.Results {
		onDevice := r.Case != nil && r.Case.OnDevice
		if want := conformance.Passed; onDevice {
			want = conformance.Skipped
			skipped[r.Case.Scenario] = true
			if r.Outcome != want || !strings.Contains(r.Detail, "uncounted: it takes no counts from device memory") {
				t.Errorf("%s: %s: %s", r.Name, r.Outcome, r.Detail)
			}
		} else if r.Outcome != want {
			t.Errorf("%s: %s: %s", r.Name, r.Outcome, r.Detail)
		}
	}
	if !skipped[""] || !skipped["changing_splits"] || report.Count(conformance.Passed) == 0 {
		t.Errorf("skipped %v of %d cases", skipped, len(report.Results))
	}
	machine.Close()
}

// Device memory: real GPUs and every case, or GPUs in memory with ranks as
// goroutines, which shows what the host's side does with streams and graphs.
func TestBuiltinCudaipc(t *testing.T) {
	cfg := config(t, machine.Builtin)
	cfg.Memory, cfg.Modes = plugin.MemoryKindCuda, modes(t)
	if machine.Real() {
		conformance.Test(t, cfg)
		return
	}
	inMemory(&cfg, memoryWorlds)
	conformance.Test(t, cfg)
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	machine.Close()
}

// TestLargeBlocksOfCudaipc: what a short run has too little memory for, of collectives whose plans tell blocks apart by
// their lengths.
func TestLargeBlocksOfCudaipc(t *testing.T) {
	if machine.Real() {
		t.Skip("TestBuiltinCudaipc runs them on GPUs")
	}
	cfg := config(t, machine.Builtin)
	cfg.Memory, cfg.Modes = plugin.MemoryKindCuda, modes(t)
	inMemory(&cfg, []int{3})
	cfg.Short, cfg.Filter = false, regexp.MustCompile("^all_gather_v/.*n9437191")
	cfg.MaxBytes = 0
	conformance.Test(t, cfg)
	machine.Close()
}
