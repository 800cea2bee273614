package topology

import "strings"

// Class names what measured costs hold for. On GPUs it is their name and how those of a host are joined, such as
// h200-nvlink or a100-sxm4-80gb-pcie; -shared where ranks share a GPU. Without GPUs it is host, or host-crowded where
// some rank's host has more ranks than CPUs. It is the same on all ranks.
func (t *Topology) Class() string {
	name := ""
	for _, p := range t.Places {
		if len(p.GPUs) != 1 {
			return t.hostClass()
		}
		switch own := shortName(p.GPUs[0].Name); name {
		case "", own:
			name = own
		default:
			name = "mixed"
		}
	}
	switch _, _, _, shared := t.SharedGPU(); {
	case shared:
		return name + "-shared"
	case t.Paths == nil || t.World() == 1: // hosts are a key of their own
		return name
	case t.NVLink():
		return name + "-nvlink"
	}
	return name + "-pcie"
}

func (t *Topology) hostClass() string {
	sets := cpuSets{}
	for rank := range t.Places {
		if t.oversubscribed(rank, sets) {
			return "host-crowded"
		}
	}
	return "host"
}

// shortName returns a GPU's name in lower case and without the maker: NVIDIA H100 80GB HBM3 is h100-80gb-hbm3.
func shortName(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	if len(words) > 1 && words[0] == "nvidia" {
		words = words[1:]
	}
	if len(words) == 0 {
		return "gpu"
	}
	return strings.Join(words, "-")
}
