package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// tree makes files and links, as "name -> target", in a real folder: what os.DirFS makes of /sys.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, isLink := cutLink(text); isLink {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func cutLink(text string) (string, bool) {
	if len(text) > 3 && text[:3] == "-> " {
		return text[3:], true
	}
	return "", false
}

func TestNICs(t *testing.T) {
	const pci = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00."
	root := tree(t, map[string]string{
		// Two ports of one adapter, each a function with an InfiniBand device; one is down.
		pci + "0/numa_node":                             "1\n",
		pci + "0/infiniband/mlx5_11/ports/1/state":      "4: ACTIVE\n",
		pci + "0/infiniband/mlx5_11/ports/1/rate":       "400 Gb/sec (4X NDR)\n",
		pci + "0/infiniband/mlx5_11/ports/1/link_layer": "InfiniBand\n",
		pci + "0/infiniband/mlx5_100/ports/10/state":    "1: DOWN\n",
		pci + "0/infiniband/mlx5_100/ports/9/state":     "1: DOWN\n",
		pci + "0/net/ib0/operstate":                     "up\n",
		pci + "0/net/ib0/speed":                         "400000\n",
		pci + "1/numa_node":                             "-1\n",
		pci + "1/infiniband/mlx5_9/ports/1/state":       "1: DOWN\n",
		pci + "1/infiniband/mlx5_9/ports/1/rate":        "2.5 Gb/sec (1X SDR)\n",
		pci + "1/infiniband/mlx5_9/ports/2/rate":        "fast\n",
		pci + "1/infiniband/mlx5_9/ports/readme":        "no port\n",
		"sys/bus/pci/devices/0000:01:00.0":              "-> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
		"sys/bus/pci/devices/0000:01:00.1":              "-> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.1",
		"sys/class/infiniband/mlx5_11":                  "-> ../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/infiniband/mlx5_11",
		"sys/class/infiniband/mlx5_100":                 "-> ../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/infiniband/mlx5_100",
		"sys/class/infiniband/mlx5_9":                   "-> ../../devices/pci0000:00/0000:00:01.0/0000:01:00.1/infiniband/mlx5_9",
		"sys/class/net/ib0":                             "-> ../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/ib0",
		// A virtual machine's interface is a device below the PCI function.
		"sys/devices/pci0000:00/0000:00:03.0/virtio1/net/eth0/operstate": "up\n",
		"sys/devices/pci0000:00/0000:00:03.0/virtio1/net/eth0/speed":     "-1\n",
		"sys/class/net/eth0": "-> ../../devices/pci0000:00/0000:00:03.0/virtio1/net/eth0",
		// What has no PCI function, what is no interface, and a link to nothing.
		"sys/devices/virtual/net/bond0/operstate": "down\n",
		"sys/class/net/bond0":                     "-> ../../devices/virtual/net/bond0",
		"sys/devices/virtual/net/lo/operstate":    "unknown\n",
		"sys/class/net/lo":                        "-> ../../devices/virtual/net/lo",
		"sys/class/net/bonding_masters":           "bond0\n",
		"sys/class/net/gone":                      "-> ../../devices/virtual/net/gone",
	})
	want := []NIC{
		{PCI: "0000:00:03.0", NUMA: -1, Interfaces: []Interface{{"eth0", 0, "up"}}, InfiniBand: []HCA{}},
		{PCI: "0000:01:00.1", NUMA: -1, Interfaces: []Interface{},
			InfiniBand: []HCA{{"mlx5_9", []HCAPort{{1, "DOWN", 2500, ""}, {2, "", 0, ""}}}}},
		{PCI: "0000:01:00.0", NUMA: 1, Interfaces: []Interface{{"ib0", 400000, "up"}},
			InfiniBand: []HCA{{"mlx5_11", []HCAPort{{1, "ACTIVE", 400000, "InfiniBand"}}},
				{"mlx5_100", []HCAPort{{9, "DOWN", 0, ""}, {10, "DOWN", 0, ""}}}}},
		{NUMA: -1, Interfaces: []Interface{{"bond0", 0, "down"}}, InfiniBand: []HCA{}},
	}
	if got := nics(os.DirFS(root)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if got := nics(os.DirFS(t.TempDir())); len(got) != 0 {
		t.Errorf("%+v without /sys", got)
	}
}

func TestNUMANodes(t *testing.T) {
	root := tree(t, map[string]string{
		"sys/devices/system/node/online":         "0,2\n",
		"sys/devices/system/node/node0/cpulist":  "0-3,8\n",
		"sys/devices/system/node/node0/meminfo":  "Node 0 MemTotal:       16777216 kB\nNode 0 MemFree:        1 kB\n",
		"sys/devices/system/node/node0/distance": "10 32\n",
		"sys/devices/system/node/node2/meminfo":  "Node 2 MemTotal: -1 kB\nNode 2 MemTotal: lots kB\n", // memory without CPUs
		"sys/devices/system/node/node2/distance": "32 far 10\n",
	})
	want := []NUMANode{{0, "0-3,8", 16 << 30, []int{10, 32}}, {2, "", 0, []int{32, 10}}}
	if got := numaNodes(os.DirFS(root)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Distances are those of nvidia-smi topo, in both directions.
func TestPCIDistance(t *testing.T) {
	const socket0, socket1, other = "pci0000:00", "pci0000:80", "pci0000:40"
	// Behind the first root port a switch with two GPUs, and behind its third port a switch with another one.
	const up = socket0 + "/0000:00:01.0/0000:01:00.0"
	devices := map[string]struct {
		way  string
		node int
	}{
		"a": {up + "/0000:02:00.0/0000:03:00.0", 0}, "b": {up + "/0000:02:01.0/0000:04:00.0", 0},
		"deep":      {up + "/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", 0},
		"function1": {up + "/0000:02:00.0/0000:03:00.1", 0},
		"port2":     {socket0 + "/0000:00:02.0/0000:08:00.0", 0},
		"near":      {other + "/0000:40:01.0/0000:41:00.0", 0}, "far": {socket1 + "/0000:80:01.0/0000:81:00.0", 1},
		"lost": {other + "1/0000:40:01.0/0000:42:00.0", -1},
	}
	files := map[string]string{}
	for _, d := range devices {
		address := filepath.Base(d.way)
		files["sys/devices/"+d.way+"/numa_node"] = fmt.Sprint(d.node)
		files["sys/bus/pci/devices/"+address] = "-> ../../../devices/" + d.way
	}
	root := os.DirFS(tree(t, files))
	for pair, want := range map[[2]string]Distance{
		{"a", "b"}: PIX, {"a", "function1"}: PIX, {"a", "deep"}: PXB, {"a", "port2"}: PHB, {"deep", "port2"}: PHB,
		{"a", "near"}: NODE, {"a", "far"}: SYS, {"near", "far"}: SYS, {"a", "lost"}: Unknown, {"a", "none"}: Unknown,
	} {
		way := func(name string) ([]string, int) {
			address := filepath.Base(devices[name].way)
			return pciBridges(root, address), NodeOfPCI(root, address)
		}
		a, nodeA := way(pair[0])
		b, nodeB := way(pair[1])
		if there, back := pciDistance(a, b, nodeA, nodeB), pciDistance(b, a, nodeB, nodeA); there != want || back != want {
			t.Errorf("%v: %s and back %s, want %s", pair, there, back, want)
		}
	}
}

// Between host bridges the distance is known if both NUMA nodes are; below one host bridge nodes do not count.
func TestPCIDistanceOfUnknownNodes(t *testing.T) {
	one, beside, other := []string{"pci0", "a"}, []string{"pci0", "b"}, []string{"pci1", "a"}
	for _, test := range []struct {
		b            []string
		nodeA, nodeB int
		want         Distance
	}{
		{other, 0, 0, NODE}, {other, 0, 1, SYS}, {other, 1, 1, NODE}, {other, 0, -1, Unknown}, {other, -1, 0, Unknown},
		{other, -1, -1, Unknown}, {beside, -1, -1, PHB}, {beside, 0, -1, PHB}, {beside, 0, 1, PHB}, {nil, 0, 0, Unknown},
	} {
		if there, back := pciDistance(one, test.b, test.nodeA, test.nodeB), pciDistance(test.b, one, test.nodeB,
			test.nodeA); there != test.want || back != test.want {
			t.Errorf("%+v: %s and back %s", test, there, back)
		}
	}
}
