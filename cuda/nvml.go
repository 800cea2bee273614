package cuda

// #include "toolkit.h"
// #include <stdlib.h>
import "C"

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// management is the Management of a table of dlsym. There is one table a process.
type management struct{}

var loadedManagement = sync.OnceValue(func() error { return loadManagement("libnvidia-ml.so.1") })

// OpenManagement finds NVML, libnvidia-ml.so.1, and initializes it. The caller closes it.
func OpenManagement() (Management, error) {
	if err := loadedManagement(); err != nil {
		return nil, err
	}
	return newManagement()
}

func newManagement() (Management, error) {
	if r := C.sm_open(); r != 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "no NVML: nvmlInit: %s", C.GoString(C.sm_error(r)))
	}
	return management{}, nil
}

func loadManagement(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.sm_load(name, &message[0], C.size_t(len(message))) != 0 {
		return plugin.Errorf(plugin.Unsupported, "no NVML: %s", C.GoString(&message[0]))
	}
	return nil
}

func (management) Close() error { return managementError("nvmlShutdown", C.sm_close()) }

func managementError(call string, r C.int) error {
	if r == 0 {
		return nil
	}
	return plugin.Errorf(plugin.Device, "%s: %s", call, C.GoString(C.sm_error(r)))
}

func (management) DriverVersion() (string, error) {
	var version [C.SM_TEXT]C.char
	if r := C.sm_driver(&version[0], C.SM_TEXT); r != 0 {
		return "", managementError("nvmlSystemGetDriverVersion", r)
	}
	return C.GoString(&version[0]), nil
}

func (management) GPUs() ([]ManagedGPU, error) {
	var count C.uint
	if r := C.sm_count(&count); r != 0 {
		return nil, managementError("nvmlDeviceGetCount", r)
	}
	gpus := make([]ManagedGPU, 0, count)
	for index := range int(count) {
		var device unsafe.Pointer
		var g ManagedGPU
		r := C.sm_at(C.uint(index), &device)
		err := managementError("nvmlDeviceGetHandleByIndex", r)
		if r == 0 {
			g, err = describe(device)
		}
		if err != nil {
			g = ManagedGPU{Index: index, Problem: err.Error()}
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

func (m management) GPU(uuid string) (ManagedGPU, error) {
	device, mig, err := m.device(uuid)
	if err != nil {
		return ManagedGPU{}, err
	}
	if mig {
		return ManagedGPU{Index: -1, UUID: uuid, MIG: true}, nil
	}
	return describe(device)
}

func describe(device unsafe.Pointer) (ManagedGPU, error) {
	var raw C.sm_gpu
	C.sm_describe(device, &raw)
	if raw.failed != 0 {
		return ManagedGPU{}, managementError(C.GoString(raw.call), raw.failed)
	}
	g := ManagedGPU{
		Index: int(raw.index), UUID: C.GoString(&raw.uuid[0]), Name: C.GoString(&raw.name[0]),
		Bus:    SystemBus(uint32(raw.domain), uint32(raw.bus), uint32(raw.device)),
		Memory: int64(raw.memory), Major: int(raw.major), Minor: int(raw.minor), MIG: raw.mig != 0,
	}
	for _, l := range raw.link[:raw.links] {
		link := ManagedLink{Number: int(l.number), Version: LinkVersion(uint32(l.version)), Remote: LinkEnd(l.remote)}
		if l.known != 0 {
			link.Bus = SystemBus(uint32(l.domain), uint32(l.bus), uint32(l.device))
		}
		g.Links = append(g.Links, link)
	}
	for i := range raw.mig_device[:raw.mig_devices] {
		g.MIGDevices = append(g.MIGDevices, C.GoString(&raw.mig_device[i][0]))
	}
	return g, nil
}

func (m management) Path(device, peer string) (Path, error) {
	a, migA, err := m.device(device)
	if err != nil {
		return Path{}, err
	}
	b, migB, err := m.device(peer)
	if err != nil {
		return Path{}, err
	}
	if migA || migB {
		return MIGPath(), nil
	}
	var nvlink, read, write, level C.int
	C.sm_path(a, b, &nvlink, &read, &write, &level)
	return Path{PeerStatus(nvlink), PeerStatus(read), PeerStatus(write), Level(level)}, nil
}

// device finds a device. CUDA does not say whether a UUID is that of a MIG device.
func (management) device(uuid string) (device unsafe.Pointer, mig bool, err error) {
	find := func(uuid string) C.int {
		name := C.CString(uuid)
		defer C.free(unsafe.Pointer(name))
		return C.sm_device(name, &device)
	}
	r := find(uuid)
	if number, whole := strings.CutPrefix(uuid, "GPU-"); whole && r == C.SM_NOT_FOUND && find("MIG-"+number) == 0 {
		return device, true, nil
	}
	if r != 0 {
		return nil, false, managementError("nvmlDeviceGetHandleByUUID of "+uuid, r)
	}
	return device, strings.HasPrefix(uuid, "MIG-"), nil
}
