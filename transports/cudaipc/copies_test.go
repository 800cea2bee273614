package cudaipc

import (
	stdcontext "context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func symmetricRequest(c plugin.Collective, world, rank int) plugin.Request {
	r := request(c, world, rank)
	r.Symmetric = true
	return r
}

// eachStep runs a plan's registers for given slots, track by track, and calls do for every
// copy and launch. Receive memory is at 2 << 40, that of other ranks beyond.
func eachStep(t *testing.T, p *plugin.Plan, send int64, slots map[plugin.Slot]int64, arrays []int64,
	do func(track int, s *plugin.Step, regs []int64, address func(uint16) (int64, string))) {
	alu := map[plugin.Alu]func(a, b int64) int64{
		plugin.AluAdd: func(a, b int64) int64 { return a + b }, plugin.AluSub: func(a, b int64) int64 { return a - b },
		plugin.AluMul: func(a, b int64) int64 { return a * b }, plugin.AluDiv: func(a, b int64) int64 { return a / b },
		plugin.AluMod: func(a, b int64) int64 { return a % b },
		plugin.AluMin: func(a, b int64) int64 { return min(a, b) },
		plugin.AluMax: func(a, b int64) int64 { return max(a, b) },
		plugin.AluLt:  func(a, b int64) int64 { return truth(a < b) },
		plugin.AluLe:  func(a, b int64) int64 { return truth(a <= b) },
		plugin.AluEq:  func(a, b int64) int64 { return truth(a == b) },
		plugin.AluNe:  func(a, b int64) int64 { return truth(a != b) },
	}
	for number, track := range p.Tracks {
		regs := make([]int64, p.Registers())
		for s, v := range slots {
			regs[s] = v
		}
		copy(regs[plugin.SlotArrays:], arrays)
		copy(regs[plugin.SlotCountOf(p.World):], p.Consts)
		address := func(ref uint16) (int64, string) {
			switch r := p.Refs[ref]; r.Space {
			case plugin.SpaceSend:
				return send + regs[r.Offset], fmt.Sprint("send+", regs[r.Offset])
			case plugin.SpaceRecv:
				return 2<<40 + regs[r.Offset], fmt.Sprint("recv+", regs[r.Offset])
			case plugin.SpacePeerRecv:
				return -1, fmt.Sprint("recv of ", regs[r.Rank], "+", regs[r.Offset])
			}
			return -1, "region"
		}
		for i := int(track.First); i < int(track.First+track.Count); i++ {
			switch s := &p.Steps[i]; s.Kind {
			case plugin.StepSet:
				if s.Alu == plugin.AluSelect {
					regs[s.Dst] = regs[s.C]
					if regs[s.A] != 0 {
						regs[s.Dst] = regs[s.B]
					}
					continue
				}
				regs[s.Dst] = alu[s.Alu](regs[s.A], regs[s.B])
			case plugin.StepIf:
				if regs[s.A] == 0 {
					i += int(s.B)
				}
			case plugin.StepAddress:
				regs[s.Dst], _ = address(s.A)
			case plugin.StepCopy, plugin.StepLaunch:
				do(number, s, regs, address)
			default:
				require.Fail(t, "a step of another kind", s.Kind.String())
			}
		}
	}
}

// did returns the actions of a plan on a rank for given slots, track by track.
func did(t *testing.T, p *plugin.Plan, send int64, slots map[plugin.Slot]int64, arrays []int64) [][]string {
	tracks := make([][]string, len(p.Tracks))
	eachStep(t, p, send, slots, arrays, func(track int, s *plugin.Step, regs []int64,
		address func(uint16) (int64, string)) {
		list := &tracks[track]
		if s.Kind == plugin.StepCopy {
			_, to := address(s.Dst)
			_, from := address(s.A)
			*list = append(*list, fmt.Sprint(to, " = ", from, ", ", regs[s.N]))
			return
		}
		k := p.Kernels[s.A]
		text := func(i int) string {
			a := p.Args[int(k.FirstArg)+i]
			if a.Value != plugin.None {
				return fmt.Sprint(regs[a.Value])
			}
			_, place := address(a.Ref)
			return place
		}
		if k.Name == "shunt_symmetric_turn" {
			*list = append(*list, fmt.Sprintf("turn %s %dx%d %d: %s", text(argRoot), regs[k.Grid[0]], regs[k.Block[0]], s.B,
				text(argBytes)))
			return
		}
		*list = append(*list, fmt.Sprintf("%s %s %dx%d %d: %s %s %s", k.Image, k.Name, regs[k.Grid[0]], regs[k.Block[0]], s.B,
			text(argRecv), text(argSend), text(argBytes)))
	})
	return tracks
}

// Every rank copies to the next one first, so that in step each receives from one.
func TestCopiesGoRoundBetweenTheCheckAndABarrier(t *testing.T) {
	const world, bytes, root = 4, 10000, 2
	even := make([]int64, 4*world)
	for r := range world { // as the host lays out blocks of equal length
		even[r], even[world+r] = bytes, int64(r)*bytes
		even[2*world+r], even[3*world+r] = bytes, int64(r)*bytes
	}
	slots := map[plugin.Slot]int64{
		plugin.SlotBytes: bytes, plugin.SlotRecvBytes: world * bytes, plugin.SlotWindow: 5, plugin.SlotOffset: 640,
		plugin.SlotRoot: root,
	}
	for _, c := range []plugin.Collective{plugin.AllGather, plugin.AllToAll, plugin.Scatter} {
		for rank := range world {
			e := &endpoint{world: world, rank: rank}
			p, err := e.Prepare(stdcontext.Background(), symmetricRequest(c, world, rank), copyName)
			require.NoError(t, err)
			require.NoError(t, p.ValidateFor(symmetricRequest(c, world, rank)))
			want := []string{"symmetric shunt_symmetric_begin 1x32 1: 640 5 40000"}
			own := []string(nil)
			for k := 1; k <= world; k++ {
				peer := (rank + k) % world
				from, to := 0, rank*bytes
				if c != plugin.AllGather {
					from = peer * bytes
				}
				if c == plugin.Scatter {
					to = 0
				}
				switch {
				case c == plugin.Scatter && rank != root:
				case peer == rank:
					own = append(own, fmt.Sprintf("one_sided shunt_copy 2x512 0: recv+%d send+%d %d", to, from, bytes))
				default:
					want = append(want, fmt.Sprintf("recv of %d+%d = send+%d, %d", peer, to, from, bytes))
				}
			}
			want = append(want, "barrier shunt_barrier 1x32 0: recv+0 send+0 10000")
			require.Equal(t, [][]string{want, own}, did(t, p, 1<<40, slots, even), "%s on rank %d", c, rank)
		}
	}
}

// An all_reduce by copies: what is left of whole shards, the shards, then each rank's
// shard to all. Where it is delivered, out of place and without factors, copies carry
// the parts too, the last peer's in two chunks, and a kernel combines them meanwhile.
func TestAllReduceByCopies(t *testing.T) {
	const world = 3
	for _, bytes := range []int64{0, 8, 47, 48, 100, 3 << 20, 3<<20 + 44} {
		for name, test := range map[string]struct {
			algorithm string
			send      int64
			op        plugin.Op
			flag      int64 // that peers must have, too
		}{
			"by copy": {copyName, 1 << 40, plugin.OpSum, 0}, "by copy, in place": {copyName, 2 << 40, plugin.OpSum, 0},
			"out of place":     {deliveredName, 1 << 40, plugin.OpSum, 0},
			"not aligned":      {deliveredName, 1<<40 + 4, plugin.OpSum, 0},
			"in place":         {deliveredName, 2 << 40, plugin.OpSum, plugin.InPlace},
			"factors":          {deliveredName, 1 << 40, plugin.OpPremulSum, 0},
			"factors in place": {deliveredName, 2 << 40, plugin.OpPremulSum, 0},
		} {
			e := &endpoint{world: world, rank: 1}
			r := symmetricRequest(plugin.AllReduce, world, 1)
			r.Op = test.op
			p, err := e.Prepare(stdcontext.Background(), r, test.algorithm)
			require.NoError(t, err)
			require.NoError(t, p.ValidateFor(r))
			shard := bytes / (16 * world) * 16
			first := (shard/2 + 15) / 16 * 16
			dependent := 0 // a stream of its own begins with it
			delivers := test.algorithm == deliveredName && test.op == plugin.OpSum
			if !delivers {
				dependent = 1
			}
			want := []string{fmt.Sprintf("symmetric shunt_symmetric_begin 1x32 %d: 640 5 %d", dependent, bytes+test.flag)}
			if rest := bytes - world*shard; rest > 0 {
				want = append(want, fmt.Sprintf("all_reduce_float32 shunt_all_reduce_one_shot_ll_float32 1x32 1: recv+%d send+%d %d", world*shard, world*shard, rest))
			}
			var beside []string
			turn := func(n int) string { return fmt.Sprintf("turn %d 1x32 0: %d", n, shard) }
			switch {
			case shard == 0:
			case name == "out of place", name == "not aligned":
				want = append(want, fmt.Sprintf("recv of 2+%d = send+%d, %d", shard, 2*shard, shard),
					fmt.Sprintf("recv of 0+%d = send+0, %d", shard, first), turn(0),
					fmt.Sprintf("recv of 0+%d = send+%d, %d", shard+first, first, shard-first), turn(1),
					fmt.Sprintf("recv of 2+%d = recv+%d, %d", shard, shard, first),
					fmt.Sprintf("recv of 0+%d = recv+%d, %d", shard, shard, first), turn(2),
					fmt.Sprintf("recv of 2+%d = recv+%d, %d", shard+first, shard+first, shard-first),
					fmt.Sprintf("recv of 0+%d = recv+%d, %d", shard+first, shard+first, shard-first))
				kernel := "shunt_all_reduce_delivered_float32"
				if name == "not aligned" {
					kernel = "shunt_all_reduce_delivered_any_float32"
				}
				beside = []string{fmt.Sprintf("all_reduce_float32 %s 64x512 0: recv+0 send+0 %d", kernel, shard)}
			default:
				want = append(want, fmt.Sprintf("reduce_scatter_float32 shunt_reduce_scatter_staged_float32 32x512 1: recv+%d send+0 %d", shard, shard),
					fmt.Sprintf("recv of 2+%d = recv+%d, %d", shard, shard, shard),
					fmt.Sprintf("recv of 0+%d = recv+%d, %d", shard, shard, shard))
			}
			want = append(want, fmt.Sprintf("barrier shunt_barrier 1x32 0: recv+0 send+0 %d", bytes))
			slots := map[plugin.Slot]int64{plugin.SlotBytes: bytes, plugin.SlotRecvBytes: bytes, plugin.SlotWindow: 5,
				plugin.SlotOffset: 640}
			tracks := [][]string{want}
			if delivers {
				tracks = [][]string{beside, want}
			}
			require.Equal(t, tracks, did(t, p, test.send, slots, nil), "%d bytes, %s", bytes, name)
		}
	}
}

func TestCopiesAreOfferedForSymmetricRequestsAlone(t *testing.T) {
	offered := func(r plugin.Request) bool {
		return slices.ContainsFunc(Transport{}.Supports(r).Algorithms,
			func(a plugin.Algorithm) bool { return a.Name == copyName })
	}
	for c := plugin.AllReduce; c.Valid(); c++ {
		for world := 1; world <= maxRanks; world++ {
			want := world > 1 && (c == plugin.AllReduce || c == plugin.AllGather || c == plugin.AllToAll ||
				c == plugin.Scatter || (c == plugin.Broadcast && world == 2))
			r := symmetricRequest(c, world, 0)
			require.Equal(t, want, offered(r), "%s among %d", c, world)
			e := &endpoint{world: world}
			p, err := e.Prepare(stdcontext.Background(), r, copyName)
			require.Equal(t, want, err == nil, "%s among %d: %v", c, world, err)
			if want {
				require.NoError(t, p.ValidateFor(r))
			}
			r.Symmetric = false
			require.False(t, offered(r))
			_, err = e.Prepare(stdcontext.Background(), r, copyName)
			require.ErrorIs(t, err, plugin.Unsupported, "%s among %d", c, world)
		}
	}
	r := symmetricRequest(plugin.AllGather, 4, 0)
	r.Memory = plugin.MemoryKindHost
	require.False(t, offered(r))
	_, err := (&endpoint{world: 4}).Prepare(stdcontext.Background(), r, copyName)
	require.ErrorIs(t, err, plugin.Unsupported)
}

// Where their measured costs cross those of the kernels.
func TestCopiesBeginWhereTheyAreFaster(t *testing.T) {
	cost := func(a plugin.Algorithm, bytes int64) float64 { return a.Latency + float64(bytes)/a.Bandwidth }
	for _, test := range []struct {
		c             plugin.Collective
		world         int
		below, beyond int64 // of the whole message: by kernels up to here, by copies from here on
	}{
		{plugin.AllGather, 4, 32 * mib, 128 * mib}, {plugin.AllGather, 2, 64 * mib, 128 * mib},
		{plugin.AllToAll, 4, 32 * mib, 128 * mib}, {plugin.AllToAll, 2, 128 * mib, 256 * mib},
		{plugin.AllReduce, 4, 128 * mib, 256 * mib}, {plugin.AllReduce, 2, 128 * mib, 256 * mib},
		{plugin.Broadcast, 2, 32 * mib, 128 * mib}, {plugin.Scatter, 4, 32 * mib, 256 * mib},
	} {
		best := func(bytes int64) string {
			if test.c != plugin.Broadcast && test.c != plugin.AllReduce {
				bytes /= int64(test.world)
			}
			name, least := "", 0.0
			for _, a := range (Transport{}).Supports(symmetricRequest(test.c, test.world, 0)).Algorithms {
				if bytes >= a.MinBytes && (a.MaxBytes == 0 || bytes <= a.MaxBytes) && (name == "" || cost(a, bytes) < least) {
					name, least = a.Name, cost(a, bytes)
				}
			}
			return name
		}
		byCopies := []string{copyName, deliveredName}
		require.NotContains(t, byCopies, best(test.below), "%s among %d", test.c, test.world)
		require.Contains(t, byCopies, best(test.beyond), "%s among %d", test.c, test.world)
	}
}
