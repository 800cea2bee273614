package topology

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Costs of one class of machines are not used on another.
func TestClass(t *testing.T) {
	gpus := func(hosts string, names ...string) *Topology {
		var places []Place
		for rank, name := range names {
			g := GPU{Name: name, UUID: string(rune('a' + rank))}
			places = append(places, Place{HostID: hosts[rank : rank+1], CPUs: 8, GPUs: []GPU{g}})
		}
		return New(places)
	}
	joined := func(top *Topology, links int) *Topology {
		rows := make([][]Path, top.World())
		for a := range rows {
			for range top.World() {
				rows[a] = append(rows[a], Path{NVLinks: links, PCIe: PIX, Access: AccessYes})
			}
		}
		top.SetPaths(rows)
		return top
	}
	const h200 = "NVIDIA H200"
	shared := joined(gpus("aa", h200, h200), 0)
	shared.Places[1].GPUs[0].UUID = shared.Places[0].GPUs[0].UUID
	crowded := New([]Place{{HostID: "a", CPUs: 1, CPUSet: "0"}, {HostID: "a", CPUs: 1, CPUSet: "0"}})
	roomy := New([]Place{{HostID: "a", CPUs: 1, CPUSet: "0"}, {HostID: "a", CPUs: 1, CPUSet: "1"}})
	for want, top := range map[string]*Topology{
		"h200-nvlink":                 joined(gpus("aa", h200, h200), 18),
		"h200-pcie":                   joined(gpus("aa", h200, h200), 0),
		"mixed-nvlink":                joined(gpus("aaa", h200, "NVIDIA H100 80GB HBM3", h200), 18),
		"h100-80gb-hbm3":              gpus("ab", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
		"tesla-v100-sxm2-16gb-nvlink": joined(gpus("aa", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB"), 6),
		"gpu-pcie":                    joined(gpus("aa", "", strings.Repeat("-", 300)), 0),
		"h200-shared":                 shared,
		"host-crowded":                crowded,
		"host":                        roomy,
	} {
		require.Equal(t, want, top.Class())
	}
}
