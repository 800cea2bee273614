package topology_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/host/topology/topologytest"
)

var boxes = map[string]struct {
	box        func() *topologytest.Box
	name       string
	capability string
	gib        int64
	kind       string // of each path between GPUs
	version    string // of their NVLinks
	driver     string
}{
	"DGX A100": {topologytest.DGXA100, "NVIDIA A100-SXM4-40GB", "8.0", 40, "NV12", "3.1", "550.54.15"},
	"DGX H100": {topologytest.DGXH100, "NVIDIA H100 80GB HBM3", "9.0", 80, "NV18", "4.0", "550.54.15"},
	"DGX H200": {topologytest.DGXH200, "NVIDIA H200 141GB HBM3e", "9.0", 141, "NV18", "4.0", "550.54.15"},
	"DGX B200": {topologytest.DGXB200, "NVIDIA B200 180GB HBM3e", "10.0", 180, "NV18", "5.0", "560.28.03"},
}

// Scan reports what go-nvml and /sys say of whole machines.
func TestWholeMachines(t *testing.T) {
	for name, want := range boxes {
		t.Run(name, func(t *testing.T) {
			m := topology.Scan(want.box().Sources())
			require.Empty(t, m.Problems)
			require.Len(t, m.GPUs, 8)
			require.Equal(t, want.driver, m.Driver)
			require.Equal(t, []string{"0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0"}, m.Switches)
			require.Equal(t, 112, m.Cores)
			require.Equal(t, "56-111,168-223", m.NUMA[1].CPUs)
			require.Equal(t, []int{21, 10}, m.NUMA[1].Distances)
			for i, g := range m.GPUs {
				require.Equal(t, i, g.Index)
				require.Equal(t, i, g.Ordinal)
				require.Equal(t, want.name, g.Name)
				require.Equal(t, want.capability, g.Capability)
				require.Equal(t, want.gib, g.Memory>>30)
				require.Equal(t, i/4, g.NUMA)
				require.Equal(t, m.NUMA[i/4].CPUs, g.CPUs)
				links := 0
				var ends []string // links with the same end and version are one entry
				for _, l := range g.NVLinks {
					require.Equal(t, want.version, l.Version)
					require.Equal(t, "switch", l.To)
					links += l.Links
					ends = append(ends, l.PCI)
				}
				slices.Sort(ends)
				require.Equal(t, m.Switches, slices.Compact(ends))
				require.Len(t, g.NVLinks, len(m.Switches))
				for j := range m.GPUs {
					p := m.GPUPaths[i][j]
					require.Equal(t, topology.AccessYes, p.Access)
					if j != i {
						require.Equal(t, want.kind, p.Kind())
						require.Equal(t, links, p.NVLinks)
						require.Equal(t, i/4 == j/4, p.PCIe == topology.NODE)
					}
				}
				for n, nic := range m.NICs {
					switch {
					case nic.Name() == fmt.Sprintf("mlx5_%d", i):
						require.Equal(t, topology.PXB, m.NICPaths[i][n])
					case nic.NUMA == g.NUMA:
						require.Equal(t, topology.NODE, m.NICPaths[i][n])
					default:
						require.Equal(t, topology.SYS, m.NICPaths[i][n])
					}
				}
			}
			require.Len(t, m.NICs, 10)
		})
	}
}

// On any mesh, the path of a pair has the links that the mesh has between the two; both directions are equal.
func TestMeshesAreWhatPairsHave(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		var links [8][8]int
		for a := range links {
			for b := range a {
				if random.IntN(2) == 0 {
					links[a][b] = 1 + random.IntN(4)
				}
				links[b][a] = links[a][b]
			}
		}
		box := topologytest.Mesh(func(a, b int) int { return links[a][b] })
		m := topology.Scan(box.Sources())
		for a := range links {
			for b := range links {
				p := m.GPUPaths[a][b]
				require.Equal(t, p, m.GPUPaths[b][a])
				if a == b {
					continue
				}
				require.Equal(t, links[a][b], p.NVLinks, "%d to %d", a, b)
				want := topology.AccessNo
				if links[a][b] > 0 || a/4 == b/4 {
					want = topology.AccessYes
				}
				require.Equal(t, want, p.Access)
				if links[a][b] == 0 {
					require.Equal(t, map[bool]string{true: "NODE", false: "SYS"}[a/4 == b/4], p.Kind())
				}
			}
		}
		require.Empty(t, m.Switches)
	}
}

// A link that one end alone reports, a direction that NVML or CUDA denies: what one direction lacks, the pair lacks.
func TestOneDirectionDecides(t *testing.T) {
	whole := func(a, b int) int {
		if a == b {
			return 0
		}
		return 2
	}
	for name, c := range map[string]struct {
		spoil func(b *topologytest.Box)
		want  topology.Path
	}{
		"nothing": {func(*topologytest.Box) {}, topology.Path{NVLinks: 2, PCIe: topology.NODE, Access: topology.AccessYes}},
		"a link is down at one end": {func(b *topologytest.Box) { b.Links[1] = b.Links[1][1:] },
			topology.Path{NVLinks: 1, PCIe: topology.NODE, Access: topology.AccessYes}},
		"NVML denies NVLink one way": {func(b *topologytest.Box) {
			b.Path = func(i, j int) cuda.Path {
				if i == 1 && j == 0 {
					return cuda.Path{NVLink: cuda.PeerRegistry, Level: cuda.LevelNode}
				}
				return cuda.Path{Level: cuda.LevelNode}
			}
		}, topology.Path{PCIe: topology.NODE, Access: topology.AccessYes}},
		"NVML says one way that they are far": {func(b *topologytest.Box) {
			b.Path = func(i, j int) cuda.Path { return cuda.Path{Level: map[bool]cuda.Level{true: cuda.LevelSystem}[i < j]} }
		}, topology.Path{NVLinks: 2, PCIe: topology.SYS, Access: topology.AccessYes}},
		"CUDA denies access one way": {func(b *topologytest.Box) {
			b.Access = func(i, j int) bool { return i != 1 || j != 0 }
		}, topology.Path{NVLinks: 2, PCIe: topology.NODE, Access: topology.AccessNo, Why: "the CUDA driver allows none"}},
		"NVML denies writing, CUDA does not see the GPU": {func(b *topologytest.Box) {
			b.Visible = []int{0}
			b.Path = func(int, int) cuda.Path { return cuda.Path{Write: cuda.PeerChipset, Level: cuda.LevelNode} }
		}, topology.Path{NVLinks: 2, PCIe: topology.NODE, Access: topology.AccessNo, Why: "not supported by the chipset"}},
		"NVML knows nothing, CUDA does not see the GPU": {func(b *topologytest.Box) {
			b.Visible = []int{0}
			b.Path = func(int, int) cuda.Path { return cuda.UnknownPath() }
		}, topology.Path{PCIe: topology.NODE, Access: topology.AccessUnknown, Why: "NVML does not say"}},
		"NVML does not say what links lead to": {func(b *topologytest.Box) {
			for i := range b.Links {
				for n := range b.Links[i] {
					b.Links[i][n].Remote = cuda.LinkEndUnknown
				}
			}
		}, topology.Path{NVLinks: 2, PCIe: topology.NODE, Access: topology.AccessYes}},
		"links lead to switches of which NVML says only where they are": {func(b *topologytest.Box) {
			for i := range b.Links {
				for n := range b.Links[i] {
					b.Links[i][n] = cuda.ManagedLink{Number: n, Remote: cuda.LinkEndUnknown, Bus: "0000:07:00.0"}
				}
			}
		}, topology.Path{NVLinks: 14, PCIe: topology.NODE, Access: topology.AccessYes}},
		"links lead to GPUs, but NVML does not say which": {func(b *topologytest.Box) {
			for i := range b.Links {
				for n := range b.Links[i] {
					b.Links[i][n].Bus = ""
				}
			}
		}, topology.Path{NVLinks: 14, PCIe: topology.NODE, Access: topology.AccessYes}},
		"links lead to a CPU": {func(b *topologytest.Box) {
			for i := range b.Links[0] {
				b.Links[0][i].Remote = cuda.LinkEndCPU
			}
		}, topology.Path{PCIe: topology.NODE, Access: topology.AccessYes}},
		"MIG": {func(b *topologytest.Box) { b.Device(1).MigMode = nvml.DEVICE_MIG_ENABLE },
			topology.Path{PCIe: topology.NODE, Access: topology.AccessNo, Why: "a MIG device reaches no other device's memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := topologytest.Mesh(whole)
			c.spoil(b)
			require.Equal(t, c.want, topology.Scan(b.Sources()).GPUPaths[0][1])
		})
	}
}

func TestPCIeOnly(t *testing.T) {
	m := topology.Scan(topologytest.PCIe(4).Sources())
	want := [][]string{{"PIX", "PIX", "SYS", "SYS"}, {"PIX", "PIX", "SYS", "SYS"}, {"SYS", "SYS", "PIX", "PIX"},
		{"SYS", "SYS", "PIX", "PIX"}}
	for i, row := range m.GPUPaths {
		for j, p := range row {
			require.Equal(t, want[i][j], p.Kind())
			require.Equal(t, i/2 == j/2, p.Access == topology.AccessYes)
		}
	}
	require.Equal(t, []topology.Distance{topology.PHB}, m.NICPaths[0])
	require.Equal(t, []topology.Distance{topology.SYS}, m.NICPaths[3])
	// Where NVML does not say how far GPUs are, /sys does.
	b := topologytest.PCIe(4)
	b.Path = func(int, int) cuda.Path { return cuda.UnknownPath() }
	silent := topology.Scan(b.Sources())
	for i := range m.GPUPaths {
		for j := range m.GPUPaths {
			require.Equal(t, m.GPUPaths[i][j].PCIe, silent.GPUPaths[i][j].PCIe, "%d to %d", i, j)
		}
	}
}

// CUDA_VISIBLE_DEVICES hides GPUs and numbers the others anew; NVML shows all. A GPU that cannot be opened is named.
func TestHiddenAndLostGPUs(t *testing.T) {
	b := topologytest.DGXH200()
	b.Visible = []int{5, 2}
	b.Lost[3], b.Lost[4] = nvml.ERROR_NO_PERMISSION, nvml.ERROR_GPU_IS_LOST
	m := topology.Scan(b.Sources())
	var ordinals []int
	for _, g := range m.GPUs {
		ordinals = append(ordinals, g.Ordinal)
	}
	require.Equal(t, []int{-1, -1, 1, -1, -1, 0, -1, -1}, ordinals)
	require.Equal(t, "nvmlDeviceGetHandleByIndex: ERROR_GPU_IS_LOST", m.GPUs[4].Problem)
	require.Equal(t, topology.AccessUnknown, m.GPUPaths[3][5].Access)
	require.Equal(t, "NV18", m.GPUPaths[0][5].Kind())
}

// A GPU that is cut into MIG devices is one of the machine's GPUs, by CUDA's number of the device that CUDA sees of it,
// and reaches no other.
func TestMIG(t *testing.T) {
	b := topologytest.DGXH100()
	b.Visible = []int{1, 2}
	b.Parts[2] = []string{"MIG-4f3a5b1c-0000-5000-8000-000000000001", "MIG-4f3a5b1c-0000-5000-8000-000000000002"}
	m := topology.Scan(b.Sources())
	require.Empty(t, m.Problems)
	require.Len(t, m.GPUs, 8)
	require.True(t, m.GPUs[2].MIG)
	require.Equal(t, b.Parts[2], m.GPUs[2].MIGDevices)
	require.Equal(t, 1, m.GPUs[2].Ordinal)
	for i, g := range m.GPUs {
		if i != 2 {
			require.False(t, g.MIG)
			require.Equal(t, topology.AccessNo, m.GPUPaths[2][i].Access)
			require.Zero(t, m.GPUPaths[i][2].NVLinks)
		}
	}
}

// Without a driver the rest of the machine is shown all the same; NVML or CUDA alone find the GPUs.
func TestWithoutDrivers(t *testing.T) {
	b := topologytest.DGXH200()
	noCUDA := func() (cuda.Driver, error) { return nil, errors.New("no CUDA driver") }
	noNVML := func() (cuda.Management, error) { return nil, errors.New("no NVML") }
	s := b.Sources()
	s.OpenDriver, s.OpenManagement = noCUDA, noNVML
	m := topology.Scan(s)
	require.Equal(t, []string{"no CUDA driver", "no NVML"}, m.Problems)
	require.Empty(t, m.GPUs)
	require.Len(t, m.NICs, 10)
	require.Len(t, m.NUMA, 2)

	s = b.Sources()
	s.OpenDriver = noCUDA
	m = topology.Scan(s)
	require.Len(t, m.GPUs, 8)
	require.Equal(t, -1, m.GPUs[0].Ordinal)
	require.Equal(t, topology.Path{NVLinks: 18, PCIe: topology.NODE, Access: topology.AccessYes}, m.GPUPaths[0][1])

	s = b.Sources()
	s.OpenManagement = noNVML
	m = topology.Scan(s)
	require.Len(t, m.GPUs, 8)
	require.Equal(t, -1, m.GPUs[7].Index)
	require.Equal(t, 7, m.GPUs[7].Ordinal)
	require.Equal(t, topology.Path{PCIe: topology.SYS, Access: topology.AccessYes}, m.GPUPaths[0][7])
}

// Every Scan is read back as it was written, and the error of what cannot be a Scan names it.
func TestParse(t *testing.T) {
	for _, box := range []*topologytest.Box{topologytest.DGXB200(), topologytest.PCIe(4), topologytest.PCIe(0)} {
		m := topology.Scan(box.Sources())
		m.Places = []topology.Place{topology.Local()}
		text, err := json.Marshal(m)
		require.NoError(t, err)
		back, err := topology.Parse(text)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(m, back))
	}
	for want, change := range map[string]func(m map[string]any){
		"schema is 2, want 1":  func(m map[string]any) { m["schema"] = 2 },
		`unknown field "gpu"`:  func(m map[string]any) { m["gpu"] = 1 },
		"gpu_paths has 1 rows": func(m map[string]any) { m["gpu_paths"] = m["gpu_paths"].([]any)[:1] },
		"row 0 has 2 paths to GPUs and 0 to NICs, want 2 and 1": func(m map[string]any) {
			m["nic_paths"] = []any{[]any{}, []any{}}
		},
		`nic_paths[1][0] is "near"`: func(m map[string]any) { m["nic_paths"] = []any{[]any{"PIX"}, []any{"near"}} },
		"gpu_paths[1][0] differs from gpu_paths[0][1]": func(m map[string]any) {
			m["gpu_paths"].([]any)[1].([]any)[0].(map[string]any)["nvlinks"] = 3
		},
		`gpu_paths[0][0] is malformed: 0 NVLinks, pcie "PIX", access "maybe"`: func(m map[string]any) {
			m["gpu_paths"].([]any)[0].([]any)[0].(map[string]any)["access"] = "maybe"
		},
	} {
		var m map[string]any
		text, err := json.Marshal(topology.Scan(topologytest.PCIe(2).Sources()))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &m))
		change(m)
		text, err = json.Marshal(m)
		require.NoError(t, err)
		_, err = topology.Parse(text)
		require.ErrorContains(t, err, want)
	}
	for _, list := range []string{"gpus", "nics", "numa", "switches", "places"} {
		var m map[string]any
		text, err := json.Marshal(topology.Scan(topologytest.PCIe(2).Sources()))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &m))
		element := any(map[string]any{})
		if list == "switches" {
			element = "0000:07:00.0"
		}
		m[list] = slices.Repeat([]any{element}, 1025)
		text, err = json.Marshal(m)
		require.NoError(t, err)
		_, err = topology.Parse(text)
		require.ErrorContains(t, err, "are too many", list)
	}
	for _, text := range []string{"", "[]", "null", `{"schema":1}{}`, "{", `{"schema":"1"}`} {
		_, err := topology.Parse([]byte(text))
		require.Error(t, err, text)
	}
}

func FuzzParse(f *testing.F) {
	for _, box := range []*topologytest.Box{topologytest.PCIe(2), topologytest.PCIe(0)} {
		text, err := json.Marshal(topology.Scan(box.Sources()))
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := topology.Parse(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(m)
		require.NoError(t, err)
		back, err := topology.Parse(again)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(m, back))
	})
}

// No file of /sys, whatever it holds, makes Scan fail or return what Parse would reject.
func FuzzSystemFiles(f *testing.F) {
	box := topologytest.PCIe(2)
	var files []string
	for name := range box.Root {
		files = append(files, name)
	}
	slices.Sort(files)
	f.Add(uint16(0), []byte("-1\n"))
	f.Add(uint16(7), []byte("0-65535"))
	f.Add(uint16(90), []byte("../../../devices/pci0000:00/0000:00:01.0"))
	f.Fuzz(func(t *testing.T, which uint16, text []byte) {
		root := fstest.MapFS{}
		for name, file := range box.Root {
			root[name] = file
		}
		name := files[int(which)%len(files)]
		root[name] = &fstest.MapFile{Data: text, Mode: root[name].Mode}
		s := box.Sources()
		s.Root = root
		b, err := json.Marshal(topology.Scan(s))
		require.NoError(t, err)
		_, err = topology.Parse(b)
		require.NoError(t, err)
	})
}
