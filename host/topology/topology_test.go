package topology

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/shunt-ccl/shunt/plugin/environment/environmenttest"
)

func sample() Place {
	return Place{
		Rank: 3, Host: "node-1", HostID: "abc", PID: 4711, NUMA: []int{0, 2}, CPUs: 6, Cores: 8, CPUSet: "0-3,8,10",
		GPUs: []GPU{{UUID: "GPU-1", Name: "H200", PCI: "0000:3b:00.0", Ordinal: 1, NUMA: -1}},
	}
}

func TestEncodeDecode(t *testing.T) {
	for _, p := range []Place{{}, sample(), Local()} {
		got, err := Decode(p.Encode())
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v became %+v, %v", p, got, err)
		}
	}
	b := sample().Encode()
	for n := range b {
		if _, err := Decode(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(b))
		}
	}
	if _, err := Decode(append(b, 0)); err == nil {
		t.Error("a byte too many was accepted")
	}
	long := Place{Host: strings.Repeat("h", 1000), NUMA: make([]int, 5000), GPUs: make([]GPU, 100)}
	if _, err := Decode(long.Encode()); err != nil {
		t.Errorf("a place beyond the limits: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(sample().Encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(p.Encode())
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Fatalf("%+v became %+v, %v", p, again, err)
		}
	})
}

func TestPathsAreEncoded(t *testing.T) {
	row := []Path{SamePath(), {NVLinks: 18, PCIe: SYS, Access: AccessYes},
		{PCIe: Unknown, Access: AccessUnknown, Why: "no NVML"}, {PCIe: NODE, Access: AccessNo, Why: strings.Repeat("w", 1000)}}
	b := EncodePaths(row)
	got, err := DecodePaths(b, len(row))
	row[3].Why = row[3].Why[:200]
	if err != nil || !reflect.DeepEqual(got, row) {
		t.Errorf("%+v became %+v, %v", row, got, err)
	}
	for n := range b {
		if _, err := DecodePaths(b[:n], len(row)); err == nil {
			t.Errorf("%d of %d bytes were accepted", n, len(b))
		}
	}
	for _, world := range []int{0, 3, 5} {
		if _, err := DecodePaths(b, world); err == nil {
			t.Errorf("%d paths were taken for %d", len(row), world)
		}
	}
}

// A path that another rank describes may name any distance and access.
func TestPathsOutOfBounds(t *testing.T) {
	for distance := range 256 {
		for _, access := range []int{0, len(accesses) - 1, len(accesses), 255} {
			row, err := DecodePaths([]byte{18, 0, byte(distance), byte(access), 0, 0}, 1)
			if known := distance < len(allDistances) && access < len(accesses); (err == nil) != known {
				t.Errorf("distance %d and access %d became %+v, %v", distance, access, row, err)
			}
		}
	}
}

// What another rank says of its place is checked: its numbers are not negative where that means nothing, and its nodes
// ascend.
func TestPlacesOutOfBounds(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Place)
		good   bool
	}{
		"the same":           {func(*Place) {}, true},
		"rank -1":            {func(p *Place) { p.Rank = -1 }, true},
		"rank -2":            {func(p *Place) { p.Rank = -2 }, false},
		"pid -1":             {func(p *Place) { p.PID = -1 }, false},
		"CPUs":               {func(p *Place) { p.CPUs = -1 }, false},
		"cores":              {func(p *Place) { p.Cores = -1 }, false},
		"ascending nodes":    {func(p *Place) { p.NUMA = []int{0, 1, 4} }, true},
		"nodes out of order": {func(p *Place) { p.NUMA = []int{0, 4, 1} }, false},
		"ordinal -1":         {func(p *Place) { p.GPUs[0].Ordinal = -1 }, true},
		"ordinal -2":         {func(p *Place) { p.GPUs[0].Ordinal = -2 }, false},
		"node -2 of a GPU":   {func(p *Place) { p.GPUs[0].NUMA = -2 }, false},
	} {
		p := sample()
		test.change(&p)
		if got, err := Decode(p.Encode()); (err == nil) != test.good {
			t.Errorf("%s: became %+v, %v", name, got, err)
		}
	}
}

func FuzzDecodePaths(f *testing.F) {
	f.Add(EncodePaths([]Path{SamePath(), {NVLinks: 18, PCIe: SYS, Access: AccessYes, Why: "w"}}), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, world uint8) {
		row, err := DecodePaths(b, int(world))
		if err != nil {
			return
		}
		again, err := DecodePaths(EncodePaths(row), int(world))
		if err != nil || !reflect.DeepEqual(row, again) {
			t.Fatalf("%+v became %+v, %v", row, again, err)
		}
	})
}

// The worst pair, in either direction, decides for all ranks; ranks of one GPU have every ability.
func TestWorstPathsDecide(t *testing.T) {
	good := Path{NVLinks: 18, PCIe: SYS, Access: AccessYes}
	of := func(change func(rows [][]Path)) *Topology {
		var places []Place
		var rows [][]Path
		for _, uuid := range []string{"a", "b", "c", "a"} {
			places = append(places, Place{HostID: "x", GPUs: []GPU{{UUID: uuid, PCI: "bus " + uuid}}})
			rows = append(rows, []Path{good, good, good, good})
		}
		rows[0][3], rows[3][0] = SamePath(), SamePath() // without NVLink
		change(rows)
		top := New(places)
		top.SetPaths(rows)
		for a := range top.Paths {
			for b := range top.Paths {
				if top.Paths[a][b] != top.Paths[b][a] {
					t.Errorf("paths %d to %d are not alike", a, b)
				}
			}
		}
		return top
	}
	for name, c := range map[string]struct {
		change func([][]Path)
		nvlink bool
		reason string
	}{
		"all":               {func([][]Path) {}, true, ""},
		"one way by PCIe":   {func(rows [][]Path) { rows[2][1].NVLinks = 0 }, false, ""},
		"one way no access": {func(rows [][]Path) { rows[3][2] = Path{NVLinks: 1, Access: AccessNo, Why: "so"} }, true, "GPU bus c of rank 2 and GPU bus a of rank 3 do not reach each other's memory: so"},
		"unknown":           {func(rows [][]Path) { rows[0][1].Access = AccessUnknown }, true, ""},
	} {
		top := of(c.change)
		reason, found := top.NoPeerAccess()
		if top.NVLink() != c.nvlink || reason != c.reason || found != (c.reason != "") {
			t.Errorf("%s: NVLink %v, %q", name, top.NVLink(), reason)
		}
	}
	if New([]Place{{}, {}}).NVLink() {
		t.Error("paths at which nobody looked have NVLink")
	}
}

func FuzzParseList(f *testing.F) {
	for _, s := range []string{"0-3,8", "", "5", "3-1", "0-65535", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := parseList(s)
		if err == nil && len(list) > maxList {
			t.Fatalf("%d numbers", len(list))
		}
	})
}

func TestLists(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "0-2,5\n": {0, 1, 2, 5}} {
		got, err := parseList(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if back := formatList(got); back != strings.TrimSpace(text) {
			t.Errorf("%q written back as %q", text, back)
		}
	}
	for _, bad := range []string{"-", "1-", "2-1", "a", "0,,1", "70000", "0-65535,0-65535"} {
		if _, err := parseList(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestLocal(t *testing.T) {
	p := Local()
	if p.PID != os.Getpid() || p.CPUs < 1 || p.Host == "" || len(p.HostID) != 32 || p.CPUSet == "" {
		t.Errorf("%+v", p)
	}
	if again := Local(); again.HostID != p.HostID {
		t.Errorf("host %s, then %s", p.HostID, again.HostID)
	}
	environmenttest.Set(t, "SHUNT_HOST_ID", "other")
	if q := Local(); q.Host != "other" || q.HostID == p.HostID {
		t.Errorf("with SHUNT_HOST_ID: %+v", q)
	}
	long := strings.Repeat("x", maxText)
	t.Setenv("SHUNT_HOST_ID", long+"y")
	one := Local()
	t.Setenv("SHUNT_HOST_ID", long+"z")
	if two := Local(); one.HostID == two.HostID || len(two.HostID) > maxText || len(two.Host) > maxText {
		t.Errorf("two long identities: %q and %q", one.HostID, two.HostID)
	}
}

func TestSystemFiles(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{
		"sys/devices/system/node/online":                            file("0-2\n"),
		"sys/devices/system/node/node0/cpulist":                     file("0-3\n"),
		"sys/devices/system/node/node1/cpulist":                     file("4-7\n"),
		"sys/devices/system/node/node2/cpulist":                     file("\n"),
		"sys/devices/system/cpu/online":                             file("0-3\n"),
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list": file("0,2\n"),
		"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": file("1,3\n"),
		"sys/devices/system/cpu/cpu2/topology/thread_siblings_list": file("0,2\n"),
		"sys/devices/system/cpu/cpu3/topology/thread_siblings_list": file("1,3\n"),
		"proc/self/cgroup":                                          file("9:memory:/y\n4:cpu,cpuacct:/x\n0::/a/b\n"),
		"sys/fs/cgroup/a/b/cpu.max":                                 file("max 100000\n"),
		"sys/fs/cgroup/a/cpu.max":                                   file("350000 100000\n"),
		"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us":              file("-1\n"),
		"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us":             file("100000\n"),
	}
	for _, c := range []struct{ cpus, want []int }{{[]int{3, 4}, []int{0, 1}}, {[]int{5}, []int{1}}, {[]int{0}, []int{0}},
		{[]int{8}, nil}} {
		if got := nodesOf(root, c.cpus); !reflect.DeepEqual(got, c.want) {
			t.Errorf("nodes %v of CPUs %v, want %v", got, c.cpus, c.want)
		}
	}
	if got := cores(root); got != 2 {
		t.Errorf("%d cores", got)
	}
	if got := quota(root); got != 4 {
		t.Errorf("quota of %d CPUs", got)
	}
	for _, c := range []struct {
		file, text string
		want       Limits
	}{
		{"memory/memory.limit_in_bytes", "9223372036854771712\n", Limits{CPUs: 3.5}},
		{"a/memory.max", "max\n", Limits{CPUs: 3.5}},
		{"memory/y/memory.limit_in_bytes", "8589934592\n", Limits{3.5, 8 << 30}},
		{"memory.max", "4294967296\n", Limits{3.5, 4 << 30}},
		{"a/memory.max", "5368709120\n", Limits{3.5, 4 << 30}},
		{"cpu,cpuacct/cpu.cfs_quota_us", "50000\n", Limits{3.5, 4 << 30}}, // without a period
		{"cpu,cpuacct/cpu.cfs_period_us", "100000\n", Limits{0.5, 4 << 30}},
	} {
		root["sys/fs/cgroup/"+c.file] = file(c.text)
		if got := ControlGroups(root); got != c.want {
			t.Errorf("with %s: %+v, want %+v", c.file, got, c.want)
		}
	}
	if empty := (fstest.MapFS{}); cores(empty) != 0 || nodesOf(empty, []int{0}) != nil ||
		ControlGroups(empty) != (Limits{}) || quota(empty) <= most {
		t.Error("something was found in nothing")
	}
}

// The controllers of a group of version 1 are a list in any order. Its folder has the list's name, or that in another
// order, or one controller's.
func TestControllersInAnyOrder(t *testing.T) {
	for _, list := range []string{"cpu", "cpu,cpuacct", "cpuacct,cpu", "cpuacct,cpu,cpuset", "memory,cpu"} {
		for _, folder := range []string{list, "cpu", "cpu,cpuacct"} {
			for _, group := range []string{"/", "/a/"} {
				root := fstest.MapFS{"proc/self/cgroup": {Data: []byte("5:pids:/\n4:" + list + ":/a/b\n")},
					"sys/fs/cgroup/" + folder + group + "cpu.cfs_quota_us":  {Data: []byte("150000\n")},
					"sys/fs/cgroup/" + folder + group + "cpu.cfs_period_us": {Data: []byte("100000\n")}}
				if got := ControlGroups(root); got.CPUs != 1.5 {
					t.Errorf("%s in %s%s: %+v", list, folder, group, got)
				}
			}
		}
	}
	for _, folder := range []string{"memory,cpu", "memory"} {
		root := fstest.MapFS{"proc/self/cgroup": {Data: []byte("4:memory,cpu:/a/b\n")},
			"sys/fs/cgroup/" + folder + "/a/memory.limit_in_bytes": {Data: []byte("4096\n")}}
		if got := ControlGroups(root); got.Memory != 4096 {
			t.Errorf("memory in %s: %+v", folder, got)
		}
	}
	root := fstest.MapFS{"proc/self/cgroup": {Data: []byte("4:cpuset,cpuacct:/\n")},
		"sys/fs/cgroup/cpuset,cpuacct/cpu.cfs_quota_us":  {Data: []byte("150000\n")},
		"sys/fs/cgroup/cpuset,cpuacct/cpu.cfs_period_us": {Data: []byte("100000\n")}}
	if got := ControlGroups(root); got != (Limits{}) {
		t.Errorf("another controller limits CPUs: %+v", got)
	}
}

func TestTopology(t *testing.T) {
	place := func(host, set string, cpus int) Place {
		return Place{Host: "name of " + host, HostID: host, PID: 1, CPUSet: set, CPUs: cpus}
	}
	top := New([]Place{place("a", "0-1", 2), place("b", "0-3", 4), place("a", "0-1", 2), place("a", "0-1", 2),
		place("a", "4", 1), place("b", "0-3", 1)})
	if got := top.Hosts(); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("hosts %v", got)
	}
	if got := top.LocalRanks(2); !reflect.DeepEqual(got, []int{0, 2, 3, 4}) {
		t.Errorf("local ranks %v", got)
	}
	if top.SameHost(0, 1) || !top.SameHost(0, 4) || !top.SameProcess(0, 2) || top.SameProcess(0, 1) {
		t.Error("hosts or processes confused")
	}
	// Ranks 0, 2 and 3 share two CPUs; rank 4 has its own; 1 and 5 share four, of which a quota leaves one.
	for rank, want := range []bool{true, true, true, true, false, true} {
		if got := top.Oversubscribed(rank); got != want {
			t.Errorf("rank %d: oversubscribed %v", rank, got)
		}
	}
	text := top.String()
	for _, want := range []string{"host 0: name of a, ranks 0,2-4\n", "rank 4: pid 1, 1 CPUs of set 4\n",
		"more ranks than CPUs"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	b, err := json.Marshal(top)
	if err != nil || !strings.Contains(string(b), `"cpu_set":"0-3"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// Where every other CPU of a large host is one socket's, ranks that are bound to a socket know all of its CPUs.
func TestLongSetsOfCPUsStayWhole(t *testing.T) {
	var cpus []int
	for c := 0; c < 8192; c += 2 {
		cpus = append(cpus, c)
	}
	p, err := Decode(Place{HostID: "x", CPUSet: formatList(cpus), CPUs: len(cpus)}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	places := slices.Repeat([]Place{p}, len(cpus))
	if New(places).Oversubscribed(0) {
		t.Errorf("%d ranks on %d CPUs count as too many", len(places), len(cpus))
	}
	if !New(append(places, places[0])).Oversubscribed(0) {
		t.Errorf("%d ranks on %d CPUs do not count as too many", len(places)+1, len(cpus))
	}
}

// As many places as a file may have, each with a set of its own, take moments. Where every rank's set was
// searched for each CPU of every other rank's, that had no end in 20 s.
func TestManySetsOfCPUs(t *testing.T) {
	var places []Place
	for r := range maxMachineNICs {
		places = append(places, Place{HostID: "x", CPUSet: fmt.Sprintf("%d-%d", r, 8191-r%100), CPUs: 8192})
	}
	done := make(chan bool)
	go func() {
		top := New(places)
		done <- top.Class() == "host" && !strings.Contains(top.String(), "more ranks than CPUs")
	}()
	select {
	case fine := <-done:
		if !fine {
			t.Error("ranks are crowded on more CPUs than ranks")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("no end in 2 minutes")
	}
}

func TestSharedGPUIsFound(t *testing.T) {
	gpu := func(host string, uuids ...string) Place {
		p := Place{HostID: host}
		for _, u := range uuids {
			p.GPUs = append(p.GPUs, GPU{UUID: u})
		}
		return p
	}
	if a, b, _, ok := New([]Place{gpu("x", "1"), gpu("x", "2"), gpu("y", "1"), {HostID: "x"}}).SharedGPU(); ok {
		t.Errorf("ranks %d and %d share nothing", a, b)
	}
	a, b, g, ok := New([]Place{gpu("x", "1"), gpu("x", "2"), gpu("x", "3", "2")}).SharedGPU()
	if !ok || a != 1 || b != 2 || g.UUID != "2" {
		t.Errorf("%d and %d, %v, %v", a, b, g, ok)
	}
}

func TestNodeOfPCI(t *testing.T) {
	root := fstest.MapFS{
		"sys/bus/pci/devices/0000:3b:00.0/numa_node": {Data: []byte("1\n")},
		"sys/bus/pci/devices/0000:5e:00.0/numa_node": {Data: []byte("-1\n")},
	}
	for address, want := range map[string]int{"0000:3B:00.0": 1, "0000:5e:00.0": -1, "0000:99:00.0": -1, "../../x": -1,
		"": -1} {
		if got := NodeOfPCI(root, address); got != want {
			t.Errorf("%q is at node %d, want %d", address, got, want)
		}
	}
}
