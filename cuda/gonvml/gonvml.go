// Package gonvml is cuda.Management over NVIDIA/go-nvml, for the command line, plugins in processes of their own and
// tests.
//
// It may not be linked into libshunt.so: go-nvml leaves NVML's functions unresolved until they are called, and a
// library made so does not load where all symbols are bound at once, as Python's ctypes does. cuda.OpenManagement
// serves there.
package gonvml

import (
	"os"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Open finds NVML, libnvidia-ml.so.1.
func Open() (cuda.Management, error) { return Load("libnvidia-ml.so.1") }

// Load opens NVML by its path.
func Load(path string) (cuda.Management, error) {
	if _, err := os.Stat(path); strings.Contains(path, "/") && err != nil { // Init does not say so
		return nil, plugin.Errorf(plugin.Unsupported, "no NVML: %w", err)
	}
	return New(nvml.New(nvml.WithLibraryPath(path)))
}

// New initializes a library of go-nvml, such as one of its mocks of whole machines.
func New(library nvml.Interface) (cuda.Management, error) {
	switch r := library.Init(); r {
	case nvml.SUCCESS:
		return management{library}, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND: // Init does not say why it could not be opened
		return nil, plugin.Errorf(plugin.Unsupported, "no NVML: libnvidia-ml.so.1 cannot be opened; it comes with the NVIDIA driver")
	default:
		return nil, plugin.Errorf(plugin.Unsupported, "no NVML: nvmlInit: %s", r.Error())
	}
}

type management struct{ library nvml.Interface }

func (m management) Close() error { return m.error("nvmlShutdown", m.library.Shutdown()) }

// has reports whether NVML has a function. go-nvml calls what is missing all the same, which ends the process.
func (m management) has(function string) bool {
	return m.library.Extensions().LookupSymbol(function) == nil
}

// error returns the error of a call; nil for success.
func (m management) error(call string, r nvml.Return) error {
	if r == nvml.SUCCESS {
		return nil
	}
	return plugin.Errorf(plugin.Device, "%s: %s", call, r.Error())
}

func (m management) DriverVersion() (string, error) {
	if !m.has("nvmlSystemGetDriverVersion") {
		return "", m.error("nvmlSystemGetDriverVersion", nvml.ERROR_FUNCTION_NOT_FOUND)
	}
	version, r := m.library.SystemGetDriverVersion()
	return version, m.error("nvmlSystemGetDriverVersion", r)
}

func (m management) GPUs() ([]cuda.ManagedGPU, error) {
	count, r := m.library.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, m.error("nvmlDeviceGetCount", r)
	}
	gpus := make([]cuda.ManagedGPU, count)
	for index := range gpus {
		d, r := m.library.DeviceGetHandleByIndex(index)
		err := m.error("nvmlDeviceGetHandleByIndex", r)
		if err == nil {
			gpus[index], err = m.describe(d)
		}
		if err != nil {
			gpus[index] = cuda.ManagedGPU{Index: index, Problem: err.Error()}
		}
	}
	return gpus, nil
}

func (m management) GPU(uuid string) (cuda.ManagedGPU, error) {
	d, mig, err := m.device(uuid)
	if err != nil {
		return cuda.ManagedGPU{}, err
	}
	if mig {
		return cuda.ManagedGPU{Index: -1, UUID: uuid, MIG: true}, nil
	}
	return m.describe(d)
}

// describe returns NVML's description of a GPU.
func (m management) describe(d nvml.Device) (g cuda.ManagedGPU, err error) {
	var pci nvml.PciInfo
	for _, ask := range []struct {
		call string
		ask  func() nvml.Return
	}{
		{"nvmlDeviceGetIndex", func() (r nvml.Return) { g.Index, r = d.GetIndex(); return r }},
		{"nvmlDeviceGetUUID", func() (r nvml.Return) { g.UUID, r = d.GetUUID(); return r }},
		{"nvmlDeviceGetName", func() (r nvml.Return) { g.Name, r = d.GetName(); return r }},
		{"nvmlDeviceGetPciInfo", func() (r nvml.Return) { pci, r = d.GetPciInfo(); return r }},
		{"nvmlDeviceGetCudaComputeCapability", func() (r nvml.Return) {
			g.Major, g.Minor, r = d.GetCudaComputeCapability()
			return r
		}},
	} {
		if err := m.error(ask.call, ask.ask()); err != nil {
			return cuda.ManagedGPU{}, err
		}
	}
	g.Bus = cuda.SystemBus(pci.Domain, pci.Bus, pci.Device)
	if memory, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
		g.Memory = int64(memory.Total)
	}
	g.Links = m.links(d)
	m.describeMIG(d, &g)
	return g, nil
}

func (m management) links(d nvml.Device) (links []cuda.ManagedLink) {
	versions, ends := m.has("nvmlDeviceGetNvLinkVersion"), m.has("nvmlDeviceGetNvLinkRemoteDeviceType")
	remotes := m.has("nvmlDeviceGetNvLinkRemotePciInfo_v2")
	for number := range cuda.MaxNVLinks {
		state, r := d.GetNvLinkState(number)
		if r == nvml.ERROR_INVALID_ARGUMENT || (r == nvml.ERROR_NOT_SUPPORTED && number == 0) {
			break // no such link, or no NVLink at all
		}
		if r != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue // also a link that its board does not have
		}
		l := cuda.ManagedLink{Number: number, Remote: cuda.LinkEndUnknown}
		if versions {
			if version, r := d.GetNvLinkVersion(number); r == nvml.SUCCESS {
				l.Version = cuda.LinkVersion(version)
			}
		}
		if ends {
			if end, r := d.GetNvLinkRemoteDeviceType(number); r == nvml.SUCCESS {
				l.Remote = cuda.LinkEnd(end)
			}
		}
		if remotes {
			if pci, r := d.GetNvLinkRemotePciInfo(number); r == nvml.SUCCESS {
				l.Bus = cuda.SystemBus(pci.Domain, pci.Bus, pci.Device)
			}
		}
		links = append(links, l)
	}
	return links
}

func (m management) describeMIG(d nvml.Device, g *cuda.ManagedGPU) {
	if !m.has("nvmlDeviceGetMigMode") {
		return
	}
	if mode, _, r := d.GetMigMode(); r != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return
	}
	g.MIG = true
	if !m.has("nvmlDeviceGetMaxMigDeviceCount") || !m.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return
	}
	count, r := d.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return
	}
	for i := range count {
		part, r := d.GetMigDeviceHandleByIndex(i)
		if r != nvml.SUCCESS || len(g.MIGDevices) == cuda.MaxMIGDevices {
			continue
		}
		if uuid, r := part.GetUUID(); r == nvml.SUCCESS {
			g.MIGDevices = append(g.MIGDevices, uuid)
		}
	}
}

func (m management) Path(device, peer string) (cuda.Path, error) {
	a, migA, err := m.device(device)
	if err != nil {
		return cuda.Path{}, err
	}
	b, migB, err := m.device(peer)
	if err != nil {
		return cuda.Path{}, err
	}
	if migA || migB {
		return cuda.MIGPath(), nil
	}
	status := func(what nvml.GpuP2PCapsIndex) cuda.PeerStatus {
		s, r := a.GetP2PStatus(b, what)
		if r != nvml.SUCCESS {
			return cuda.PeerUnknown
		}
		return cuda.PeerStatus(s)
	}
	path := cuda.Path{
		NVLink: status(nvml.P2P_CAPS_INDEX_NVLINK), Read: status(nvml.P2P_CAPS_INDEX_READ),
		Write: status(nvml.P2P_CAPS_INDEX_WRITE), Level: cuda.LevelUnknown,
	}
	if level, r := a.GetTopologyCommonAncestor(b); r == nvml.SUCCESS {
		path.Level = cuda.Level(level)
	}
	return path, nil
}

// device finds a device. CUDA does not say whether a UUID is that of a MIG device.
func (m management) device(uuid string) (d nvml.Device, mig bool, err error) {
	d, r := m.library.DeviceGetHandleByUUID(uuid)
	if number, whole := strings.CutPrefix(uuid, "GPU-"); whole && r == nvml.ERROR_NOT_FOUND {
		if part, found := m.library.DeviceGetHandleByUUID("MIG-" + number); found == nvml.SUCCESS {
			return part, true, nil
		}
	}
	if r != nvml.SUCCESS {
		return nil, false, m.error("nvmlDeviceGetHandleByUUID of "+uuid, r)
	}
	return d, strings.HasPrefix(uuid, "MIG-"), nil
}
