// Package topology describes where the ranks of a communicator run: on which host, in
// which process, on which NUMA nodes and CPUs, beside which GPUs.
//
// It examines this process (Local), converts the result for other ranks (Encode, Decode) and compares the places of all
// of them (Topology). It starts nothing, measures nothing and does not communicate.
package topology

import (
	"slices"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// Place describes the machine and process of one rank.
type Place struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`    // name, for messages
	HostID string `json:"host_id"` // ranks with equal ids share memory
	PID    int    `json:"pid"`
	NUMA   []int  `json:"numa,omitempty"` // nodes of the CPUs below, ascending
	CPUs   int    `json:"cpus"`           // that this process may run on, limited by its CPU quota
	Cores  int    `json:"cores"`          // physical cores of the host; 0 if unknown
	CPUSet string `json:"cpu_set"`        // that this process may run on, such as "0-3,8"
	GPUs   []GPU  `json:"gpus,omitempty"` // that the rank uses; filled in by a caller that knows devices
}

// GPU is a device that a rank uses.
type GPU struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	PCI     string `json:"pci"`     // bus id, such as 0000:3b:00.0
	Ordinal int    `json:"ordinal"` // in its process
	NUMA    int    `json:"numa"`    // -1 if unknown
}

// Limits of an encoded place.
const (
	maxText    = 255
	maxCPUSet  = 32 << 10 // enough for every other one of 8,192 CPUs, the most that Linux has
	maxNUMA    = 1024
	maxGPUs    = 64
	maxEncoded = 1 << 20
	version    = 3
)

func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	return s
}

// Encode returns the place as bytes for Decode. Names longer than 255 bytes are cut, and sets of CPUs of over 32 KiB.
func (p Place) Encode() []byte {
	var w wire.Writer
	w.U8(version)
	w.U32(uint32(int32(p.Rank)))
	w.String(cut(p.Host))
	w.String(cut(p.HostID))
	w.U32(uint32(p.PID))
	w.U32(uint32(p.CPUs))
	w.U32(uint32(p.Cores))
	w.String(p.CPUSet[:min(len(p.CPUSet), maxCPUSet)])
	nodes := p.NUMA[:min(len(p.NUMA), maxNUMA)]
	w.U16(uint16(len(nodes)))
	for _, n := range nodes {
		w.U16(uint16(n))
	}
	gpus := p.GPUs[:min(len(p.GPUs), maxGPUs)]
	w.U16(uint16(len(gpus)))
	for _, g := range gpus {
		w.String(cut(g.UUID))
		w.String(cut(g.Name))
		w.String(cut(g.PCI))
		w.U32(uint32(int32(g.Ordinal)))
		w.U32(uint32(int32(g.NUMA)))
	}
	return w.B
}

// Decode reads what Encode wrote. The error has code Protocol.
func Decode(b []byte) (Place, error) {
	if len(b) > maxEncoded {
		return Place{}, plugin.Errorf(plugin.Protocol, "a place has %d bytes, want at most %d", len(b), maxEncoded)
	}
	r := wire.NewReader(b)
	if v := r.U8(); v != version {
		r.Fail("a place of version %d, this is version %d", v, version)
	}
	number := func(least int) int {
		v := int(int32(r.U32()))
		if v < least {
			r.Fail("%d in a place, at least %d", v, least)
		}
		return v
	}
	var p Place
	p.Rank = number(-1)
	p.Host, p.HostID = r.String(maxText), r.String(maxText)
	p.PID, p.CPUs, p.Cores = number(0), number(0), number(0)
	p.CPUSet = r.String(maxCPUSet)
	for range r.Count(maxNUMA, 2) {
		p.NUMA = append(p.NUMA, int(r.U16()))
	}
	if !slices.IsSorted(p.NUMA) {
		r.Fail("NUMA nodes out of order")
	}
	for range r.Count(maxGPUs, 14) {
		p.GPUs = append(p.GPUs, GPU{UUID: r.String(maxText), Name: r.String(maxText), PCI: r.String(maxText),
			Ordinal: number(-1), NUMA: number(-1)})
	}
	if err := r.End(); err != nil {
		return Place{}, plugin.Errorf(plugin.Protocol, "place of a rank: %w", err)
	}
	return p, nil
}
