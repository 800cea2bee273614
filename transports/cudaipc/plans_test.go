package cudaipc

import (
	stdcontext "context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// launch is one that a plan makes: the kernel, its grid, whether that is spread, whether it may begin before the
// kernel before it has ended, the values of its register arguments and the offsets of those that are addresses.
type launch struct {
	*plugin.Kernel
	grid, block       int64 // without the blocks that end at once
	spread, dependent bool
	values, offsets   map[int]int64
}

// launchOf returns the only launch of a plan.
func launchOf(t *testing.T, p *plugin.Plan, slots map[plugin.Slot]int64, arrays []int64) (k *plugin.Kernel, grid,
	block int64, values map[int]int64) {
	l := launchesOf(t, p, slots, arrays)
	require.Len(t, l, 1, "one launch an operation")
	return l[0].Kernel, l[0].grid, l[0].block, l[0].values
}

// launchesOf is launchesAt of memory that begins at 0, for plans without a budget and a gate.
func launchesOf(t *testing.T, p *plugin.Plan, slots map[plugin.Slot]int64, arrays []int64) (launches []launch) {
	launches = launchesAt(t, p, 0, 0, slots, arrays)
	for _, l := range launches {
		require.Equal(t, !l.spread, l.dependent, "a kernel that is not spread begins by waiting for those before it")
	}
	return launches
}

// launchesAt runs a plan's registers for given slots, as an executor does. What is sent and received begins at
// those addresses.
func launchesAt(t *testing.T, p *plugin.Plan, send, recv int64, slots map[plugin.Slot]int64,
	arrays []int64) (launches []launch) {
	regs, begin := make([]int64, p.Registers()), map[plugin.Space]int64{plugin.SpaceSend: send, plugin.SpaceRecv: recv}
	for s, v := range slots {
		regs[s] = v
	}
	copy(regs[plugin.SlotArrays:], arrays)
	copy(regs[plugin.SlotCountOf(p.World):], p.Consts)
	alu := map[plugin.Alu]func(a, b, c int64) int64{
		plugin.AluAdd: func(a, b, _ int64) int64 { return a + b }, plugin.AluSub: func(a, b, _ int64) int64 { return a - b },
		plugin.AluMul: func(a, b, _ int64) int64 { return a * b }, plugin.AluDiv: func(a, b, _ int64) int64 { return a / b },
		plugin.AluMod: func(a, b, _ int64) int64 { return a % b },
		plugin.AluMin: func(a, b, _ int64) int64 { return min(a, b) },
		plugin.AluMax: func(a, b, _ int64) int64 { return max(a, b) },
		plugin.AluLt:  func(a, b, _ int64) int64 { return truth(a < b) },
		plugin.AluLe:  func(a, b, _ int64) int64 { return truth(a <= b) },
		plugin.AluEq:  func(a, b, _ int64) int64 { return truth(a == b) },
		plugin.AluSelect: func(a, b, c int64) int64 {
			if a != 0 {
				return b
			}
			return c
		},
	}
	require.Len(t, p.Tracks, 1)
	for i := 0; i < len(p.Steps); i++ {
		s := p.Steps[i]
		switch s.Kind {
		case plugin.StepSet:
			c := int64(0)
			if s.Alu == plugin.AluSelect {
				c = regs[s.C]
			}
			regs[s.Dst] = alu[s.Alu](regs[s.A], regs[s.B], c)
		case plugin.StepAddress:
			regs[s.Dst] = begin[p.Refs[s.A].Space] + regs[p.Refs[s.A].Offset]
		case plugin.StepIf:
			if regs[s.A] == 0 {
				i += int(s.B)
			}
		case plugin.StepLaunch:
			k := &p.Kernels[s.A]
			l := launch{k, regs[k.Grid[0]], regs[k.Block[0]], regs[k.Grid[1]] > 1, s.B == plugin.LaunchDependent,
				map[int]int64{}, map[int]int64{}}
			if l.spread {
				require.EqualValues(t, 2, l.grid, "columns")
				l.grid = regs[k.Grid[1]]
			}
			for j := range int(k.CountArgs) {
				if a := p.Args[int(k.FirstArg)+j]; a.Value != plugin.None {
					l.values[j] = regs[a.Value]
				} else {
					l.offsets[j] = regs[p.Refs[a.Ref].Offset]
				}
			}
			launches = append(launches, l)
		}
	}
	return launches
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// world returns the size of a world that the algorithm is offered in.
func (a algorithm) world() int {
	if a.worlds == two {
		return 2
	}
	return 3
}

func TestArgumentsLieWhereTheKernelsExpectThem(t *testing.T) {
	base, v, onDevice := argumentBlock()
	lie := func(p *plugin.Plan, want []argument) {
		for _, k := range p.Kernels {
			want := want
			switch {
			case strings.HasPrefix(k.Name, "shunt_reduce_scatter_v_"):
				want = slices.Concat(base, v)
			case strings.HasPrefix(k.Name, "shunt_broadcast_"): // of all_gather_v too
				want = base
			}
			args := p.Args[k.FirstArg : int(k.FirstArg)+int(k.CountArgs)]
			require.Len(t, args, len(want), k.Name)
			at := 0
			for i, arg := range args {
				size := int(arg.Bytes)
				at = (at + size - 1) / size * size
				require.Equal(t, want[i].offset, at, "%s of %s", want[i].name, k.Name)
				require.Equal(t, want[i].bytes, size, "%s of %s", want[i].name, k.Name)
				at += size
			}
			require.LessOrEqual(t, at, cuda.ParamBytes)
		}
	}
	for _, a := range algorithms {
		e := &endpoint{world: a.world(), rank: 1}
		p, err := e.Prepare(stdcontext.Background(), request(a.collective, a.world(), 1), a.name)
		require.NoError(t, err)
		if a.grid == pairs {
			lie(p, slices.Concat(base, v))
		} else {
			lie(p, base)
		}
	}
	for world, name := range map[int]string{1: localName, 3: "ll128"} {
		e := &endpoint{world: world}
		p, err := e.Prepare(stdcontext.Background(), counted(world, 0), name)
		require.NoError(t, err)
		lie(p, slices.Concat(base, onDevice))
	}
}

// Whole lines are NVLink's: where some ranks have none between them every kernel of every plan gets a flag, those that
// only fall back to LL128 too, and the value is the same on all ranks. The emulator shows what becomes of kernels
// without it (TestTornLines).
func TestLinesAreFencedUnlessAllRanksHaveNVLink(t *testing.T) {
	require.Equal(t, []int{8, 16}, []int{fencedShift, whatShift})
	for _, linked := range []bool{false, true} {
		fenced := func(r plugin.Request, name string) {
			r.NVLink = linked
			p, err := (&endpoint{world: r.World, rank: r.Rank}).Prepare(stdcontext.Background(), r, name)
			require.NoError(t, err, "%s of %s", name, r.Collective)
			if r.Collective.Rooted() { // then the root is a part of it
				slots := map[plugin.Slot]int64{plugin.SlotBytes: 4096, plugin.SlotRoot: 1}
				what := int64(plugin.NewCallWord(r.Collective, r.Op, r.DType, 1, 0).What())
				for range 2 - len(p.Tracks) { // that of copies has two
					for _, l := range launchesAt(t, p, 0, 0, slots, make([]int64, 4*r.World)) {
						require.Equal(t, int64(r.Op)|truth(!linked)<<8|what<<16, l.values[argOp], "%s of %s", l.Name, name)
					}
				}
				return
			}
			for _, k := range p.Kernels {
				arg := p.Args[int(k.FirstArg)+argOp]
				op := p.Consts[int(arg.Value)-plugin.SlotCountOf(p.World)]
				require.Equal(t, int64(r.Op), op&0xFF, "%s of %s", k.Name, name)
				require.Equal(t, truth(!linked), op>>8&0xFF, "%s of %s", k.Name, name)
			}
		}
		for _, a := range algorithms {
			for rank := range a.world() {
				fenced(request(a.collective, a.world(), rank), a.name)
			}
		}
		for _, c := range copies {
			r := request(c.collective, algorithm{worlds: c.worlds}.world(), 1)
			r.Symmetric = true
			fenced(r, c.name)
		}
		for _, c := range []plugin.Collective{plugin.Put, plugin.Signal, plugin.Wait} {
			fenced(request(c, 3, 1), windowName)
		}
		fenced(counted(3, 1), "ll128")
	}
}

// counted returns a request with counts on the device.
func counted(world, rank int) plugin.Request {
	r := request(plugin.AllToAllV, world, rank)
	r.DeviceCounts = true
	return r
}

func TestCountsOnTheDeviceAreLeftToTheKernel(t *testing.T) {
	base, _, onDevice := argumentBlock()
	for _, test := range []struct {
		world      int
		name       string
		send, recv int64
		spread     bool
	}{
		{1, localName, 64, 72, false}, {3, "ll128", 64, 72, false},
		{3, "ll128", 3*spreadFrom - 1, 0, false}, {3, "ll128", 3 * spreadFrom, 0, true},
		{3, "ll128", 0, 3 * spreadFrom, true},
	} {
		e := &endpoint{world: test.world}
		p, err := e.Prepare(stdcontext.Background(), counted(test.world, 0), test.name)
		require.NoError(t, err)
		arrays := make([]int64, 4*test.world)
		for i := range 4 {
			arrays[i*test.world] = int64(4096 + 8*i)
		}
		const row = 12 // bytes that a count stands for
		l := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: row, plugin.SlotSendBytes: test.send,
			plugin.SlotRecvBytes: test.recv}, arrays)
		require.Len(t, l, 1)
		require.Equal(t, "shunt_all_to_all_v_on_device", l[0].Name)
		require.Contains(t, kernelsOf(t, l[0].Image), l[0].Name)
		require.Equal(t, [2]int64{maxBlocks, maxThreads}, [2]int64{l[0].grid, l[0].block})
		require.Equal(t, test.spread, l[0].spread)
		given := map[string]int64{}
		for i, a := range onDevice {
			given[a.name] = l[0].values[len(base)+i]
		}
		require.Equal(t, map[string]int64{"send_counts": 4096, "send_displs": 4104, "recv_counts": 4112, "recv_displs": 4120,
			"element": row, "send_capacity": test.send / row, "recv_capacity": test.recv / row}, given)
	}
	for c := plugin.AllReduce; c.Valid(); c++ {
		r := counted(4, 0)
		r.Collective, r.Rank = c, 0
		require.Equal(t, c == plugin.AllToAllV, len(Transport{}.Supports(r).Algorithms) > 0, c.String())
	}
}

func TestEveryAlgorithmHasAPlanForEveryRankAndWorld(t *testing.T) {
	for world := 1; world <= maxRanks; world++ {
		for rank := range world {
			e := &endpoint{world: world, rank: rank} // plans need no memory
			for c := plugin.AllReduce; c.Valid(); c++ {
				r := request(c, world, rank)
				s := Transport{}.Supports(r)
				require.Equal(t, len(s.Algorithms) == 0, s.Reason != "", "%s: algorithms or a reason", c)
				for _, a := range s.Algorithms {
					p, err := e.Prepare(stdcontext.Background(), r, a.Name)
					require.NoError(t, err, "%s %s, rank %d of %d", c, a.Name, rank, world)
					require.NoError(t, p.Validate())
				}
			}
		}
	}
}

// A grid that counts other units than its kernel would leave the end of a message out.
func TestUnitsAreTheKernels(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("kernels", "ll128.cuh"))
	require.NoError(t, err)
	unit := regexp.MustCompile(`constexpr int kUnit = (\d+);`).FindSubmatch(source)
	require.Len(t, unit, 2)
	require.Equal(t, strconv.Itoa(unitBytes), string(unit[1]))
}

func TestGridsFitTheMessage(t *testing.T) {
	for _, test := range []struct {
		c             plugin.Collective
		name          string
		bytes         int64
		blocks, width int64
	}{
		{plugin.AllReduce, "one_shot_ll", 0, 1, 32},
		{plugin.AllReduce, "one_shot_ll", 8, 1, 32},
		{plugin.AllReduce, "one_shot_ll", 2 * kib, 1, 256},
		{plugin.AllReduce, "one_shot_ll", 32 * kib, 16, 256},
		{plugin.AllReduce, "one_shot_ll128", 128 * kib, 35, 256},
		{plugin.AllReduce, "two_shot_ll128", 512 * kib, 35, 256},
		{plugin.AllReduce, "two_shot_ll128", 512 * mib, 64, 512},
		{plugin.AllReduce, "staged", 512 * mib, 64, 512},
		{plugin.ReduceScatter, "staged", 2 * mib, 32, 512},
		{plugin.ReduceScatter, "staged", 128 * mib, 64, 512},
		{plugin.Broadcast, "ll128", 1, 3, 32},
		{plugin.Broadcast, "ll128", 3 * 16 * 480, 48, 32},
		{plugin.Broadcast, "ll128", 3*16*480 + 1, 48, 64},
		{plugin.Broadcast, "ll128", mib, 48, 512},
		{plugin.Reduce, "two_shot_ll128", mib, 46, 512},
		{plugin.Reduce, "two_shot_ll128", 2 * mib, 32, 512},
		{plugin.Reduce, "staged", 32 * mib, 64, 512},
		{plugin.AllToAllV, "ll128", 0, 4, 32},
		{plugin.Send, "ll128", 480, 4, 32},
		{plugin.Send, "ll128", 481, 8, 32},
		{plugin.Send, "ll128", 8 * kib, 64, 64},
		{plugin.Send, "ll128", 512 * kib, 64, 512},
		{plugin.Send, "ll128", 512 * mib, 64, 512},
		{plugin.Barrier, "ll", 0, 1, 32},
	} {
		e := &endpoint{world: 4, rank: 2}
		p, err := e.Prepare(stdcontext.Background(), request(test.c, 4, 2), test.name)
		require.NoError(t, err)
		_, blocks, width, _ := launchOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: test.bytes}, nil)
		require.Equal(t, [2]int64{test.blocks, test.width}, [2]int64{blocks, width}, "%s %s of %d bytes", test.c, test.name,
			test.bytes)
		for bytes := int64(1); bytes < 1<<40; bytes *= 3 {
			_, blocks, width, _ := launchOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: bytes}, nil)
			require.True(t, blocks >= 1 && blocks <= maxBlocks && width >= 32 && width <= maxThreads && width%32 == 0, "%d x %d",
				blocks, width)
		}
	}
}

// A broadcast between two has a warp for each unit, in twice as many blocks once 16 have as many warps as they can.
func TestGridOfABroadcastBetweenTwo(t *testing.T) {
	e := &endpoint{world: 2, rank: 1}
	p, err := e.Prepare(stdcontext.Background(), request(plugin.Broadcast, 2, 1), "ll128")
	require.NoError(t, err)
	for _, test := range []struct{ bytes, blocks, width int64 }{
		{1, 1, 32}, {16 * 480, 16, 32}, {256 * 480, 16, 512}, {256*480 + 1, 32, 288}, {mib, 32, 512},
	} {
		_, blocks, width, _ := launchOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: test.bytes}, nil)
		require.Equal(t, [2]int64{test.blocks, test.width}, [2]int64{blocks, width}, "%d bytes", test.bytes)
	}
}

// Kernels that store over links are spread where messages are long.
func TestLongMessagesAreSpread(t *testing.T) {
	for _, a := range algorithms {
		if a.grid == roots || a.grid == blocks {
			continue
		}
		e := &endpoint{world: a.world(), rank: 1}
		p, err := e.Prepare(stdcontext.Background(), request(a.collective, a.world(), 1), a.name)
		require.NoError(t, err)
		from := int64(spreadFrom)
		switch a.grid {
		case some:
			from *= 2
		case half:
			from = halfUpTo/int64(a.world())/16*16 + 16
		}
		for _, bytes := range []int64{0, from - 16, from, 1 << 40} {
			arrays := make([]int64, 4*a.world()) // counts and displacements
			arrays[0], arrays[2*a.world()] = bytes, bytes
			if a.collective == plugin.AllGatherV { // whose blocks are otherwise broadcast in part
				arrays[2*a.world()+1], arrays[3*a.world()-1] = bytes, bytes
			}
			l := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: bytes}, arrays)
			require.Len(t, l, 1)
			stores := a.grid == pairs || slices.Contains([]string{"shunt_all_reduce_staged", "shunt_reduce_scatter_staged",
				"shunt_reduce_staged", "shunt_all_gather_direct", "shunt_all_to_all_direct", "shunt_broadcast_direct",
				"shunt_broadcast_chain"}, a.kernel)
			require.Equal(t, stores && bytes >= from, l[0].spread, "%s %s of %d bytes", a.collective, a.name, bytes)
			require.True(t, !l[0].spread || (l[0].grid > 1 && l[0].grid <= maxBlocks), "%d blocks", l[0].grid)
		}
	}
}

func TestPairsGetTheirCountsAndLongOnesTheLongKernel(t *testing.T) {
	e := &endpoint{world: 3, rank: 1}
	base, v, _ := argumentBlock()
	value := func(values map[int]int64, name string, p int) int64 {
		return values[len(base)+slices.IndexFunc(v, func(a argument) bool { return a.name == name })+p]
	}
	plan := func(c plugin.Collective) *plugin.Plan {
		p, err := e.Prepare(stdcontext.Background(), request(c, 3, 1), "ll128")
		require.NoError(t, err)
		return p
	}
	arrays := []int64{1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60} // counts and displacements of sending, then of receiving
	k, _, _, values := launchOf(t, plan(plugin.AllToAllV), nil, arrays)
	require.Equal(t, "shunt_all_to_all_v", k.Name)
	for p := range 3 {
		require.Equal(t, arrays[p], value(values, "send_count", p))
		require.Equal(t, arrays[3+p], value(values, "send_displ", p))
		require.Equal(t, arrays[6+p], value(values, "recv_count", p))
		require.Equal(t, arrays[9+p], value(values, "recv_displ", p))
	}
	arrays[1] = 10 * mib // what this rank sends itself makes nothing long
	k, _, _, _ = launchOf(t, plan(plugin.AllToAllV), nil, arrays)
	require.Equal(t, "shunt_all_to_all_v", k.Name)
	arrays[8] = longMessage(3) - 1
	k, _, _, _ = launchOf(t, plan(plugin.AllToAllV), nil, arrays)
	require.Equal(t, "shunt_all_to_all_v", k.Name)
	arrays[8]++
	k, _, _, _ = launchOf(t, plan(plugin.AllToAllV), nil, arrays)
	require.Equal(t, "shunt_all_to_all_v_long", k.Name)

	k, _, _, values = launchOf(t, plan(plugin.Send), map[plugin.Slot]int64{plugin.SlotBytes: 77, plugin.SlotRoot: 2}, nil)
	require.Equal(t, "shunt_all_to_all_v", k.Name)
	require.Equal(t, [3]int64{0, 0, 77}, [3]int64{value(values, "send_count", 0), value(values, "send_count", 1),
		value(values, "send_count", 2)})
	require.Zero(t, value(values, "recv_count", 2))
	k, _, _, values = launchOf(t, plan(plugin.Recv), map[plugin.Slot]int64{plugin.SlotBytes: longMessage(3),
		plugin.SlotRoot: 0}, nil)
	require.Equal(t, "shunt_all_to_all_v_long", k.Name)
	require.Equal(t, longMessage(3), value(values, "recv_count", 0))
}

func TestShortPutsAreAKernelsAndLongOnesACopyEngines(t *testing.T) {
	e := &endpoint{world: 4, rank: 2}
	p, err := e.Prepare(stdcontext.Background(), request(plugin.Put, 4, 2), windowName)
	require.NoError(t, err)
	for bytes, blocks := range map[int64]int64{1: 1, 4096: 1, 4097: 2, shortPut: maxBlocks} {
		l := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: bytes, plugin.SlotRoot: 1, plugin.SlotOffset: 24}, nil)
		require.Len(t, l, 1, "%d bytes", bytes)
		require.Equal(t, "shunt_copy", l[0].Name)
		require.Equal(t, [2]int64{blocks, 256}, [2]int64{l[0].grid, l[0].block}, "%d bytes", bytes)
		require.Equal(t, bytes, l[0].values[argBytes])
		require.Equal(t, plugin.WindowHeader(4)+24, l[0].offsets[argRecv])
		require.Contains(t, kernelsOf(t, l[0].Image), l[0].Name)
	}
	for _, bytes := range []int64{0, shortPut + 1, 1 << 40} {
		require.Empty(t, launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: bytes}, nil), "%d bytes", bytes)
	}
}

// Host and kernels have to agree from where on there are offers.
func TestLongMessagesAreThoseOfTheKernels(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("kernels", "all_to_all_v.cu"))
	require.NoError(t, err)
	for world, name := range map[int]string{2: "kLongOfTwo", 3: "kOffered", 8: "kOffered"} {
		m := regexp.MustCompile(name + ` = \(1 << 20\) / 4 \* (\d+);`).FindSubmatch(source)
		require.Len(t, m, 2, "%s", name)
		quarters, err := strconv.ParseInt(string(m[1]), 10, 64)
		require.NoError(t, err)
		require.Equal(t, quarters*mib/4, longMessage(world), "%s, for %d ranks", name, world)
	}
}

// kernelsOf returns the entry points that a source file defines.
func kernelsOf(t *testing.T, image string) []string {
	file, dtype := image, ""
	for d := plugin.Int8; d.Valid(); d++ {
		if name, ok := strings.CutSuffix(image, "_"+d.String()); ok {
			file, dtype = name, "_"+d.String()
		}
	}
	source, err := os.ReadFile(filepath.Join("kernels", file+".cu"))
	require.NoError(t, err)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^SHUNT_KERNEL_(TYPED|HOT|BYTES)(?:_V|_OF)?\((\w+),|^extern "C" .*void .*\) (shunt_\w+)\(`).FindAllStringSubmatch(string(source), -1) {
		switch m[1] {
		case "TYPED":
			require.NotEmpty(t, dtype, "image %s", image)
			names = append(names, m[2]+dtype)
		case "HOT":
			if slices.Contains([]string{"_float16", "_float32", "_bfloat16"}, dtype) {
				names = append(names, m[2]+dtype)
			}
		case "BYTES":
			names = append(names, m[2])
		default:
			names = append(names, m[3])
		}
	}
	return names
}

func TestPlansNameKernelsThatExist(t *testing.T) {
	known := map[string][]string{}
	for _, i := range images {
		require.Greater(t, len(i.Data), 1000, i.Name)
		known[i.Name] = kernelsOf(t, i.Name)
	}
	for _, a := range algorithms {
		e := &endpoint{world: a.world()}
		for d := plugin.Int8; d.Valid(); d++ {
			r := request(a.collective, a.world(), 0)
			r.DType = d
			p, err := e.Prepare(stdcontext.Background(), r, a.name)
			if !slices.ContainsFunc((Transport{}).Supports(r).Algorithms,
				func(o plugin.Algorithm) bool { return o.Name == a.name }) {
				require.ErrorIs(t, err, plugin.Unsupported)
				continue
			}
			require.NoError(t, err)
			for _, k := range p.Kernels {
				require.Contains(t, known[k.Image], k.Name, "image %s", k.Image)
			}
		}
	}
}
