package topology

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// NUMANode is a node of the machine's memory.
type NUMANode struct {
	ID        int    `json:"id"`
	CPUs      string `json:"cpus"`      // logical CPUs, such as "0-3,8"
	Memory    int64  `json:"memory"`    // bytes; 0 if unknown
	Distances []int  `json:"distances"` // to each node of the list, as the firmware says; 10 is to itself
}

// NIC is a network adapter: a PCI function, or an interface without one, such as a container's.
type NIC struct {
	PCI        string      `json:"pci,omitempty"` // empty: virtual
	NUMA       int         `json:"numa"`          // -1 if unknown
	Interfaces []Interface `json:"interfaces"`
	InfiniBand []HCA       `json:"infiniband"` // also Ethernet adapters that do RDMA
}

// Name returns the adapter's first InfiniBand device, or interface.
func (n NIC) Name() string {
	for _, h := range n.InfiniBand {
		return h.Name
	}
	for _, i := range n.Interfaces {
		return i.Name
	}
	return n.PCI
}

// Interface is a network interface.
type Interface struct {
	Name  string `json:"name"`
	Speed int    `json:"speed"` // Mb/s; 0 if unknown
	State string `json:"state"` // "up", "down", "unknown"
}

// HCA is an InfiniBand device, in the kernel's sense.
type HCA struct {
	Name  string    `json:"name"`
	Ports []HCAPort `json:"ports"`
}

// HCAPort is a port of an InfiniBand device.
type HCAPort struct {
	Number int    `json:"number"`
	State  string `json:"state"` // "ACTIVE", "DOWN"
	Rate   int    `json:"rate"`  // Mb/s; 0 if unknown
	Link   string `json:"link"`  // "InfiniBand", "Ethernet"
}

// most bounds what is read of any list of /sys.
const most = 1024

// word returns a file of /sys without its line's end, empty if it cannot be read.
func word(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text[:min(len(text), 1<<16)]))
}

// number returns a file that holds a number, at least least and at most an int32's; otherwise missing.
func number(root fs.FS, name string, least, missing int) int {
	v, err := strconv.ParseInt(word(root, name), 10, 32)
	if err != nil || int(v) < least {
		return missing
	}
	return int(v)
}

// names returns the entries of a folder, in order.
func names(root fs.FS, dir string) (list []string) {
	entries, _ := fs.ReadDir(root, dir) // what could be read
	for _, e := range entries[:min(len(entries), most)] {
		list = append(list, e.Name())
	}
	slices.SortFunc(list, natural)
	return list
}

// natural orders names as people do: mlx5_2 before mlx5_10.
func natural(a, b string) int {
	cut := func(s string) (string, int) {
		stem := strings.TrimRight(s, "0123456789")
		n, _ := strconv.Atoi(s[len(stem):])
		return stem, n
	}
	stemA, numberA := cut(a)
	stemB, numberB := cut(b)
	return cmp.Or(cmp.Compare(stemA, stemB), cmp.Compare(numberA, numberB), cmp.Compare(a, b))
}

// numaNodes lists the nodes of memory.
func numaNodes(root fs.FS) []NUMANode {
	nodes := []NUMANode{}
	const base = "sys/devices/system/node"
	ids, err := parseList(word(root, base+"/online"))
	if err != nil {
		return nodes
	}
	for _, id := range ids[:min(len(ids), most)] {
		dir := fmt.Sprintf("%s/node%d", base, id)
		n := NUMANode{ID: id, CPUs: word(root, dir+"/cpulist"), Distances: []int{}}
		for line := range strings.Lines(word(root, dir+"/meminfo")) {
			fields := strings.Fields(line) // Node 0 MemTotal: 1056429048 kB
			if len(fields) == 5 && fields[2] == "MemTotal:" {
				if kib, err := strconv.ParseInt(fields[3], 10, 52); err == nil && kib >= 0 {
					n.Memory = kib << 10
				}
			}
		}
		for _, d := range strings.Fields(word(root, dir+"/distance")) {
			if v, err := strconv.ParseUint(d, 10, 16); err == nil && len(n.Distances) < most {
				n.Distances = append(n.Distances, int(v))
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

var hostBridge = regexp.MustCompile(`^pci[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}$`)

// bridges returns the host bridge and what follows it on the way to a device that /sys links to, the PCI device last;
// empty if the device is none of PCI's.
func bridges(root fs.FS, link string) (list []string) {
	target, err := fs.ReadLink(root, link)
	if err != nil {
		return nil
	}
	for part := range strings.SplitSeq(path.Clean(target), "/") {
		switch {
		case hostBridge.MatchString(part):
			list = []string{part}
		case len(list) > 0 && pciAddress.MatchString(part):
			list = append(list, strings.ToLower(part))
		}
	}
	if len(list) < 2 {
		return nil
	}
	return list
}

// pciBridges returns the bridges of a PCI device.
func pciBridges(root fs.FS, address string) []string {
	if !pciAddress.MatchString(address) {
		return nil
	}
	return bridges(root, "sys/bus/pci/devices/"+strings.ToLower(address))
}

// nics lists the network adapters: those of PCI in the order of their names, then the others.
func nics(root fs.FS) []NIC {
	list := []NIC{}
	// of is the adapter that an entry of /sys belongs to.
	of := func(link string) *NIC {
		n := NIC{NUMA: -1, Interfaces: []Interface{}, InfiniBand: []HCA{}}
		if way := bridges(root, link); way != nil {
			n.PCI = way[len(way)-1]
			if i := slices.IndexFunc(list, func(known NIC) bool { return known.PCI == n.PCI }); i >= 0 {
				return &list[i]
			}
			n.NUMA = NodeOfPCI(root, n.PCI)
		}
		list = append(list, n)
		return &list[len(list)-1]
	}
	const ofNetwork, ofInfiniBand = "sys/class/net", "sys/class/infiniband"
	for _, name := range names(root, ofInfiniBand) {
		dir := path.Join(ofInfiniBand, name)
		h := HCA{Name: name, Ports: []HCAPort{}}
		for _, port := range names(root, dir+"/ports") {
			n, err := strconv.ParseUint(port, 10, 16)
			if err != nil {
				continue
			}
			at := path.Join(dir, "ports", port)
			_, state, _ := strings.Cut(word(root, at+"/state"), ": ") // 4: ACTIVE
			h.Ports = append(h.Ports, HCAPort{Number: int(n), State: state, Rate: rate(word(root, at+"/rate")),
				Link: word(root, at+"/link_layer")})
		}
		n := of(dir)
		n.InfiniBand = append(n.InfiniBand, h)
	}
	for _, name := range names(root, ofNetwork) {
		dir := path.Join(ofNetwork, name)
		if name == "lo" || word(root, dir+"/operstate") == "" {
			continue // also files that are no interfaces, such as bonding_masters
		}
		n := of(dir)
		n.Interfaces = append(n.Interfaces, Interface{Name: name, Speed: number(root, dir+"/speed", 0, 0),
			State: word(root, dir+"/operstate")})
	}
	slices.SortStableFunc(list, func(a, b NIC) int {
		if (a.PCI == "") != (b.PCI == "") {
			return cmp.Compare(b.PCI, a.PCI) // virtual ones last
		}
		return cmp.Or(natural(a.Name(), b.Name()), cmp.Compare(a.PCI, b.PCI))
	})
	return list
}

// rate reads "400 Gb/sec (4X NDR)", in Mb/s; 0 if it is not that.
func rate(text string) int {
	value, unit, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || !(v >= 0 && v < 1e6) || !strings.HasPrefix(unit, "Gb/sec") {
		return 0
	}
	return int(v * 1000)
}
