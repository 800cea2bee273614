package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/internal/affinity"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// Local returns the place of this process. Rank is 0 and GPUs are empty: the caller
// knows them. What the system does not tell stays zero; where it does not tell the CPUs
// that the process may run on, those are all that are online.
func Local() Place {
	p := Place{PID: os.Getpid(), CPUs: 1}
	p.Host, p.HostID = identity(environment.Get, os.DirFS("/"))
	cpus, err := affinity.Get()
	if err != nil {
		cpus, _ = parseList(word(os.DirFS("/"), "sys/devices/system/cpu/online"))
	}
	if len(cpus) > 0 {
		p.CPUSet = formatList(cpus)
		p.CPUs = min(len(cpus), quota(os.DirFS("/")))
		p.NUMA = nodesOf(os.DirFS("/"), cpus)
	}
	p.Cores = cores(os.DirFS("/"))
	return p
}

var hostname = os.Hostname // tests replace it

// identity returns the host's name and the id that ranks which share memory have in common: SHUNT_HOST_ID, or the
// kernel's boot, the network namespace and the host's name, so that containers which cannot pass each other descriptors
// count as hosts.
func identity(getenv func(string) string, root fs.FS) (name, id string) {
	name, err := hostname()
	if err != nil || name == "" {
		name = "unknown host"
	}
	if own := getenv("SHUNT_HOST_ID"); own != "" {
		if id = "user:" + own; len(id) > maxText {
			sum := sha256.Sum256([]byte(own))
			id = "user:" + hex.EncodeToString(sum[:16])
		}
		return cut(own), id
	}
	return name, digest(kernel(root) + "\n" + name)
}

// Kernel returns what processes have in common that can pass each other descriptors, whatever SHUNT_HOST_ID says.
func Kernel() string { return digest(kernel(os.DirFS("/"))) }

func kernel(root fs.FS) string {
	boot, err := fs.ReadFile(root, "proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte("no boot id")
	}
	network, err := fs.ReadLink(root, "proc/self/ns/net") // abstract sockets, which carry descriptors, belong to it
	if err != nil {
		network = "no namespace"
	}
	return strings.TrimSpace(string(boot)) + "\n" + network
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// nodesOf lists the NUMA nodes that the CPUs belong to.
func nodesOf(root fs.FS, cpus []int) []int {
	wanted := map[int]bool{}
	for _, c := range cpus {
		wanted[c] = true
	}
	text, err := fs.ReadFile(root, "sys/devices/system/node/online")
	if err != nil {
		return nil
	}
	nodes, err := parseList(string(text))
	if err != nil {
		return nil
	}
	var found []int
	for _, node := range nodes {
		text, err := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/node/node%d/cpulist", node))
		if err != nil {
			continue
		}
		list, err := parseList(string(text))
		if err != nil {
			continue
		}
		for _, c := range list {
			if wanted[c] {
				found = append(found, node)
				break
			}
		}
	}
	return found[:min(len(found), maxNUMA)]
}

// cores counts the physical cores of the host.
func cores(root fs.FS) int {
	text, err := fs.ReadFile(root, "sys/devices/system/cpu/online")
	if err != nil {
		return 0
	}
	cpus, err := parseList(string(text))
	if err != nil {
		return 0
	}
	seen := map[string]bool{}
	for _, c := range cpus {
		siblings, err := fs.ReadFile(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c))
		if err != nil {
			return len(cpus)
		}
		seen[string(siblings)] = true
	}
	return len(seen)
}

// quota returns the CPU time that the process's control group may use, in CPUs
// rounded up; MaxInt where there is no limit.
func quota(root fs.FS) int {
	if cpus := ControlGroups(root).CPUs; cpus > 0 {
		return max(1, int(math.Ceil(cpus)))
	}
	return math.MaxInt
}

// maxList bounds the numbers in a list of CPUs or nodes.
const maxList = 1 << 16

// parseList reads a list such as "0-3,8,10-11".
func parseList(text string) ([]int, error) {
	var list []int
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || b < a || len(list)+int(b-a)+1 > maxList {
			return nil, fmt.Errorf("list %.80q is malformed", text)
		}
		for v := a; v <= b; v++ {
			list = append(list, int(v))
		}
	}
	return list, nil
}

// formatList writes what parseList reads, from ascending numbers.
func formatList(list []int) string {
	var b strings.Builder
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if j > i {
			fmt.Fprintf(&b, "-%d", list[j])
		}
		i = j + 1
	}
	return b.String()
}

// NodeOfPCI returns the NUMA node that a PCI device, such as 0000:3b:00.0, is
// attached to, as the system under root says; -1 if it does not.
func NodeOfPCI(root fs.FS, address string) int {
	if !pciAddress.MatchString(address) {
		return -1
	}
	text, err := fs.ReadFile(root, path.Join("sys/bus/pci/devices", strings.ToLower(address), "numa_node"))
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || node < 0 || node > maxList {
		return -1
	}
	return node
}

var pciAddress = regexp.MustCompile(`^[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]$`)
