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

// walk runs a plan's registers for given slots and calls visit for each launch and
// copy, in order.
func walk(t *testing.T, p *plugin.Plan, slots map[plugin.Slot]int64, arrays []int64, visit func(s *plugin.Step, reg func(uint16) int64)) {
	require.Len(t, p.Tracks, 1, "copies are made one after another")
	regs := make([]int64, p.Registers())
	for s, v := range slots {
		regs[s] = v
	}
	copy(regs[plugin.SlotArrays:], arrays)
	copy(regs[plugin.SlotCountOf(p.World):], p.Consts)
	for i := 0; i < len(p.Steps); i++ {
		switch s := &p.Steps[i]; s.Kind {
		case plugin.StepSet:
			require.Equal(t, plugin.AluEq, s.Alu)
			regs[s.Dst] = truth(regs[s.A] == regs[s.B])
		case plugin.StepIf:
			if regs[s.A] == 0 {
				i += int(s.B)
			}
		default:
			visit(s, func(r uint16) int64 { return regs[r] })
		}
	}
}

// Every rank copies to the next one first, so that in step each receives from one.
func TestCopiesGoRoundBetweenTheCheckAndABarrier(t *testing.T) {
	const world, bytes, root = 4, 1000, 2
	even := make([]int64, 4*world)
	for r := range world { // as the host lays out blocks of equal length
		even[r], even[world+r] = bytes, int64(r)*bytes
		even[2*world+r], even[3*world+r] = bytes, int64(r)*bytes
	}
	for _, c := range []plugin.Collective{plugin.AllGather, plugin.AllToAll, plugin.Scatter} {
		for rank := range world {
			e := &endpoint{world: world, rank: rank}
			p, err := e.Prepare(stdcontext.Background(), symmetricRequest(c, world, rank), copyName)
			require.NoError(t, err)
			require.NoError(t, p.ValidateFor(symmetricRequest(c, world, rank)))
			slots := map[plugin.Slot]int64{
				plugin.SlotBytes: bytes, plugin.SlotRecvBytes: world * bytes, plugin.SlotWindow: 5, plugin.SlotOffset: 640, plugin.SlotRoot: root,
			}
			var did, want []string
			walk(t, p, slots, even, func(s *plugin.Step, reg func(uint16) int64) {
				if s.Kind == plugin.StepLaunch {
					k := p.Kernels[s.A]
					value := func(i int) int64 {
						if a := p.Args[int(k.FirstArg)+i]; a.Value != plugin.None {
							return reg(a.Value)
						}
						return -1
					}
					did = append(did, fmt.Sprint(k.Image, " ", k.Name, " ", reg(k.Grid[0]), "x", reg(k.Block[0]), " ", s.B, " ", value(argSend), " ", value(argRecv), " ", value(argBytes)))
					return
				}
				require.Equal(t, plugin.StepCopy, s.Kind)
				to, from := p.Refs[s.Dst], p.Refs[s.A]
				require.Equal(t, plugin.SpaceSend, from.Space)
				peer := int64(rank)
				if to.Space == plugin.SpacePeerRecv {
					peer = reg(to.Rank)
				} else {
					require.Equal(t, plugin.SpaceRecv, to.Space)
				}
				did = append(did, fmt.Sprintf("%d from %d to %d of rank %d", reg(s.N), reg(from.Offset), reg(to.Offset), peer))
			})
			want = append(want, "symmetric shunt_symmetric_begin 1x32 1 5 640 4000")
			for k := 1; k <= world; k++ {
				peer := (rank + k) % world
				from, to := 0, rank*bytes
				if c != plugin.AllGather {
					from = peer * bytes
				}
				if c == plugin.Scatter {
					to = 0
				}
				if c != plugin.Scatter || rank == root {
					want = append(want, fmt.Sprintf("%d from %d to %d of rank %d", bytes, from, to, peer))
				}
			}
			want = append(want, "barrier shunt_barrier 1x32 0 -1 -1 1000")
			require.Equal(t, want, did, "%s on rank %d", c, rank)
		}
	}
}

func TestCopiesAreOfferedForSymmetricRequestsAlone(t *testing.T) {
	offered := func(r plugin.Request) bool {
		return slices.ContainsFunc(Transport{}.Supports(r).Algorithms, func(a plugin.Algorithm) bool { return a.Name == copyName })
	}
	for c := plugin.AllReduce; c.Valid(); c++ {
		for world := 1; world <= maxRanks; world++ {
			want := world > 1 && (c == plugin.AllGather || c == plugin.AllToAll || c == plugin.Scatter || (c == plugin.Broadcast && world == 2))
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
		{plugin.AllGather, 4, 32 * mib, 128 * mib}, {plugin.AllGather, 2, 32 * mib, 128 * mib},
		{plugin.AllToAll, 4, 32 * mib, 128 * mib}, {plugin.AllToAll, 2, 32 * mib, 128 * mib},
		{plugin.Broadcast, 2, 32 * mib, 128 * mib}, {plugin.Scatter, 4, 32 * mib, 128 * mib},
	} {
		best := func(bytes int64) string {
			if test.c != plugin.Broadcast {
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
		require.NotEqual(t, copyName, best(test.below), "%s among %d", test.c, test.world)
		require.Equal(t, copyName, best(test.beyond), "%s among %d", test.c, test.world)
	}
}
