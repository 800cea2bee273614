package cudaipc

import (
	stdcontext "context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// Blocks of the same number meet, so a grid must not depend on where a rank's memory lies, which its peers do not know.
func TestGridsDoNotDependOnAddresses(t *testing.T) {
	twins := 0
	for _, a := range algorithms {
		for world := 2; world <= maxRanks; world++ {
			if !a.worlds.has(world) {
				continue
			}
			p, err := (&endpoint{world: world}).Prepare(stdcontext.Background(), request(a.collective, world, 0), a.name)
			require.NoError(t, err)
			for bytes := int64(4); bytes <= 1<<32; bytes *= 2 {
				for _, bytes := range []int64{bytes, bytes + 4} {
					arrays := make([]int64, 4*world)
					for i := range arrays {
						arrays[i] = bytes
					}
					slots := map[plugin.Slot]int64{plugin.SlotBytes: bytes}
					here, there := launchesAt(t, p, 1<<20, 1<<20, slots, arrays), launchesAt(t, p, 1<<20+4, 1<<20+4, slots, arrays)
					require.Len(t, there, len(here))
					for i := range here {
						if here[i].Name != there[i].Name {
							twins++
						}
						require.Equal(t, [2]int64{here[i].grid, here[i].block}, [2]int64{there[i].grid, there[i].block},
							"%s and %s of %d bytes in a world of %d", here[i].Name, there[i].Name, bytes, world)
					}
				}
			}
		}
	}
	require.Greater(t, twins, 100)
}

// Where blocks of reduce_scatter are not aligned to each other, which all ranks know, the kernel has all blocks.
func TestBlocksThatAreNotAlignedGetAllBlocks(t *testing.T) {
	p, err := (&endpoint{world: 4}).Prepare(stdcontext.Background(), request(plugin.ReduceScatter, 4, 0), "staged")
	require.NoError(t, err)
	for bytes, want := range map[int64]launch{
		16 * mib:   {Kernel: &plugin.Kernel{Name: "shunt_reduce_scatter_staged_float32"}, grid: maxBlocks / 2},
		16*mib + 4: {Kernel: &plugin.Kernel{Name: "shunt_reduce_scatter_staged_any_float32"}, grid: maxBlocks},
	} {
		l := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: bytes}, nil)
		require.Len(t, l, 1)
		require.Equal(t, []any{want.Name, want.grid}, []any{l[0].Name, l[0].grid})
	}
}

func TestMemoryThatIsNotAlignedHasKernelsOfItsOwn(t *testing.T) {
	for dtype, suffix := range map[plugin.DType]string{plugin.Float32: "_any_float32", plugin.Int32: "_int32"} {
		for _, name := range []string{"direct", "staged"} {
			e := &endpoint{world: 2}
			r := request(plugin.ReduceScatter, 2, 0)
			r.DType = dtype
			p, err := e.Prepare(stdcontext.Background(), r, name)
			require.NoError(t, err)
			for bytes, want := range map[int64]string{128 * mib: "_" + dtype.String(), 128*mib + 4: suffix} {
				l := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: bytes}, nil)
				require.Len(t, l, 1)
				require.Equal(t, "shunt_reduce_scatter_"+name+want, l[0].Name)
			}
		}
	}
}

// Either memory alone has the kernel for any, but the receive memory of a staged reduce_scatter: decision 48.
func TestEitherMemoryAloneHasTheKernelForAny(t *testing.T) {
	seen := 0
	for _, a := range algorithms {
		for world := 2; world <= maxRanks; world++ {
			if !a.worlds.has(world) || !a.hasAny(plugin.Float32) {
				continue
			}
			p, err := (&endpoint{world: world}).Prepare(stdcontext.Background(), request(a.collective, world, 0), a.name)
			require.NoError(t, err)
			for _, receive := range []bool{false, true} {
				places := [2]int64{1 << 20, 1 << 20}
				places[truth(receive)] += 4
				slots := map[plugin.Slot]int64{plugin.SlotBytes: 64 * mib}
				l := launchesAt(t, p, places[0], places[1], slots, nil)
				require.Len(t, l, 1)
				aligned := receive && a.collective == plugin.ReduceScatter && a.name == "staged"
				require.NotEqual(t, aligned, strings.HasSuffix(l[0].Name, anySuffix+"_float32"),
					"%s for a receive memory (%t) that begins an element later, in a world of %d", l[0].Name, receive, world)
				seen++
			}
		}
	}
	require.Greater(t, seen, 20)
}
