// Package topoview shows the topology of a machine to people: as text with a matrix like that of nvidia-smi topo -m,
// and as a picture.
package topoview

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/host/topology"
)

// Text writes the machine as text.
func Text(w io.Writer, m *topology.Machine) error {
	var b strings.Builder
	host(&b, m)
	gpus(&b, m)
	adapters(&b, m)
	if table := Matrix(m); len(table) > 1 {
		b.WriteByte('\n')
		writeTable(&b, table)
		legend(&b, m)
	}
	access(&b, m)
	_, err := io.WriteString(w, b.String())
	return err
}

func host(b *strings.Builder, m *topology.Machine) {
	fmt.Fprintf(b, "host %s: CPUs %s", m.Host, orUnknown(m.CPUs))
	if m.Cores > 0 {
		fmt.Fprintf(b, ", %s", count(m.Cores, "core"))
	}
	if m.Driver != "" {
		fmt.Fprintf(b, ", NVIDIA driver %s", m.Driver)
	}
	b.WriteByte('\n')
	c := m.Container
	fmt.Fprintf(b, "this process: CPUs %s", orUnknown(c.CPUSet))
	if c.CPUQuota > 0 {
		fmt.Fprintf(b, ", time of %d", c.CPUQuota)
	}
	if c.Kind != "" {
		fmt.Fprintf(b, ", in a container (%s)", c.Kind)
	}
	if c.VisibleDevices != "" {
		fmt.Fprintf(b, ", CUDA_VISIBLE_DEVICES=%s", c.VisibleDevices)
	}
	b.WriteByte('\n')
	for _, n := range m.NUMA {
		fmt.Fprintf(b, "NUMA node %d: CPUs %s", n.ID, orUnknown(n.CPUs))
		if n.Memory > 0 {
			fmt.Fprintf(b, ", %s", size(n.Memory))
		}
		b.WriteByte('\n')
	}
}

func gpus(b *strings.Builder, m *topology.Machine) {
	for i, g := range m.GPUs {
		fmt.Fprintf(b, "%s: ", GPUName(m, i))
		if g.Problem != "" {
			fmt.Fprintf(b, "unknown: %s\n", g.Problem)
			continue
		}
		fmt.Fprintf(b, "%s %s at %s", g.Name, g.UUID, g.PCI)
		if g.Memory > 0 {
			fmt.Fprintf(b, ", %s", size(g.Memory))
		}
		fmt.Fprintf(b, ", compute capability %s", g.Capability)
		switch {
		case g.Ordinal < 0:
			b.WriteString(", not visible to CUDA")
		case g.Ordinal != g.Index && g.Index >= 0:
			fmt.Fprintf(b, ", CUDA device %d", g.Ordinal)
		}
		for _, l := range links(m, g) {
			fmt.Fprintf(b, ", %s", l)
		}
		if g.MIG {
			fmt.Fprintf(b, "; MIG is on: %s", count(len(g.MIGDevices), "MIG device"))
		}
		b.WriteByte('\n')
	}
	if len(m.Switches) > 0 {
		fmt.Fprintf(b, "%s: %s\n", count(len(m.Switches), "NVSwitch", "NVSwitches"), strings.Join(m.Switches, ", "))
	}
	if len(m.GPUs) == 0 {
		fmt.Fprintf(b, "no GPU: %s\n", strings.Join(m.Problems, "; "))
		return
	}
	for _, p := range m.Problems {
		fmt.Fprintf(b, "not known: %s\n", p)
	}
}

// links returns a GPU's NVLinks in words: those to switches together.
func links(m *topology.Machine, g topology.MachineGPU) (list []string) {
	numbers := map[string]int{}
	for _, l := range g.NVLinks {
		text := " × NVLink"
		if l.Version != "" {
			text += " " + l.Version
		}
		switch l.To {
		case "switch":
			text += " to NVSwitch"
		case "gpu":
			text += " to " + gpuAt(m, l.PCI)
		case "cpu":
			text += " to the CPU"
		}
		if numbers[text] == 0 {
			list = append(list, text)
		}
		numbers[text] += l.Links
	}
	for i, text := range list {
		list[i] = strconv.Itoa(numbers[text]) + text
	}
	return list
}

func gpuAt(m *topology.Machine, pci string) string {
	i := slices.IndexFunc(m.GPUs, func(g topology.MachineGPU) bool { return g.PCI == pci })
	if i < 0 {
		return "a GPU at " + orUnknown(pci)
	}
	return GPUName(m, i)
}

func adapters(b *strings.Builder, m *topology.Machine) {
	for i, n := range m.NICs {
		fmt.Fprintf(b, "NIC%d: %s", i, strings.Join(ports(n), ", "))
		if n.PCI != "" {
			fmt.Fprintf(b, " at %s", n.PCI)
		} else {
			b.WriteString(", virtual")
		}
		if n.NUMA >= 0 {
			fmt.Fprintf(b, ", NUMA %d", n.NUMA)
		}
		b.WriteByte('\n')
	}
}

// ports returns an adapter's ports, in words.
func ports(n topology.NIC) (list []string) {
	for _, h := range n.InfiniBand {
		words := []string{h.Name}
		for _, p := range h.Ports {
			text := fmt.Sprintf("(port %d: %s", p.Number, orUnknown(p.Link))
			if p.Rate > 0 {
				text += ", " + rate(p.Rate)
			}
			words = append(words, text+", "+orUnknown(strings.ToLower(p.State))+")")
		}
		list = append(list, strings.Join(words, " "))
	}
	for _, i := range n.Interfaces {
		text := i.Name + " (" + i.State
		if i.Speed > 0 {
			text += ", " + rate(i.Speed)
		}
		list = append(list, text+")")
	}
	return list
}

// GPUName returns the name of a GPU in matrices: GPU and its index.
func GPUName(m *topology.Machine, i int) string {
	if index := m.GPUs[i].Index; index >= 0 {
		return "GPU" + strconv.Itoa(index)
	}
	return "GPU" + strconv.Itoa(i)
}

// Matrix returns the matrix of nvidia-smi topo -m: a header, and a row for each GPU with a column for each GPU and
// each PCI network adapter.
func Matrix(m *topology.Machine) [][]string {
	if len(m.GPUs) == 0 {
		return nil
	}
	header := []string{""}
	for i := range m.GPUs {
		header = append(header, GPUName(m, i))
	}
	var cards []int
	for n, nic := range m.NICs {
		if nic.PCI != "" {
			cards = append(cards, n)
			header = append(header, "NIC"+strconv.Itoa(n))
		}
	}
	table := [][]string{append(header, "CPU affinity", "NUMA")}
	for i, g := range m.GPUs {
		row := []string{GPUName(m, i)}
		for j := range m.GPUs {
			if i == j {
				row = append(row, "X")
			} else {
				row = append(row, m.GPUPaths[i][j].Kind())
			}
		}
		for _, n := range cards {
			row = append(row, string(m.NICPaths[i][n]))
		}
		table = append(table, append(row, g.CPUs, node(g.NUMA)))
	}
	return table
}

func node(n int) string {
	if n < 0 {
		return "N/A"
	}
	return strconv.Itoa(n)
}

func writeTable(b *strings.Builder, table [][]string) {
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for c, cell := range row {
			widths[c] = max(widths[c], len(cell))
		}
	}
	for _, row := range table {
		cells := make([]string, len(row))
		for c, cell := range row {
			cells[c] = fmt.Sprintf("%-*s", widths[c], cell)
		}
		b.WriteString(strings.TrimRight(strings.Join(cells, "  "), " ") + "\n")
	}
}

// kinds are the entries of matrices, in the words of nvidia-smi.
var kinds = []struct{ kind, means string }{
	{"X", "itself"},
	{"NV#", "# NVLinks carry traffic between the two"},
	{"PIX", "at most one PCIe bridge"},
	{"PXB", "several PCIe bridges, no host bridge"},
	{"PHB", "PCIe and a host bridge, typically the CPU"},
	{"NODE", "PCIe and the way between host bridges of a NUMA node"},
	{"SYS", "PCIe and the way between NUMA nodes"},
	{"?", "not known"},
}

func legend(b *strings.Builder, m *topology.Machine) {
	var seen []string
	for _, row := range Matrix(m)[1:] {
		for _, cell := range row[1 : len(row)-2] {
			if strings.HasPrefix(cell, "NV") {
				cell = "NV#"
			}
			seen = append(seen, cell)
		}
	}
	b.WriteByte('\n')
	for _, k := range kinds {
		if slices.Contains(seen, k.kind) {
			fmt.Fprintf(b, "%-4s  %s\n", k.kind, k.means)
		}
	}
}

// access says which GPUs do not reach each other's memory.
func access(b *strings.Builder, m *topology.Machine) {
	if len(m.GPUs) < 2 {
		return
	}
	b.WriteByte('\n')
	pairs := 0
	for i := range m.GPUs {
		for j := range i {
			if p := m.GPUPaths[i][j]; p.Access != topology.AccessYes {
				pairs++
				word := "no peer access"
				if p.Access == topology.AccessUnknown {
					word = "unknown peer access"
				}
				fmt.Fprintf(b, "%s between %s and %s: %s\n", word, GPUName(m, j), GPUName(m, i), orUnknown(p.Why))
			}
		}
	}
	if pairs == 0 {
		b.WriteString("all GPUs reach each other's memory\n")
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// count returns a number and a noun.
func count(n int, noun ...string) string {
	switch {
	case n == 1:
		return "1 " + noun[0]
	case len(noun) > 1:
		return fmt.Sprintf("%d %s", n, noun[1])
	}
	return fmt.Sprintf("%d %ss", n, noun[0])
}

// size returns an amount of memory, rounded down.
func size(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// rate returns a speed given in Mb/s.
func rate(megabits int) string {
	if megabits >= 1000 {
		return strconv.FormatFloat(float64(megabits)/1000, 'f', -1, 64) + " Gb/s"
	}
	return fmt.Sprintf("%d Mb/s", megabits)
}
