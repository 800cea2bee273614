package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// Schema is the version of Machine as JSON.
const Schema = 1

// Machine describes a host as one process sees it; `shunt topo --json` prints it.
type Machine struct {
	Schema    int          `json:"schema"`
	Host      string       `json:"host"`    // name, for messages
	HostID    string       `json:"host_id"` // ranks with equal ids share memory
	CPUs      string       `json:"cpus"`    // logical CPUs that are online, such as "0-3,8"
	Cores     int          `json:"cores"`   // physical; 0 if unknown
	NUMA      []NUMANode   `json:"numa"`
	Container Container    `json:"container"`
	Driver    string       `json:"driver"`    // version of the NVIDIA driver; empty if there is none
	Problems  []string     `json:"problems"`  // why GPUs, or the paths between them, are not known
	GPUs      []MachineGPU `json:"gpus"`      // in nvidia-smi's order
	Switches  []string     `json:"switches"`  // PCI addresses of the NVSwitches that GPUs are linked to
	NICs      []NIC        `json:"nics"`      // in the order of their names, then virtual ones
	GPUPaths  [][]Path     `json:"gpu_paths"` // between each two GPUs, by position in gpus
	// between each GPU, by position in gpus, and each adapter, by position in nics
	NICPaths [][]Distance `json:"nic_paths"`
	Places   []Place      `json:"places,omitempty"` // of ranks that were started to say where they are
}

// Container describes the container of the process.
type Container struct {
	Kind   string `json:"kind"`    // "docker", "podman", "kubernetes", or what calls itself so; empty: none seen
	CPUSet string `json:"cpu_set"` // CPUs that the process may run on
	// CPU time that its control group may use, in CPUs rounded up; 0: no limit
	CPUQuota         int    `json:"cpu_quota"`
	PIDNamespace     string `json:"pid_namespace"`        // ranks in another one cannot read this one's memory
	NetworkNamespace string `json:"network_namespace"`    // ranks in another one count as those of another host
	VisibleDevices   string `json:"cuda_visible_devices"` // the variable; empty if unset
}

// MachineGPU is a GPU of the machine or container.
type MachineGPU struct {
	Index      int    `json:"index"`   // nvidia-smi's; -1 without NVML
	Ordinal    int    `json:"ordinal"` // CUDA's in this process, of the GPU or its MIG device; -1: CUDA does not see it
	UUID       string `json:"uuid"`
	Name       string `json:"name"`
	PCI        string `json:"pci"`
	Memory     int64  `json:"memory"`     // bytes; 0 if unknown
	Capability string `json:"capability"` // compute capability, such as "9.0"
	NUMA       int    `json:"numa"`       // -1 if unknown
	CPUs       string `json:"cpus"`       // that are next to it; empty if unknown
	MIG        bool   `json:"mig"`        // it is cut into MIG devices
	// those, by UUID
	MIGDevices []string `json:"mig_devices"`
	NVLinks    []NVLink `json:"nvlinks"`           // that are up
	Problem    string   `json:"problem,omitempty"` // why the rest is unknown
}

// NVLink is the NVLinks of a GPU that lead to one place.
type NVLink struct {
	To      string `json:"to"`      // "gpu", "switch", "cpu" or "unknown"
	PCI     string `json:"pci"`     // of what they lead to; empty if unknown
	Version string `json:"version"` // such as "4.0"; empty if unknown
	Links   int    `json:"links"`
}

var linkEnds = map[cuda.LinkEnd]string{cuda.LinkEndGPU: "gpu", cuda.LinkEndCPU: "cpu", cuda.LinkEndSwitch: "switch"}

// Sources are the places that Scan reads.
type Sources struct {
	Root   fs.FS               // what is at /
	Getenv func(string) string // the environment
	// OpenManagement finds NVML.
	OpenManagement func() (cuda.Management, error)
	// OpenDriver finds CUDA; nil: it is not looked for.
	OpenDriver func() (cuda.Driver, error)
}

// Scan looks at the machine. What it cannot find out is among Problems.
func Scan(s Sources) *Machine {
	m := &Machine{Schema: Schema, CPUs: word(s.Root, "sys/devices/system/cpu/online"), Cores: cores(s.Root),
		NUMA: numaNodes(s.Root), NICs: nics(s.Root), Problems: []string{}, Switches: []string{}, GPUs: []MachineGPU{},
		GPUPaths: [][]Path{}, NICPaths: [][]Distance{}}
	m.Host, m.HostID = identity(s.Getenv, s.Root)
	m.Container = container(s.Root, s.Getenv)
	g := gpuScan{Sources: s, Machine: m}
	g.find()
	g.connect()
	if g.management != nil {
		g.problem(g.management.Close())
	}
	for _, gpu := range m.GPUs {
		way, row := pciBridges(s.Root, gpu.PCI), []Distance{}
		for _, n := range m.NICs {
			row = append(row, pciDistance(way, pciBridges(s.Root, n.PCI), gpu.NUMA, n.NUMA))
		}
		m.NICPaths = append(m.NICPaths, row)
	}
	return m
}

// container returns the container that the process runs in.
func container(root fs.FS, getenv func(string) string) Container {
	local := Local()
	c := Container{CPUSet: local.CPUSet, VisibleDevices: getenv("CUDA_VISIBLE_DEVICES")}
	if q := quota(root); q <= most {
		c.CPUQuota = q
	}
	c.PIDNamespace, _ = fs.ReadLink(root, "proc/self/ns/pid")
	c.NetworkNamespace, _ = fs.ReadLink(root, "proc/self/ns/net")
	exists := func(name string) bool {
		_, err := fs.Stat(root, name)
		return err == nil
	}
	switch {
	case getenv("KUBERNETES_SERVICE_HOST") != "":
		c.Kind = "kubernetes"
	case exists("run/.containerenv"):
		c.Kind = "podman"
	case exists(".dockerenv"):
		c.Kind = "docker"
	default:
		c.Kind = getenv("container") // as systemd has it of lxc, nspawn and others
	}
	return c
}

// gpuScan finds GPUs, by NVML and by CUDA.
type gpuScan struct {
	Sources
	*Machine
	management cuda.Management
	driver     cuda.Driver
	managed    []*cuda.ManagedGPU // by position; nil: NVML does not know the GPU
	ordinals   map[string]int     // CUDA's, by UUID
}

func (g *gpuScan) problem(err error) {
	if err != nil && !slices.Contains(g.Problems, err.Error()) {
		g.Problems = append(g.Problems, err.Error())
	}
}

func (g *gpuScan) find() {
	g.ordinals = map[string]int{}
	var devices []cuda.DeviceInfo
	if g.OpenDriver != nil {
		var err error
		if g.driver, err = g.OpenDriver(); err == nil {
			devices, err = g.driver.Devices()
		}
		g.problem(err)
	}
	for _, d := range devices {
		g.ordinals[d.UUIDString()] = d.Ordinal
	}
	var err error
	var managed []cuda.ManagedGPU
	if g.management, err = g.OpenManagement(); err == nil {
		g.Driver, err = g.management.DriverVersion()
		g.problem(err)
		managed, err = g.management.GPUs()
	}
	g.problem(err)
	known := map[string]bool{}
	for i := range managed {
		g.add(g.describe(&managed[i]), &managed[i])
		known[managed[i].UUID] = true
		for _, part := range managed[i].MIGDevices {
			known["GPU-"+strings.TrimPrefix(part, "MIG-")] = true // as CUDA calls it
		}
	}
	for _, d := range devices {
		if !known[d.UUIDString()] {
			g.add(MachineGPU{Index: -1, Ordinal: d.Ordinal, UUID: d.UUIDString(), Name: d.Name, PCI: d.Bus, Memory: d.Memory,
				Capability: fmt.Sprintf("%d.%d", d.Major, d.Minor), NVLinks: []NVLink{}, MIGDevices: []string{}}, nil)
		}
	}
	slices.Sort(g.Switches)
}

func (g *gpuScan) add(gpu MachineGPU, managed *cuda.ManagedGPU) {
	gpu.NUMA = NodeOfPCI(g.Root, gpu.PCI)
	if pciAddress.MatchString(gpu.PCI) {
		gpu.CPUs = word(g.Root, "sys/bus/pci/devices/"+strings.ToLower(gpu.PCI)+"/local_cpulist")
	}
	g.GPUs, g.managed = append(g.GPUs, gpu), append(g.managed, managed)
}

// describe returns a GPU as NVML describes it.
func (g *gpuScan) describe(d *cuda.ManagedGPU) MachineGPU {
	gpu := MachineGPU{Index: d.Index, Ordinal: -1, UUID: d.UUID, Name: d.Name, PCI: d.Bus, Memory: d.Memory, MIG: d.MIG,
		MIGDevices: append([]string{}, d.MIGDevices...), NVLinks: []NVLink{}, Problem: d.Problem}
	if d.Problem != "" {
		return gpu
	}
	gpu.Capability = fmt.Sprintf("%d.%d", d.Major, d.Minor)
	for _, uuid := range append([]string{d.UUID}, d.MIGDevices...) {
		if ordinal, visible := g.ordinals["GPU-"+strings.TrimPrefix(strings.TrimPrefix(uuid, "GPU-"), "MIG-")]; visible {
			gpu.Ordinal = ordinal // CUDA calls a MIG device a GPU
		}
	}
	for _, l := range d.Links {
		to := linkEnds[l.Remote]
		if to == "" {
			to = "unknown"
		}
		if l.Remote == cuda.LinkEndSwitch && l.Bus != "" && !slices.Contains(g.Switches, l.Bus) {
			g.Switches = append(g.Switches, l.Bus)
		}
		same := func(n NVLink) bool { return n.To == to && n.PCI == l.Bus && n.Version == l.Version }
		if i := slices.IndexFunc(gpu.NVLinks, same); i >= 0 {
			gpu.NVLinks[i].Links++
		} else {
			gpu.NVLinks = append(gpu.NVLinks, NVLink{To: to, PCI: l.Bus, Version: l.Version, Links: 1})
		}
	}
	return gpu
}

// connect finds the paths between each two GPUs.
func (g *gpuScan) connect() {
	for i := range g.GPUs {
		g.GPUPaths = append(g.GPUPaths, make([]Path, len(g.GPUs)))
		g.GPUPaths[i][i] = SamePath()
		for j := range i {
			p := Both(g.toward(i, j), g.toward(j, i))
			if p.PCIe == Unknown {
				a, b := g.GPUs[i], g.GPUs[j]
				p.PCIe = pciDistance(pciBridges(g.Root, a.PCI), pciBridges(g.Root, b.PCI), a.NUMA, b.NUMA)
			}
			g.GPUPaths[i][j], g.GPUPaths[j][i] = p, p
		}
	}
}

// toward returns the way from one GPU to another.
func (g *gpuScan) toward(i, j int) Path {
	a, b := g.managed[i], g.managed[j]
	if a == nil || b == nil { // CUDA alone knows one of them
		return Toward(&cuda.ManagedGPU{}, "", cuda.UnknownPath(), g.canAccess(i, j))
	}
	if a.Problem != "" || b.Problem != "" {
		return UnknownPath(errors.New("one of the GPUs cannot be queried"))
	}
	path, err := g.management.Path(a.UUID, b.UUID)
	if err != nil {
		return UnknownPath(err)
	}
	return Toward(a, b.Bus, path, g.canAccess(i, j))
}

func (g *gpuScan) canAccess(i, j int) CanAccess {
	a, b := g.GPUs[i].Ordinal, g.GPUs[j].Ordinal
	if g.driver == nil || a < 0 || b < 0 {
		return nil
	}
	can, err := g.driver.CanAccess(a, b)
	if err != nil {
		g.problem(err)
		return nil
	}
	return &can
}

// System returns the sources of this machine.
func System(openManagement func() (cuda.Management, error)) Sources {
	return Sources{Root: os.DirFS("/"), Getenv: environment.Get, OpenManagement: openManagement, OpenDriver: cuda.Open}
}
