package topoview

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/shunt-ccl/shunt/host/topology"
)

// Sizes of the picture, in pixels.
const (
	boxWidth   = 164
	gpuHeight  = 84
	nicHeight  = 50
	gap        = 14 // between boxes
	pad        = 16 // within and around groups
	lineHeight = 16
	fontSize   = 12
	charWidth  = 0.61 // of the font's size, for the widest of common fonts
	most       = 24   // adapters of a group that are drawn
	switchBar  = 34
)

var colors = struct{ text, muted, group, groupEdge, gpu, gpuEdge, nic, nicEdge, fabric, fabricEdge, pcie string }{
	"#1b1f24", "#57606a", "#f6f8fa", "#d0d7de", "#ddf4e4", "#2da44e", "#ddf0ff", "#218bff", "#fff3d6", "#bf8700",
	"#8c959f",
}

// linkColors are the colors of bundles of NVLinks that join GPUs, from few to many.
var linkColors = []string{"#d4a72c", "#bc4c00", "#8250df", "#cf222e", "#0550ae", "#1b7c83"}

// picture is an SVG that grows.
type picture struct {
	b             strings.Builder
	width, height float64
}

func (p *picture) reach(x, y float64) { p.width, p.height = max(p.width, x), max(p.height, y) }

func (p *picture) box(x, y, w, h float64, fill, edge string) {
	p.reach(x+w, y+h)
	fmt.Fprintf(&p.b, `<rect x="%g" y="%g" width="%g" height="%g" rx="6" fill="%s" stroke="%s"/>`+"\n", x, y, w, h, fill, edge)
}

// text writes a line whose baseline is at y, cut to a width.
func (p *picture) text(x, y, width float64, size float64, style, s string) {
	s = fit(s, width, size)
	p.reach(x+TextWidth(s, size), y+size/2)
	fmt.Fprintf(&p.b, `<text x="%g" y="%g" font-size="%g" %s>%s</text>`+"\n", x, y, size, style, escape(s))
}

// TextWidth returns the largest width of a text.
func TextWidth(s string, size float64) float64 {
	return float64(utf8.RuneCountInString(s)) * size * charWidth
}

func fit(s string, width, size float64) string {
	n := int(width / (size * charWidth))
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:max(n-1, 0)]) + "…"
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes all
	return b.String()
}

var (
	bold  = fmt.Sprintf(`font-weight="bold" fill="%s"`, colors.text)
	plain = fmt.Sprintf(`fill="%s"`, colors.text)
	muted = fmt.Sprintf(`fill="%s"`, colors.muted)
)

// group is a NUMA node, drawn as a box.
type group struct {
	node       int // -1: unknown
	title      string
	gpus, nics []int
	columns    [][]int // of adapters, below the GPU that each is nearest to
	hidden     int     // adapters that are not drawn
	x, width   float64
}

// arrange puts adapters into columns: below a GPU to which PCIe leads without a host bridge, or else where there is
// room.
func (g *group) arrange(m *topology.Machine) {
	g.columns = make([][]int, max(len(g.gpus), min(max(len(g.nics), 2), 4)))
	shortest := func(of []int) (best int) {
		best = -1
		for _, c := range of {
			if best < 0 || len(g.columns[c]) < len(g.columns[best]) {
				best = c
			}
		}
		return best
	}
	var others []int
	for _, n := range g.nics {
		var nearest []int
		for c, i := range g.gpus {
			if near(m.NICPaths[i][n]) {
				nearest = append(nearest, c)
			}
		}
		if c := shortest(nearest); c >= 0 {
			g.columns[c] = append(g.columns[c], n)
		} else {
			others = append(others, n)
		}
	}
	all := make([]int, len(g.columns))
	for c := range all {
		all[c] = c
	}
	for _, n := range others {
		c := shortest(all)
		g.columns[c] = append(g.columns[c], n)
	}
}

// near reports whether a way crosses no host bridge.
func near(d topology.Distance) bool { return d == topology.PIX || d == topology.PXB }

// height returns the height of the box.
func (g *group) height() float64 {
	rows := 0
	for _, column := range g.columns {
		rows = max(rows, len(column))
	}
	h := float64(pad + rows*(nicHeight+gap) + lineHeight + pad)
	if len(g.gpus) > 0 {
		h += gpuHeight + gap
	}
	if g.hidden > 0 {
		h += lineHeight
	}
	return h
}

// groups returns the NUMA nodes that hold something, and a group of what belongs to none.
func groups(m *topology.Machine) (list []*group) {
	byNode := map[int]*group{}
	add := func(node int, title string) {
		g := &group{node: node, title: title}
		byNode[node] = g
		list = append(list, g)
	}
	for _, n := range m.NUMA {
		title := fmt.Sprintf("NUMA node %d: CPUs %s", n.ID, orUnknown(n.CPUs))
		if n.Memory > 0 {
			title += ", " + size(n.Memory)
		}
		if byNode[n.ID] == nil {
			add(n.ID, title)
		}
	}
	of := func(node int) *group {
		if byNode[node] == nil {
			title := "of no known NUMA node"
			if node >= 0 {
				title = "NUMA node " + strconv.Itoa(node)
			}
			add(node, title)
		}
		return byNode[node]
	}
	for i, gpu := range m.GPUs {
		of(gpu.NUMA).gpus = append(of(gpu.NUMA).gpus, i)
	}
	for i, nic := range m.NICs {
		if g := of(nic.NUMA); len(g.nics) < most {
			g.nics = append(g.nics, i)
		} else {
			g.hidden++
		}
	}
	for _, g := range list {
		g.arrange(m)
	}
	return list
}

func title(m *topology.Machine) string {
	t := m.Host
	if m.Driver != "" {
		t += ", NVIDIA driver " + m.Driver
	}
	if len(m.GPUs) == 0 {
		t += ", no GPU"
	}
	return t
}

// SVG returns a picture of the machine: NUMA nodes with their GPUs and adapters, NVLinks and NVSwitches above.
func SVG(m *topology.Machine) []byte {
	p := &picture{}
	p.text(pad, pad+14, 1e5, 16, bold, title(m))
	top := float64(pad + 32)
	list := groups(m)
	x := float64(pad)
	place := map[int]float64{} // where the middle of a GPU is
	height := 0.0
	for _, g := range list {
		g.x, g.width = x, float64(len(g.columns)*(boxWidth+gap)-gap+2*pad)
		for c, i := range g.gpus {
			place[i] = x + pad + float64(c*(boxWidth+gap)) + boxWidth/2
		}
		x += g.width + gap
		height = max(height, g.height())
	}
	right := x - gap
	links := &picture{} // above what they lead to
	linked := drawLinks(links, m, place, right, &top)
	for _, g := range list {
		p.box(g.x, top, g.width, height, colors.group, colors.groupEdge)
	}
	p.b.WriteString(links.b.String())
	p.reach(links.width, links.height)
	for _, g := range list {
		g.draw(p, m, top, height)
	}
	bottom := height
	bottom += top + 24
	if linked != "" {
		p.text(pad, bottom, 1e5, fontSize, muted, linked)
		bottom += lineHeight
	}
	for _, note := range notes(m) {
		p.text(pad, bottom, max(right, 600), fontSize, muted, note)
		bottom += lineHeight
	}
	width := max(p.width, right) + pad
	height = bottom + pad/2
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" `+
		`font-family="DejaVu Sans, Verdana, Helvetica, Arial, sans-serif">`+"\n"+
		`<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n%s</svg>\n", width, height, width, height, p.b.String())
}

// notes say what the picture cannot show.
func notes(m *topology.Machine) (list []string) {
	if slices.ContainsFunc(m.NICPaths, func(row []topology.Distance) bool { return slices.ContainsFunc(row, near) }) {
		list = append(list, "Dashed: PCIe without a host bridge between.")
	}
	without := 0
	for i := range m.GPUs {
		for j := range i {
			if m.GPUPaths[i][j].Access == topology.AccessNo {
				without++
			}
		}
	}
	if without > 0 {
		list = append(list, fmt.Sprintf("%s of GPUs cannot reach each other's memory.", count(without, "pair")))
	}
	if len(m.GPUs) == 0 {
		list = append(list, m.Problems...)
	}
	return list
}

// drawLinks draws what is above GPUs: the switches, and arcs between those that are joined. The result explains the
// arcs.
func drawLinks(p *picture, m *topology.Machine, place map[int]float64, right float64, top *float64) string {
	type arc struct{ from, to, links int }
	var arcs []arc
	widest := 0.0
	var numbers []int
	switched := map[int]topology.NVLink{}
	for i, g := range m.GPUs {
		for _, l := range g.NVLinks {
			if l.To == "switch" {
				s := switched[i]
				l.Links += s.Links
				switched[i] = l
			}
		}
	}
	for i := range m.GPUs {
		for j := range i {
			_, a := switched[i]
			_, b := switched[j]
			if n := m.GPUPaths[i][j].NVLinks; n > 0 && (!a || !b) {
				arcs = append(arcs, arc{j, i, n})
				numbers = append(numbers, n)
				widest = max(widest, place[i]-place[j], place[j]-place[i])
			}
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	color := func(n int) string { return linkColors[slices.Index(numbers, n)%len(linkColors)] }
	if len(switched) > 0 {
		label := count(max(len(m.Switches), 1), "NVSwitch", "NVSwitches")
		p.box(pad, *top, right-pad, switchBar, colors.fabric, colors.fabricEdge)
		p.text(pad+12, *top+21, right-2*pad, 13, bold, label)
		*top += switchBar
	}
	height := 0.0
	if len(arcs) > 0 {
		height = 40 + widest/6
	}
	if len(switched) > 0 {
		height = max(height, 38)
	}
	base := *top + height + pad // where the GPUs begin
	for i := range m.GPUs {
		l, ok := switched[i]
		if !ok {
			continue
		}
		fmt.Fprintf(&p.b, `<path d="M%g %gV%g" stroke="%s" stroke-width="4" fill="none"/>`+"\n", place[i], *top, base, colors.fabricEdge)
		label := strings.TrimSpace(fmt.Sprintf("%d × NVLink %s", l.Links, l.Version))
		p.text(place[i]+6, *top+20, boxWidth-20, 11, muted, label)
	}
	for _, a := range arcs {
		x1, x2 := place[a.from], place[a.to]
		rise := 1.33 * (20 + max(x2-x1, x1-x2)/6) // of the control points; the arc has three quarters of it
		y := *top + height
		fmt.Fprintf(&p.b, `<path d="M%g %gV%gC%g %g %g %g %g %gV%g" stroke="%s" stroke-width="2" fill="none"/>`+"\n",
			x1, base, y, x1, y-rise, x2, y-rise, x2, y, base, color(a.links))
	}
	*top += height
	if len(arcs) == 0 {
		return ""
	}
	y := float64(pad + 14) // beside the title
	x := max(right-float64(len(numbers))*90, pad+TextWidth(title(m), 16)+pad)
	for _, n := range numbers {
		fmt.Fprintf(&p.b, `<path d="M%g %gh22" stroke="%s" stroke-width="3"/>`+"\n", x, y-4, color(n))
		p.text(x+28, y, 60, fontSize, plain, "NV"+strconv.Itoa(n))
		x += 90
	}
	return "Arcs: NVLinks between two GPUs; NV and their number."
}

func (g *group) draw(p *picture, m *topology.Machine, top, height float64) {
	y := top + pad
	column := func(c int) float64 { return g.x + pad + float64(c*(boxWidth+gap)) }
	below := y
	if len(g.gpus) > 0 {
		below = y + gpuHeight + gap
	}
	row := func(k int) float64 { return below + float64(k*(nicHeight+gap)) }
	for c, list := range g.columns {
		for k, n := range list {
			for other, i := range g.gpus {
				if near(m.NICPaths[i][n]) { // first, so that boxes cover it
					fmt.Fprintf(&p.b, `<path d="M%g %gL%g %g" stroke="%s" stroke-width="1.5" stroke-dasharray="4 3"/>`+"\n",
						column(other)+boxWidth/2, y+gpuHeight, column(c)+boxWidth/2, row(k), colors.pcie)
				}
			}
		}
	}
	for c, i := range g.gpus {
		drawGPU(p, m, i, column(c), y)
	}
	for c, list := range g.columns {
		for k, n := range list {
			drawNIC(p, m, n, column(c), row(k))
		}
	}
	bottom := top + height - pad
	p.text(g.x+pad, bottom, g.width-2*pad, fontSize, bold, g.title)
	if g.hidden > 0 {
		p.text(g.x+pad, bottom-lineHeight, g.width-2*pad, fontSize, muted, fmt.Sprintf("and %d more adapters", g.hidden))
	}
}

func drawGPU(p *picture, m *topology.Machine, i int, x, y float64) {
	g := m.GPUs[i]
	p.box(x, y, boxWidth, gpuHeight, colors.gpu, colors.gpuEdge)
	name := GPUName(m, i)
	switch {
	case g.MIG:
		name += " (MIG)"
	case g.Ordinal < 0:
		name += " (hidden)"
	}
	lines := []string{strings.TrimPrefix(strings.TrimPrefix(g.Name, "Mock "), "NVIDIA "), g.PCI}
	if g.Problem != "" {
		lines = []string{g.Problem}
	} else if g.Memory > 0 {
		lines = slices.Insert(lines, 1, size(g.Memory)+", sm "+g.Capability)
	}
	p.text(x+10, y+20, boxWidth-20, 13, bold, name)
	for k, line := range lines {
		p.text(x+10, y+20+float64((k+1)*lineHeight)+2, boxWidth-20, fontSize, plain, line)
	}
}

func drawNIC(p *picture, m *topology.Machine, i int, x, y float64) {
	n := m.NICs[i]
	p.box(x, y, boxWidth, nicHeight, colors.nic, colors.nicEdge)
	p.text(x+10, y+20, boxWidth-20, fontSize, bold, fmt.Sprintf("NIC%d %s", i, n.Name()))
	p.text(x+10, y+20+lineHeight, boxWidth-20, fontSize, plain, speed(n))
}

// speed returns the speed of an adapter, in a few words.
func speed(n topology.NIC) string {
	for _, h := range n.InfiniBand {
		for _, port := range h.Ports {
			if port.Rate > 0 {
				return rate(port.Rate) + " " + port.Link
			}
		}
	}
	for _, i := range n.Interfaces {
		if i.Speed > 0 {
			return rate(i.Speed) + ", " + i.State
		}
	}
	for _, i := range n.Interfaces {
		return i.State
	}
	return "no speed known"
}
