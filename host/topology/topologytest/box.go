// Package topologytest has machines for tests: the whole machines of go-nvml's mocks, with what those leave out (PCI
// addresses, NVLinks, the paths between GPUs) and with the /sys of such a machine.
package topologytest

import (
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/gonvml"
	"github.com/shunt-ccl/shunt/host/topology"
)

// Box is a machine. A test may change it before it asks for its Sources.
type Box struct {
	Server  *server.Server
	Root    fstest.MapFS
	Links   [][]cuda.ManagedLink     // by GPU
	Path    func(a, b int) cuda.Path // between GPUs
	Access  func(a, b int) bool      // what CUDA says
	Visible []int                    // GPUs that CUDA sees, in its order
	Env     map[string]string        // of the process
	Lost    map[int]nvml.Return      // GPUs that NVML cannot open
	Parts   map[int][]string         // UUIDs of the MIG devices that GPUs are cut into; CUDA sees the first of each
}

// Device returns a GPU of the box.
func (b *Box) Device(i int) *server.Device { return b.Server.Devices[i].(*server.Device) }

// addresses of a DGX: each GPU is behind a switch of its own, beside an adapter.
var (
	gpuBuses = []int{0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf}
	switches = []string{"0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0"}
)

// DGXA100 has 12 NVLinks 3.1 of each GPU to switches.
func DGXA100() *Box { return dgx(dgxa100.New(), 12, "3.1", 200, 1024) }

// DGXH100 has 18 NVLinks 4.0 of each GPU to switches.
func DGXH100() *Box { return dgx(dgxh100.New(), 18, "4.0", 400, 1024) }

// DGXH200 returns a DGXH100 with H200.
func DGXH200() *Box { return dgx(dgxh200.New(), 18, "4.0", 400, 1024) }

// DGXB200 has 18 NVLinks 5.0 of each GPU to switches.
func DGXB200() *Box { return dgx(dgxb200.New(), 18, "5.0", 400, 2048) }

// dgx returns a machine of two sockets, with four GPUs and five adapters each.
func dgx(s *server.Server, links int, version string, gigabits, gigabytes int) *Box {
	b := newBox(s, 2, 56, gigabytes)
	for i := range b.Server.Devices {
		node := i / 4
		bus := gpuBuses[i]
		root := fmt.Sprintf("pci0000:%02x", bus-6)
		up := fmt.Sprintf("%s/0000:%02x:01.0/0000:%02x:00.0", root, bus-6, bus-5)
		b.placeGPU(i, fmt.Sprintf("%s/0000:%02x:02.0/0000:%02x:00.0/0000:%02x:00.0", up, bus-4, bus-2, bus-1), bus, node)
		address := fmt.Sprintf("0000:%02x:00.0", bus-3)
		b.pci(fmt.Sprintf("%s/0000:%02x:00.0/%s", up, bus-4, address), address, node)
		b.adapter(fmt.Sprintf("mlx5_%d", i), fmt.Sprintf("ib%d", i), address, gigabits, "InfiniBand")
	}
	for node := range 2 {
		address := fmt.Sprintf("0000:%02x:00.0", 0x29+0x80*node)
		b.pci(fmt.Sprintf("pci0000:%02x/0000:%02x:02.0/%s", 0x28+0x80*node, 0x28+0x80*node, address), address, node)
		b.adapter(fmt.Sprintf("mlx5_%d", 8+node), fmt.Sprintf("enp%ds0", 0x29+0x80*node), address, 100, "Ethernet")
	}
	for i := range b.Links {
		for n := range links {
			b.Links[i] = append(b.Links[i], cuda.ManagedLink{Number: n, Version: version, Remote: cuda.LinkEndSwitch,
				Bus: switches[n%len(switches)]})
		}
	}
	return b
}

// Mesh returns a machine of eight A100 without switches, whose GPUs are joined directly by as many NVLinks as links
// says. Those that are not joined reach each other's memory only if they are of one socket.
func Mesh(links func(a, b int) int) *Box {
	b := DGXA100()
	for i := range b.Links {
		b.Links[i] = nil
		for j := range b.Links {
			for range links(i, j) {
				b.Links[i] = append(b.Links[i], cuda.ManagedLink{Number: len(b.Links[i]), Version: "2.0", Remote: cuda.LinkEndGPU,
					Bus: b.Device(j).PciBusID})
			}
		}
	}
	b.Access = func(i, j int) bool { return links(i, j) > 0 || i/4 == j/4 }
	b.Path = func(i, j int) cuda.Path {
		p := cuda.Path{NVLink: cuda.PeerNotSupported, Level: cuda.LevelNode}
		if links(i, j) > 0 {
			p.NVLink = cuda.PeerOK
		}
		if !b.Access(i, j) {
			p.Read, p.Write = cuda.PeerChipset, cuda.PeerChipset
		}
		if i/4 != j/4 {
			p.Level = cuda.LevelSystem
		}
		return p
	}
	return b
}

// PCIe returns a machine of H100 without NVLink: two by two behind a switch, half of them at each socket, and no peer
// access between sockets.
func PCIe(n int) *Box {
	s := dgxh100.New()
	s.Devices = s.Devices[:n]
	b := newBox(s, 2, 32, 512)
	for i := range s.Devices {
		node, bus := 2*i/n, 0x10+0x20*(i/2)+4*(i%2)
		up := fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0", 0x0c+0x20*(i/2), 0x0c+0x20*(i/2), 0x0d+0x20*(i/2))
		b.placeGPU(i, fmt.Sprintf("%s/0000:%02x:%02x.0", up, 0x0e+0x20*(i/2), i%2), bus, node)
		s.Devices[i].(*server.Device).Config.Name = "NVIDIA H100 PCIe"
	}
	b.pci("pci0000:0c/0000:0c:02.0/0000:0f:00.0", "0000:0f:00.0", 0)
	b.adapter("mlx5_0", "eth0", "0000:0f:00.0", 100, "Ethernet")
	b.Access = func(i, j int) bool { return 2*i/n == 2*j/n }
	b.Path = func(i, j int) cuda.Path {
		p := cuda.Path{NVLink: cuda.PeerNotSupported, Level: cuda.LevelNode}
		switch {
		case i/2 == j/2:
			p.Level = cuda.LevelSwitch
		case !b.Access(i, j):
			p.Read, p.Write, p.Level = cuda.PeerChipset, cuda.PeerChipset, cuda.LevelSystem
		}
		return p
	}
	return b
}

func newBox(s *server.Server, nodes, coresOfNode, gigabytes int) *Box {
	n := len(s.Devices)
	b := &Box{Server: s, Root: fstest.MapFS{}, Links: make([][]cuda.ManagedLink, n), Env: map[string]string{},
		Access: func(int, int) bool { return true }, Lost: map[int]nvml.Return{}, Parts: map[int][]string{}}
	b.Path = func(i, j int) cuda.Path {
		if i/4 == j/4 {
			return cuda.Path{Level: cuda.LevelNode}
		}
		return cuda.Path{Level: cuda.LevelSystem}
	}
	b.file("proc/sys/kernel/random/boot_id", "5f3c")
	b.file("sys/devices/system/cpu/online", fmt.Sprintf("0-%d", 2*nodes*coresOfNode-1))
	b.file("sys/devices/system/node/online", fmt.Sprintf("0-%d", nodes-1))
	for node := range nodes {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", node)
		b.file(dir+"cpulist", cpusOf(node, nodes, coresOfNode))
		b.file(dir+"meminfo", fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree: 1 kB", node, gigabytes<<20, node))
		distances := slices.Repeat([]string{"21"}, nodes)
		distances[node] = "10"
		b.file(dir+"distance", strings.Join(distances, " "))
	}
	for cpu := range 2 * nodes * coresOfNode {
		core := cpu % (nodes * coresOfNode)
		b.file(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu),
			fmt.Sprintf("%d,%d", core, core+nodes*coresOfNode))
	}
	for i := range s.Devices {
		d := b.Device(i)
		d.UUID = fmt.Sprintf("GPU-%08x-0000-4000-8000-%012x", d.Config.PciDeviceId, i+1)
		d.Config.Name = strings.TrimPrefix(d.Config.Name, "Mock ")
		b.Visible = append(b.Visible, i)
	}
	return b
}

func cpusOf(node, nodes, cores int) string {
	return fmt.Sprintf("%d-%d,%d-%d", node*cores, (node+1)*cores-1, (nodes+node)*cores, (nodes+node+1)*cores-1)
}

func (b *Box) file(name, text string) { b.Root[name] = &fstest.MapFile{Data: []byte(text + "\n")} }

func (b *Box) link(name, target string) {
	b.Root[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

// pci makes a PCI device; way is its folder under /sys/devices.
func (b *Box) pci(way, address string, node int) {
	b.file("sys/devices/"+way+"/numa_node", strconv.Itoa(node))
	cpus := strings.TrimSpace(string(b.Root[fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node)].Data))
	b.file("sys/devices/"+way+"/local_cpulist", cpus)
	b.link("sys/bus/pci/devices/"+address, "../../../devices/"+way)
}

func (b *Box) placeGPU(i int, way string, bus, node int) {
	d := b.Device(i)
	d.PciBusID = fmt.Sprintf("0000:%02x:00.0", bus)
	b.pci(way+"/"+d.PciBusID, d.PciBusID, node)
}

// adapter makes a network adapter of a PCI device.
func (b *Box) adapter(hca, name, address string, gigabits int, layer string) {
	device := "sys/devices/" + strings.TrimPrefix(string(b.Root["sys/bus/pci/devices/"+address].Data), "../../../devices/")
	b.file(device+"/infiniband/"+hca+"/ports/1/state", "4: ACTIVE")
	b.file(device+"/infiniband/"+hca+"/ports/1/rate", fmt.Sprintf("%d Gb/sec (4X NDR)", gigabits))
	b.file(device+"/infiniband/"+hca+"/ports/1/link_layer", layer)
	b.file(device+"/net/"+name+"/operstate", "up")
	b.file(device+"/net/"+name+"/speed", strconv.Itoa(gigabits*1000))
	up := "../../" + strings.TrimPrefix(device, "sys/")
	b.link("sys/class/infiniband/"+hca, up+"/infiniband/"+hca)
	b.link("sys/class/net/"+name, up+"/net/"+name)
}

// Interface makes a network interface without a PCI device.
func (b *Box) Interface(name, state string) {
	b.file("sys/devices/virtual/net/"+name+"/operstate", state)
	b.file("sys/devices/virtual/net/"+name+"/speed", "-1")
	b.link("sys/class/net/"+name, "../../devices/virtual/net/"+name)
}

// Management returns the box's NVML, by go-nvml.
func (b *Box) Management() (cuda.Management, error) {
	b.Server.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if r, lost := b.Lost[i]; lost {
			return nil, r
		}
		return b.Server.Devices[i], nvml.SUCCESS
	}
	for i := range b.Server.Devices {
		b.wire(i)
	}
	return gonvml.New(b.Server)
}

// wire fills in what the mock leaves out of a GPU.
func (b *Box) wire(i int) {
	d := b.Device(i)
	number := func(peer nvml.Device) int {
		return slices.IndexFunc(b.Server.Devices, func(o nvml.Device) bool { return o == peer })
	}
	d.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pciInfo(d.PciBusID), nvml.SUCCESS }
	d.GetNvLinkStateFunc = func(l int) (nvml.EnableState, nvml.Return) {
		if len(b.Links[i]) == 0 {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		if l >= len(b.Links[i]) {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetNvLinkVersionFunc = func(l int) (uint32, nvml.Return) {
		for v := range uint32(16) {
			if cuda.LinkVersion(v) == b.Links[i][l].Version {
				return v, nvml.SUCCESS
			}
		}
		return 0, nvml.ERROR_UNKNOWN
	}
	d.GetNvLinkRemoteDeviceTypeFunc = func(l int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return nvml.IntNvLinkDeviceType(b.Links[i][l].Remote), nvml.SUCCESS
	}
	d.GetNvLinkRemotePciInfoFunc = func(l int) (nvml.PciInfo, nvml.Return) {
		return pciInfo(b.Links[i][l].Bus), nvml.SUCCESS
	}
	d.GetP2PStatusFunc = func(peer nvml.Device, what nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
		p := b.Path(i, number(peer))
		switch what {
		case nvml.P2P_CAPS_INDEX_NVLINK:
			return nvml.GpuP2PStatus(p.NVLink), nvml.SUCCESS
		case nvml.P2P_CAPS_INDEX_READ:
			return nvml.GpuP2PStatus(p.Read), nvml.SUCCESS
		}
		return nvml.GpuP2PStatus(p.Write), nvml.SUCCESS
	}
	d.GetTopologyCommonAncestorFunc = func(peer nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
		level := b.Path(i, number(peer)).Level
		if level == cuda.LevelUnknown {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		return nvml.GpuTopologyLevel(level), nvml.SUCCESS
	}
	if len(b.Parts[i]) > 0 {
		d.MigMode = nvml.DEVICE_MIG_ENABLE
	}
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(n int) (nvml.Device, nvml.Return) {
		if n >= len(b.Parts[i]) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{GetUUIDFunc: func() (string, nvml.Return) { return b.Parts[i][n], nvml.SUCCESS }}, nvml.SUCCESS
	}
}

func pciInfo(address string) (p nvml.PciInfo) {
	if _, err := fmt.Sscanf(address, "%x:%x:%x.0", &p.Domain, &p.Bus, &p.Device); err != nil {
		p.Bus = 1 << 16 // no address
	}
	return p
}

// driver is the CUDA of a box.
type driver struct {
	cuda.Driver
	box *Box
}

func (d driver) Version() int { return d.box.Server.CudaDriverVersion }

func (d driver) Devices() (list []cuda.DeviceInfo, err error) {
	for ordinal, i := range d.box.Visible {
		device := d.box.Device(i)
		info := cuda.DeviceInfo{Ordinal: ordinal, Name: device.Config.Name, Bus: device.PciBusID,
			Memory: int64(device.MemoryInfo.Total), Major: device.Config.CudaMajor, Minor: device.Config.CudaMinor}
		name := strings.TrimPrefix(device.UUID, "GPU-")
		if parts := d.box.Parts[i]; len(parts) > 0 {
			name = strings.TrimPrefix(parts[0], "MIG-")
		}
		uuid, err := hex.DecodeString(strings.ReplaceAll(name, "-", ""))
		if err != nil {
			return nil, err
		}
		copy(info.UUID[:], uuid)
		list = append(list, info)
	}
	return list, nil
}

func (d driver) CanAccess(device, peer int) (bool, error) {
	return d.box.Access(d.box.Visible[device], d.box.Visible[peer]), nil
}

// Sources returns what topology.Scan reads of the box.
func (b *Box) Sources() topology.Sources {
	return topology.Sources{
		Root: b.Root, Getenv: func(name string) string { return b.Env[name] },
		OpenManagement: b.Management, OpenDriver: func() (cuda.Driver, error) { return driver{box: b}, nil },
	}
}
