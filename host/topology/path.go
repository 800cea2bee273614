package topology

import (
	"fmt"
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
)

// Distance is the distance of two devices of a machine over PCIe, in the terms of nvidia-smi topo.
type Distance string

// Distances, from near to far.
const (
	PIX     Distance = "PIX"  // at most one PCIe bridge
	PXB     Distance = "PXB"  // several PCIe bridges, no host bridge
	PHB     Distance = "PHB"  // a PCIe host bridge, typically the CPU
	NODE    Distance = "NODE" // between host bridges of one NUMA node
	SYS     Distance = "SYS"  // between NUMA nodes
	Unknown Distance = "?"
)

// allDistances lists the distances from near to far.
var allDistances = []Distance{PIX, PXB, PHB, NODE, SYS, Unknown}

// distances are NVML's levels.
var distances = map[cuda.Level]Distance{cuda.LevelBoard: PIX, cuda.LevelSwitch: PIX, cuda.LevelSwitches: PXB,
	cuda.LevelHostBridge: PHB, cuda.LevelNode: NODE, cuda.LevelSystem: SYS}

// Access says whether two GPUs reach each other's memory.
type Access string

// Accesses.
const (
	AccessYes     Access = "yes"
	AccessNo      Access = "no"
	AccessUnknown Access = "unknown"
)

// Path is the way between two GPUs, alike in both directions: what works in one direction alone does not count.
type Path struct {
	NVLinks int      `json:"nvlinks"` // that carry traffic between the two; 0: none, or it is not known
	PCIe    Distance `json:"pcie"`
	Access  Access   `json:"access"`        // to each other's memory
	Why     string   `json:"why,omitempty"` // why there is no access, or that nothing is known
}

// Kind returns the path as nvidia-smi topo names it: NV and the number of links, or the distance.
func (p Path) Kind() string {
	if p.NVLinks > 0 {
		return fmt.Sprintf("NV%d", p.NVLinks)
	}
	return string(p.PCIe)
}

// SamePath returns the path of a GPU to itself, or to another process's use of it.
func SamePath() Path { return Path{PCIe: PIX, Access: AccessYes} }

// UnknownPath returns a path about which nothing is known.
func UnknownPath(why error) Path {
	return Path{PCIe: Unknown, Access: AccessUnknown, Why: why.Error()}
}

// CanAccess is the CUDA driver's statement on a device's access to another's memory; nil where it does not see both.
type CanAccess *bool

// Toward returns the way from a GPU to one at a PCI address, from what NVML says and, which goes first, CUDA.
func Toward(gpu *cuda.ManagedGPU, peer string, path cuda.Path, can CanAccess) Path {
	if gpu.MIG {
		path, can = cuda.MIGPath(), nil
	}
	p := Path{PCIe: Unknown}
	if d, known := distances[path.Level]; known {
		p.PCIe = d
	}
	if path.NVLink == cuda.PeerOK {
		p.NVLinks = linksTo(gpu, peer)
	}
	p.Access, p.Why = access(path, can)
	if gpu.MIG {
		p.Why = "a MIG device reaches no other device's memory"
	}
	return p
}

// access returns whether one device reaches the other's memory, and if not, why.
func access(path cuda.Path, can CanAccess) (Access, string) {
	switch {
	case can != nil && *can:
		return AccessYes, ""
	case can != nil:
		return AccessNo, "the CUDA driver allows none"
	case path.Read != cuda.PeerOK && path.Read != cuda.PeerUnknown:
		return AccessNo, path.Read.String()
	case path.Write != cuda.PeerOK && path.Write != cuda.PeerUnknown:
		return AccessNo, path.Write.String()
	case path.Read == cuda.PeerUnknown || path.Write == cuda.PeerUnknown:
		return AccessUnknown, "NVML does not say"
	}
	return AccessYes, ""
}

// linksTo counts the NVLinks of a GPU that carry traffic to another one, of which NVML says that there are some: those
// that lead there, or else to switches, as those do of which it does not say where they lead.
func linksTo(gpu *cuda.ManagedGPU, peer string) int {
	direct, switched := 0, 0
	for _, l := range gpu.Links {
		switch {
		case l.Remote == cuda.LinkEndCPU:
		case l.Bus == peer:
			direct++
		case l.Remote != cuda.LinkEndGPU || l.Bus == "":
			switched++
		}
	}
	if direct > 0 {
		return direct
	}
	return switched
}

// accesses lists the kinds of access from worse to better.
var accesses = []Access{AccessNo, AccessUnknown, AccessYes}

// Both returns the path that two directions make: as good as the worse of them.
func Both(there, back Path) Path {
	p := there
	p.NVLinks = min(there.NVLinks, back.NVLinks)
	if slices.Index(allDistances, back.PCIe) > slices.Index(allDistances, p.PCIe) {
		p.PCIe = back.PCIe
	}
	if slices.Index(accesses, back.Access) < slices.Index(accesses, p.Access) {
		p.Access, p.Why = back.Access, back.Why
	}
	return p
}

// pciDistance returns the distance of two PCI devices, each given by the bridges from the host bridge to the device and
// by its NUMA node, -1 if unknown.
func pciDistance(a, b []string, nodeA, nodeB int) Distance {
	if len(a) == 0 || len(b) == 0 {
		return Unknown
	}
	common := 0
	for common < min(len(a), len(b)) && a[common] == b[common] {
		common++
	}
	switch {
	case common == 0 && (nodeA < 0 || nodeB < 0):
		return Unknown
	case common == 0 && nodeA == nodeB:
		return NODE
	case common == 0:
		return SYS
	case common == 1:
		return PHB // they have the host bridge in common
	case len(a)-common > 2 || len(b)-common > 2:
		return PXB // a bridge, and another one behind it
	}
	return PIX
}

// maxWhy bounds the reason in an encoded path.
const maxWhy = 200

// EncodePaths returns paths as bytes for DecodePaths. Long reasons are cut.
func EncodePaths(row []Path) []byte {
	var w wire.Writer
	for _, p := range row {
		w.U16(uint16(min(max(p.NVLinks, 0), math.MaxUint16)))
		w.U8(uint8(max(slices.Index(allDistances, p.PCIe), 0)))
		w.U8(uint8(max(slices.Index(accesses, p.Access), 0)))
		w.String(p.Why[:min(len(p.Why), maxWhy)])
	}
	return w.B
}

// DecodePaths reads what EncodePaths wrote of the given number of paths.
func DecodePaths(b []byte, world int) ([]Path, error) {
	r := wire.NewReader(b)
	row := make([]Path, world)
	for i := range row {
		row[i].NVLinks = int(r.U16())
		distance, access := int(r.U8()), int(r.U8())
		if distance >= len(allDistances) || access >= len(accesses) {
			r.Fail("path %d has distance %d and access %d", i, distance, access)
			break
		}
		row[i].PCIe, row[i].Access, row[i].Why = allDistances[distance], accesses[access], r.String(maxWhy)
	}
	return row, r.End()
}
