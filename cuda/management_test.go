package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/gonvml"
	"github.com/shunt-ccl/shunt/internal/builttest"
)

// nvml is a machine for testdata/nvml.c, and what cuda.Management must say of it.
type nvml struct {
	text  strings.Builder
	gpus  []cuda.ManagedGPU
	paths map[[2]int]cuda.Path
	parts map[string]bool // UUIDs of MIG devices
}

// line describes something to the library.
func (n *nvml) line(format string, args ...any) { fmt.Fprintf(&n.text, format+"\n", args...) }

// randomNVML returns a machine of anything that NVML can say; an old driver lacks functions.
func randomNVML(random *rand.Rand, old bool) *nvml {
	n := &nvml{paths: map[[2]int]cuda.Path{}, parts: map[string]bool{}}
	n.line("driver 535.%d", random.IntN(300))
	count := random.IntN(9)
	for i := range count {
		n.gpu(random, i, count, old)
	}
	for a := range count {
		for b := range count {
			status := func() (int, cuda.PeerStatus) {
				if s := random.IntN(8); s < 6 {
					return s, cuda.PeerStatus(s)
				}
				return -1, cuda.PeerUnknown
			}
			link, p0 := status()
			read, p1 := status()
			write, p2 := status()
			level := 10*random.IntN(7) - 10
			p := cuda.Path{NVLink: p0, Read: p1, Write: p2, Level: cuda.Level(level)}
			if level < 0 {
				p.Level = cuda.LevelUnknown
			}
			n.line("path %d %d %d %d %d %d", a, b, link, read, write, level)
			n.paths[[2]int{a, b}] = p
		}
	}
	return n
}

func (n *nvml) gpu(random *rand.Rand, i, count int, old bool) {
	g := cuda.ManagedGPU{Index: i, UUID: fmt.Sprintf("GPU-%08x-0001", random.Uint32()), Name: fmt.Sprintf("GPU-of-%d", i),
		Memory: random.Int64N(1 << 40), Major: 7 + random.IntN(4), Minor: random.IntN(10)}
	if random.IntN(5) == 0 {
		g.Memory = 0 // not supported
	}
	domain, bus, device := random.Uint32N(1<<16+9), random.Uint32N(256), random.Uint32N(32)
	g.Bus = fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, device)
	mig, result := random.IntN(3)-1, 0
	g.MIG = mig == 1 && !old
	switch random.IntN(12) {
	case 0:
		result = 4
		g = cuda.ManagedGPU{Index: i, Problem: "nvmlDeviceGetHandleByIndex: Error 4", UUID: g.UUID}
	case 1:
		g.Problem = "nvmlDeviceGetCudaComputeCapability: Error 15"
	}
	major := g.Major
	if g.Problem != "" {
		major = 0
	}
	n.line("gpu %s %s %x %x %x %d %d %d %d %d", g.UUID, "GPU-of-"+fmt.Sprint(i), domain, bus, device, g.Memory, major, g.Minor,
		mig, result)
	if mig == 1 {
		for range random.IntN(4) {
			part := fmt.Sprintf("MIG-%08x-0002", random.Uint32())
			n.line("mig %d %s", i, part)
			n.parts[part] = true
			if !old {
				g.MIGDevices = append(g.MIGDevices, part)
			}
		}
	}
	numbers := random.IntN(20)
	for number := range numbers {
		n.link(random, &g, i, number, old)
	}
	if g.Problem != "" {
		g = cuda.ManagedGPU{Index: i, Problem: g.Problem, UUID: g.UUID}
	}
	n.gpus = append(n.gpus, g)
}

func (n *nvml) link(random *rand.Rand, g *cuda.ManagedGPU, i, number int, old bool) {
	if random.IntN(10) == 0 && number > 0 {
		return // the board lacks it
	}
	state, result := min(random.IntN(5), 1), 0
	version, end, bus := random.IntN(11)-1, []int{0, 1, 2, 255, -1}[random.IntN(5)], random.IntN(257)-1
	if random.IntN(10) == 0 {
		result = 999
	}
	n.line("link %d %d %d %d %d %x %d %d %d", i, number, state, version, end, 1, bus, 3, result)
	if state == 0 || result != 0 {
		return
	}
	l := cuda.ManagedLink{Number: number, Remote: cuda.LinkEndUnknown}
	if !old {
		if version >= 0 {
			l.Version = []string{"", "1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0", "", ""}[version]
		}
		if end >= 0 {
			l.Remote = cuda.LinkEnd(end)
		}
		if bus >= 0 {
			l.Bus = fmt.Sprintf("0001:%02x:03.0", bus)
		}
	}
	g.Links = append(g.Links, l)
}

// fakeNVML compiles testdata/nvml.c. The file named in the environment describes the machine.
func fakeNVML(t *testing.T, flags ...string) (library, machine string) {
	t.Helper()
	dir := t.TempDir()
	library, machine = filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "machine")
	compiler := builttest.Command("cc", append(flags, "-shared", "-fPIC", "-o", library, "testdata/nvml.c")...)
	out, err := compiler.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Setenv("SHUNT_TEST_NVML", machine)
	return library, machine
}

// check compares a Management with what it must say.
func (n *nvml) check(t *testing.T, m cuda.Management) {
	t.Helper()
	version, err := m.DriverVersion()
	require.NoError(t, err)
	require.Contains(t, n.text.String(), "driver "+version+"\n")
	got, err := m.GPUs()
	require.NoError(t, err)
	want := make([]cuda.ManagedGPU, len(n.gpus))
	for i, g := range n.gpus {
		if want[i] = g; g.Problem != "" {
			want[i].UUID = "" // for the test alone
		}
	}
	require.Empty(t, cmp.Diff(want, got), n.text.String())
	for i, a := range n.gpus {
		one, err := m.GPU(a.UUID)
		if a.Problem != "" {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(a, one))
		}
		for j, b := range n.gpus {
			p, err := m.Path(a.UUID, b.UUID)
			if strings.Contains(a.Problem+b.Problem, "HandleByIndex") {
				require.ErrorContains(t, err, "nvmlDeviceGetHandleByUUID of ")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, n.paths[[2]int{i, j}], p, n.text.String())
		}
		for part := range n.parts { // as NVML calls it, and as CUDA does
			for _, uuid := range []string{part, "GPU-" + strings.TrimPrefix(part, "MIG-")} {
				one, err := m.GPU(uuid)
				require.NoError(t, err)
				require.Equal(t, cuda.ManagedGPU{Index: -1, UUID: uuid, MIG: true}, one)
				if !strings.Contains(a.Problem, "HandleByIndex") {
					p, err := m.Path(a.UUID, uuid)
					require.NoError(t, err)
					require.Equal(t, cuda.MIGPath(), p)
				}
			}
		}
	}
	_, err = m.GPU("GPU-none")
	require.EqualError(t, err, "nvmlDeviceGetHandleByUUID of GPU-none: Error 6")
	_, err = m.Path("GPU-none", "GPU-none")
	require.EqualError(t, err, "nvmlDeviceGetHandleByUUID of GPU-none: Error 6")
}

// The table of dlsym and go-nvml, over one library, both say what the library holds.
func TestBothManagementsSayWhatNVMLHolds(t *testing.T) {
	library, machine := fakeNVML(t)
	random := rand.New(rand.NewPCG(14, 3))
	for range 200 {
		n := randomNVML(random, false)
		require.NoError(t, os.WriteFile(machine, []byte(n.text.String()), 0o600))
		table, err := cuda.LoadManagement(library)
		require.NoError(t, err)
		n.check(t, table)
		closed(t, table)
		linked, err := gonvml.Load(library)
		require.NoError(t, err)
		n.check(t, linked)
		closed(t, linked)
	}
}

// closed closes NVML, which knows no GPU afterwards and is not open once more.
func closed(t *testing.T, m cuda.Management) {
	t.Helper()
	require.NoError(t, m.Close())
	gpus, err := m.GPUs()
	require.NoError(t, err)
	require.Empty(t, gpus)
	require.ErrorContains(t, m.Close(), "nvmlShutdown: ")
}

// oldNVML names the library in the process of the next test.
const oldNVML = "SHUNT_TEST_OLD_NVML"

// A driver that lacks newer functions is less known, and ends no process. go-nvml binds functions once a process, so
// the old library has one of its own.
func TestOldNVML(t *testing.T) {
	if library := os.Getenv(oldNVML); library != "" {
		random := rand.New(rand.NewPCG(14, 4))
		for range 20 {
			n := randomNVML(random, true)
			require.NoError(t, os.WriteFile(os.Getenv("SHUNT_TEST_NVML"), []byte(n.text.String()), 0o600))
			table, err := cuda.LoadManagement(library)
			require.NoError(t, err)
			n.check(t, table)
			closed(t, table)
			linked, err := gonvml.Load(library)
			require.NoError(t, err)
			n.check(t, linked)
			closed(t, linked)
		}
		return
	}
	library, _ := fakeNVML(t, "-DOLD")
	t.Setenv(oldNVML, library)
	out, err := exec.Command(os.Args[0], "-test.run=^TestOldNVML$", "-test.v").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestOldNVML")
}

func TestNoNVML(t *testing.T) {
	library, machine := fakeNVML(t)
	loads := map[string]func(string) (cuda.Management, error){"table": cuda.LoadManagement, "go-nvml": gonvml.Load}
	for name, load := range loads {
		_, err := load("/nonexistent/libnvidia-ml.so.1")
		require.ErrorContains(t, err, "no NVML: ", name)
		require.ErrorContains(t, err, "/nonexistent/libnvidia-ml.so.1", name)
		_, err = load(library) // but no driver
		require.EqualError(t, err, "no NVML: nvmlInit: Error 9", name)
	}
	require.NoFileExists(t, machine)
}
