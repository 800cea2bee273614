package cuda

import "fmt"

// Management has the functions of NVML, NVIDIA's management library, that Shunt uses. OpenManagement finds them by
// dlsym; package gonvml implements it over NVIDIA/go-nvml, for programs that may link it. Devices are named by UUID, as
// DeviceInfo.UUIDString and NVML print it. Every error is a *plugin.Error.
type Management interface {
	// Close releases what NVML holds while it is open: a dozen descriptors on a machine of two GPUs, and memory. Every
	// open is closed once; the last ends what NVML returned.
	Close() error
	// DriverVersion is the version of the kernel driver, such as "580.95.05".
	DriverVersion() (string, error)
	// GPUs lists the machine's GPUs that this process may use, those too that CUDA_VISIBLE_DEVICES hides from CUDA.
	GPUs() ([]ManagedGPU, error)
	// GPU describes one of them, or a MIG device, of which only the UUID and that it is one are known.
	GPU(uuid string) (ManagedGPU, error)
	// Path describes the way from one device to another. MIG devices are valid.
	Path(device, peer string) (Path, error)
}

// ManagedGPU is a device as NVML describes it.
type ManagedGPU struct {
	Index        int    // NVML's and nvidia-smi's, which counts all GPUs of the machine or container; -1 for a MIG device
	Problem      string // why the rest is unknown: a GPU that has fallen off its bus, or that this process may not open
	UUID         string
	Name         string
	Bus          string // PCI address as in /sys, "0000:18:00.0"
	Memory       int64  // bytes
	Major, Minor int    // compute capability
	MIG          bool   // cut into MIG devices, or one of those
	MIGDevices   []string
	Links        []ManagedLink // NVLinks that are up
}

// ManagedLink is an NVLink of a device that is up.
type ManagedLink struct {
	Number  int
	Version string // "4.0"; empty if unknown
	Remote  LinkEnd
	Bus     string // PCI address of what is at the other end; empty if unknown
}

// LinkEnd is the kind of device at the other end of an NVLink. Values are NVML's.
type LinkEnd int

// Ends of NVLinks.
const (
	LinkEndGPU     LinkEnd = 0
	LinkEndCPU     LinkEnd = 1
	LinkEndSwitch  LinkEnd = 2
	LinkEndUnknown LinkEnd = 255
)

// Path is the way between two devices.
type Path struct {
	NVLink PeerStatus // whether traffic between them can use NVLink
	Read   PeerStatus // of the peer's memory
	Write  PeerStatus
	Level  Level // of the way over PCIe
}

// PeerStatus says whether something works between two devices, or why not. Values are NVML's.
type PeerStatus int

// Statuses.
const (
	PeerOK           PeerStatus = 0
	PeerChipset      PeerStatus = 1
	PeerGPU          PeerStatus = 2
	PeerIOH          PeerStatus = 3
	PeerRegistry     PeerStatus = 4
	PeerNotSupported PeerStatus = 5
	PeerUnknown      PeerStatus = 6
)

var peerStatuses = [...]string{"ok", "not supported by the chipset", "not supported by the GPU",
	"not supported between I/O hubs", "disabled in the driver's settings", "not supported", "unknown"}

func (s PeerStatus) String() string {
	if s < 0 || int(s) >= len(peerStatuses) {
		return fmt.Sprintf("NVML's status %d", int(s))
	}
	return peerStatuses[s]
}

// Level is the closest common ancestor of two devices on PCIe. Values are NVML's and grow with the distance.
type Level int

// Levels.
const (
	LevelBoard      Level = 0
	LevelSwitch     Level = 10 // one PCIe bridge
	LevelSwitches   Level = 20 // several PCIe bridges
	LevelHostBridge Level = 30
	LevelNode       Level = 40 // a NUMA node
	LevelSystem     Level = 50
	LevelUnknown    Level = -1
)

// MaxNVLinks bounds the links that are looked for; NVML 13 has up to 36.
const MaxNVLinks = 64

// MaxMIGDevices bounds the MIG devices of a GPU.
const MaxMIGDevices = 16

// linkVersions are the names of NVML's nvmlNvlinkVersion_t.
var linkVersions = [...]string{"", "1.0", "2.0", "2.2", "3.0", "3.1", "4.0", "5.0", "6.0"}

// LinkVersion returns the name of a version of NVLink, which NVML numbers; empty if it is none that is known.
func LinkVersion(number uint32) string {
	if int64(number) >= int64(len(linkVersions)) {
		return ""
	}
	return linkVersions[number]
}

// SystemBus returns a PCI address of NVML, "00000000:18:00.0", as /sys and CUDA write it: "0000:18:00.0".
func SystemBus(domain, bus, device uint32) string {
	if bus > 0xff || device > 0x1f {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, device)
}

// MIGPath returns the path between two devices of which one is a MIG device: they do not reach each other's memory.
func MIGPath() Path {
	return Path{NVLink: PeerNotSupported, Read: PeerNotSupported, Write: PeerNotSupported, Level: LevelUnknown}
}

// UnknownPath returns a path of which NVML says nothing.
func UnknownPath() Path {
	return Path{NVLink: PeerUnknown, Read: PeerUnknown, Write: PeerUnknown, Level: LevelUnknown}
}
