package cudatest

import (
	"slices"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Management is NVML in memory: a machine whose GPUs are joined as the test says.
type Management struct {
	Devices []cuda.ManagedGPU
	// PathOf is the way from one GPU to another, by position; nil: NVLink where links lead, and access everywhere.
	PathOf func(device, peer int) cuda.Path
	// Closed counts the calls of Close.
	Closed atomic.Int32
}

var _ cuda.Management = (*Management)(nil)

// NewManagement returns a machine with the GPUs of a Driver with the given number of devices.
// links(a, b) NVLinks join a and b; those of nil lead to a switch, 18 of each GPU.
func NewManagement(devices int, links func(a, b int) int) *Management {
	infos, _ := New(Options{Devices: devices}).Devices()
	m := &Management{}
	for _, d := range infos {
		m.Devices = append(m.Devices, cuda.ManagedGPU{Index: d.Ordinal, UUID: d.UUIDString(), Name: d.Name, Bus: d.Bus,
			Memory: d.Memory, Major: d.Major, Minor: d.Minor})
	}
	for i := range m.Devices {
		d := &m.Devices[i]
		if links == nil {
			for n := range 18 {
				d.Links = append(d.Links, cuda.ManagedLink{Number: n, Version: "4.0", Remote: cuda.LinkEndSwitch,
					Bus: "0000:c0:00.0"})
			}
			continue
		}
		for j := range m.Devices {
			for range links(i, j) {
				d.Links = append(d.Links, cuda.ManagedLink{Number: len(d.Links), Version: "2.0", Remote: cuda.LinkEndGPU,
					Bus: m.Devices[j].Bus})
			}
		}
	}
	return m
}

// Close counts.
func (m *Management) Close() error {
	m.Closed.Add(1)
	return nil
}

// DriverVersion returns a version.
func (m *Management) DriverVersion() (string, error) { return "580.00", nil }

// GPUs returns the Devices.
func (m *Management) GPUs() ([]cuda.ManagedGPU, error) { return slices.Clone(m.Devices), nil }

func (m *Management) find(uuid string) (int, error) {
	i := slices.IndexFunc(m.Devices, func(d cuda.ManagedGPU) bool { return d.UUID == uuid })
	if i < 0 {
		return 0, plugin.Errorf(plugin.Device, "nvmlDeviceGetHandleByUUID of %s: Not Found", uuid)
	}
	return i, nil
}

// GPU returns one of the Devices.
func (m *Management) GPU(uuid string) (cuda.ManagedGPU, error) {
	i, err := m.find(uuid)
	if err != nil {
		return cuda.ManagedGPU{}, err
	}
	return m.Devices[i], nil
}

// Path returns what PathOf says.
func (m *Management) Path(device, peer string) (cuda.Path, error) {
	a, err := m.find(device)
	if err != nil {
		return cuda.Path{}, err
	}
	b, err := m.find(peer)
	if err != nil {
		return cuda.Path{}, err
	}
	if m.PathOf != nil {
		return m.PathOf(a, b), nil
	}
	p := cuda.Path{NVLink: cuda.PeerNotSupported, Level: cuda.LevelSystem}
	for _, l := range m.Devices[a].Links {
		if l.Remote == cuda.LinkEndSwitch || l.Bus == m.Devices[b].Bus {
			p.NVLink = cuda.PeerOK
		}
	}
	return p, nil
}
