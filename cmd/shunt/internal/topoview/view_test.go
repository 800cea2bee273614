package topoview

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/host/topology/topologytest"
)

// rect is the area of a shape.
type rect struct{ x, y, x2, y2 float64 }

func (r rect) meets(o rect) bool  { return r.x < o.x2 && o.x < r.x2 && r.y < o.y2 && o.y < r.y2 }
func (r rect) within(o rect) bool { return r.x >= o.x && r.y >= o.y && r.x2 <= o.x2 && r.y2 <= o.y2 }

// text is a line of a picture.
type text struct {
	rect
	s string
}

// drawing is the content of a picture, in drawing order.
type drawing struct {
	view  rect
	boxes []rect
	texts []text
	lines []rect // vertical ones that no box drawn later covers, a pixel wide
}

var vertical = regexp.MustCompile(`^M([\d.]+) ([\d.]+)V([\d.]+)$`)

// read takes an SVG apart.
func read(t *testing.T, svg []byte) (d drawing) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	var current *text
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return d
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			a := map[string]string{}
			for _, attribute := range e.Attr {
				a[attribute.Name.Local] = attribute.Value
			}
			number := func(name string) (v float64) {
				_, err := fmt.Sscan(a[name], &v)
				require.NoError(t, err, a[name])
				return v
			}
			switch e.Name.Local {
			case "svg":
				_, err := fmt.Sscan(a["viewBox"], &d.view.x, &d.view.y, &d.view.x2, &d.view.y2)
				require.NoError(t, err)
			case "rect":
				if a["width"] != "100%" {
					box := rect{number("x"), number("y"), number("x") + number("width"), number("y") + number("height")}
					d.boxes = append(d.boxes, box)
					d.lines = slices.DeleteFunc(d.lines, func(l rect) bool { return l.within(box) })
				}
			case "text":
				size := number("font-size")
				current = &text{rect: rect{number("x"), number("y") - 0.8*size, 0, number("y") + 0.25*size}}
				current.x2 = size // until its letters are known
			case "path":
				if m := vertical.FindStringSubmatch(a["d"]); m != nil {
					var l rect
					_, err := fmt.Sscan(m[1]+" "+m[2]+" "+m[3], &l.x, &l.y, &l.y2)
					require.NoError(t, err)
					l.x2 = l.x + 1
					d.lines = append(d.lines, l)
				}
			}
		case xml.CharData:
			if current != nil {
				current.s += string(e)
			}
		case xml.EndElement:
			if e.Name.Local == "text" {
				current.x2 = current.x + TextWidth(current.s, current.x2)
				d.texts = append(d.texts, *current)
				current = nil
			}
		}
	}
}

// readable checks that no text of a picture overlaps another one, a line or the edge of a box, and that boxes are apart
// or within each other.
func readable(t *testing.T, m *topology.Machine) drawing {
	t.Helper()
	d := read(t, SVG(m))
	for i, a := range d.texts {
		require.True(t, a.within(d.view), "%q is outside of the picture: %v, %v", a.s, a.rect, d.view)
		for _, b := range d.texts[:i] {
			require.False(t, a.meets(b.rect), "%q overlaps %q", a.s, b.s)
		}
		for _, box := range d.boxes {
			require.True(t, !a.meets(box) || a.within(box), "%q crosses the edge of a box", a.s)
		}
		for _, l := range d.lines {
			require.False(t, a.meets(l), "a line crosses %q", a.s)
		}
	}
	for i, a := range d.boxes {
		require.True(t, a.within(d.view))
		for _, b := range d.boxes[:i] {
			require.True(t, !a.meets(b) || a.within(b) || b.within(a), "boxes overlap")
		}
	}
	all := ""
	for _, a := range d.texts {
		all += a.s + "\n"
	}
	for i := range m.GPUs {
		require.Regexp(t, `(?m)^`+GPUName(m, i)+`( \(\w+\))?$`, all)
	}
	for i := range m.NICs[:min(len(m.NICs), most)] {
		require.Regexp(t, fmt.Sprintf(`(?m)^NIC%d\b`, i), all)
	}
	for _, n := range m.NUMA {
		require.Contains(t, all, fmt.Sprintf("NUMA node %d: ", n.ID))
	}
	return d
}

func TestPicturesAreReadable(t *testing.T) {
	lost := topologytest.DGXH100()
	lost.Lost[3] = nvml.ERROR_GPU_IS_LOST
	lost.Device(2).MigMode = nvml.DEVICE_MIG_ENABLE
	lost.Visible = []int{0}
	long := topologytest.PCIe(2)
	long.Device(0).Config.Name = strings.Repeat("W<&>\"\x01", 30)
	long.Env["SHUNT_HOST_ID"] = strings.Repeat("host", 40)
	for i := range 200 {
		long.Interface(fmt.Sprintf("veth%d", i), "up")
	}
	for name, b := range map[string]*topologytest.Box{
		"A100": topologytest.DGXA100(), "B200": topologytest.DGXB200(), "PCIe": topologytest.PCIe(8), "lost": lost,
		"long names": long, "none": topologytest.PCIe(0), "ring": topologytest.Mesh(func(a, b int) int {
			return map[int]int{1: 2, 7: 2}[(a-b+8)%8]
		}), "all to all": topologytest.Mesh(func(a, b int) int { return 1 + (a+b)%6 }),
	} {
		t.Run(name, func(t *testing.T) { readable(t, topology.Scan(b.Sources())) })
	}
}

// Also machines that do not exist can be read.
func TestAnyPictureIsReadable(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 14))
	distances := []topology.Distance{topology.PIX, topology.PXB, topology.PHB, topology.NODE, topology.SYS,
		topology.Unknown}
	for range 300 {
		m := topology.Scan(topologytest.PCIe(0).Sources())
		m.NUMA = m.NUMA[:random.IntN(3)]
		for range random.IntN(17) {
			g := topology.MachineGPU{Index: len(m.GPUs), Ordinal: random.IntN(3) - 1,
				Name: strings.Repeat("N", random.IntN(40)), PCI: "0000:00:00.0", Memory: random.Int64N(2) << 37, Capability: "9.0", NUMA: random.IntN(5) - 1,
				MIG: random.IntN(4) == 0}
			if random.IntN(2) == 0 {
				to := []string{"switch", "gpu"}[random.IntN(2)]
				g.NVLinks = []topology.NVLink{{To: to, Version: "10.0", Links: random.IntN(100)}}
			}
			if random.IntN(6) == 0 {
				g.Problem = "it has fallen off the bus, they say"
			}
			m.GPUs = append(m.GPUs, g)
		}
		m.NICs = nil
		for range random.IntN(40) {
			i := topology.Interface{Name: strings.Repeat("e", random.IntN(20)), Speed: random.IntN(1e6), State: "up"}
			m.NICs = append(m.NICs, topology.NIC{PCI: "0000:01:00.0", NUMA: random.IntN(4) - 1,
				Interfaces: []topology.Interface{i}})
		}
		m.GPUPaths, m.NICPaths = nil, nil
		for i := range m.GPUs {
			m.GPUPaths = append(m.GPUPaths, make([]topology.Path, len(m.GPUs)))
			row := make([]topology.Distance, len(m.NICs))
			for n := range row {
				row[n] = distances[random.IntN(len(distances))]
			}
			m.NICPaths = append(m.NICPaths, row)
			for j := range i {
				p := topology.Path{NVLinks: random.IntN(6) * random.IntN(2), PCIe: topology.SYS, Access: topology.AccessNo}
				m.GPUPaths[i][j], m.GPUPaths[j][i] = p, p
			}
		}
		if len(m.NICs) > most {
			m.NICs = m.NICs[:most] // readable wants all of them
		}
		readable(t, m)
	}
}

// The picture has a line to the switch for each GPU that has links there, and an arc for each other pair with NVLinks.
func TestPictureHasTheLinks(t *testing.T) {
	count := func(m *topology.Machine) (switched, arcs int) {
		svg := string(SVG(m))
		return strings.Count(svg, `stroke-width="4"`), len(regexp.MustCompile(`V[\d.]+C`).FindAllString(svg, -1))
	}
	switched, arcs := count(topology.Scan(topologytest.DGXH200().Sources()))
	require.Equal(t, [2]int{8, 0}, [2]int{switched, arcs})
	switched, arcs = count(topology.Scan(topologytest.PCIe(4).Sources()))
	require.Equal(t, [2]int{0, 0}, [2]int{switched, arcs})
	switched, arcs = count(topology.Scan(topologytest.Mesh(func(a, b int) int { return (a ^ b) & 1 }).Sources()))
	require.Equal(t, [2]int{0, 16}, [2]int{switched, arcs})
}

// The matrix of any mesh is symmetric, with an X for each GPU and what the pair has everywhere else.
func TestMatrix(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	for range 20 {
		var links [8][8]int
		for a := range links {
			for b := range a {
				links[a][b] = random.IntN(3)
				links[b][a] = links[a][b]
			}
		}
		m := topology.Scan(topologytest.Mesh(func(a, b int) int { return links[a][b] }).Sources())
		table := Matrix(m)
		require.Len(t, table, 9)
		for a, row := range table[1:] {
			require.Equal(t, fmt.Sprintf("GPU%d", a), row[0])
			require.Len(t, row, len(table[0]))
			for b, cell := range row[1:9] {
				want := "X"
				switch {
				case a == b:
				case links[a][b] > 0:
					want = fmt.Sprintf("NV%d", links[a][b])
				case a/4 == b/4:
					want = "NODE"
				default:
					want = "SYS"
				}
				require.Equal(t, want, cell)
				require.Equal(t, table[b+1][a+1], cell)
			}
			require.Equal(t, m.GPUs[a].CPUs, row[len(row)-2])
		}
	}
}

func TestTextNamesWhatIsMissing(t *testing.T) {
	show := func(b *topologytest.Box) string {
		var out strings.Builder
		require.NoError(t, Text(&out, topology.Scan(b.Sources())))
		return out.String()
	}
	b := topologytest.DGXH200()
	b.Visible, b.Env["CUDA_VISIBLE_DEVICES"] = []int{5, 2}, "5,2"
	b.Lost[3] = nvml.ERROR_NO_PERMISSION
	out := show(b)
	for _, want := range []string{"CUDA_VISIBLE_DEVICES=5,2", "\nGPU3: unknown: nvmlDeviceGetHandleByIndex: ERROR_NO_PERMISSION\n",
		", CUDA device 1, 18 × NVLink 4.0 to NVSwitch", ", not visible to CUDA, 18", "\nunknown peer access between GPU0 and GPU3: "} {
		require.Contains(t, out, want)
	}
	out = show(topologytest.PCIe(4))
	require.Contains(t, out, "no peer access between GPU0 and GPU2: the CUDA driver allows none\n")
	require.NotContains(t, out, "between GPU0 and GPU1:")
	require.Contains(t, show(topologytest.DGXA100()), "\nall GPUs reach each other's memory\n")
	// Libraries that report an error are there, so nothing says that there is no driver.
	s := topologytest.PCIe(1).Sources()
	s.OpenDriver = func() (cuda.Driver, error) { return nil, errors.New("cuInit: CUDA_ERROR_SYSTEM_NOT_READY") }
	s.OpenManagement = func() (cuda.Management, error) { return nil, errors.New("no NVML: Unknown Error") }
	var text strings.Builder
	require.NoError(t, Text(&text, topology.Scan(s)))
	require.Contains(t, text.String(), "\nno GPU: cuInit: CUDA_ERROR_SYSTEM_NOT_READY; no NVML: Unknown Error\n")
}
