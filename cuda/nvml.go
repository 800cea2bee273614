package cuda

// #include "toolkit.h"
// #include <stdlib.h>
import "C"

import (
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Management is NVML: how devices are linked.
type Management struct{}

var openManagement = sync.OnceValues(func() (*Management, error) { return loadManagement("libnvidia-ml.so.1") })

// OpenManagement finds NVML, libnvidia-ml.so.1.
func OpenManagement() (*Management, error) { return openManagement() }

func loadManagement(path string) (*Management, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.sm_load(name, &message[0], C.size_t(len(message))) != 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "no NVML: %s", C.GoString(&message[0]))
	}
	return &Management{}, nil
}

// Link says how two devices are connected.
type Link struct {
	NVLink   bool // traffic between them goes over NVLink
	Links    int  // NVLinks of the first that are up
	Distance int  // NVML's topology level: 0 one board, 10 one switch, 30 one CPU's PCIe, 40 one CPU, 50 across CPUs
}

// Link describes the path between two devices, named by UUID as in
// DeviceInfo.UUIDString.
func (m *Management) Link(device, peer string) (Link, error) {
	a, err := m.device(device)
	if err != nil {
		return Link{}, err
	}
	b, err := m.device(peer)
	if err != nil {
		return Link{}, err
	}
	var links, status, level C.int
	for _, call := range []struct {
		name string
		r    C.int
	}{
		{"nvmlDeviceGetNvLinkState", C.sm_links(a, &links)},
		{"nvmlDeviceGetP2PStatus", C.sm_peer_status(a, b, &status)},
		{"nvmlDeviceGetTopologyCommonAncestor", C.sm_distance(a, b, &level)},
	} {
		if call.r != 0 {
			return Link{}, plugin.Errorf(plugin.Device, "%s of %s and %s: %s", call.name, device, peer,
				C.GoString(C.sm_error(call.r)))
		}
	}
	return Link{NVLink: status == 0, Links: int(links), Distance: int(level)}, nil
}

func (m *Management) device(uuid string) (unsafe.Pointer, error) {
	name := C.CString(uuid)
	defer C.free(unsafe.Pointer(name))
	var device unsafe.Pointer
	if r := C.sm_device(name, &device); r != 0 {
		return nil, plugin.Errorf(plugin.Device, "nvmlDeviceGetHandleByUUID of %s: %s", uuid, C.GoString(C.sm_error(r)))
	}
	return device, nil
}
