package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
)

// modelled is a reference pool: it knows which addresses are given out, and which streams may still use freed ones.
type modelled struct {
	base    cuda.Ptr
	bytes   int64
	streams map[int]bool // that use it; of freed memory, whether each was held up at the free
}

// Random calls: blocks do not overlap and are aligned, memory that a stream may still use goes to no other stream, and
// in the end all of it is one piece again.
func TestRandomCalls(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprint("ordered ", ordered), func(t *testing.T) {
			const streams = 3
			b := newBench(t, ordered, streams)
			seed := rand.Uint64()
			t.Log("seed", seed)
			random := rand.New(rand.NewPCG(seed, 1))
			var live, busy []modelled // busy: freed, and a stream that used it is held up
			shut := [streams]bool{}
			for i := range 1500 {
				switch k := random.IntN(10); {
				case k < 4:
					s, n := random.IntN(streams), Rounded(1+int64(random.ExpFloat64()*100_000))
					n = min(n, Granularity)
					p := b.alloc(n, s)
					if p == 0 {
						b.add(Granularity)
						p = b.alloc(n, s)
					}
					require.NotZero(t, p)
					require.Zero(t, p%Align)
					for _, m := range live {
						if overlap(p, n, m) {
							t.Fatalf("%d bytes at %#x overlap %d at %#x", n, p, m.bytes, m.base)
						}
					}
					busy = slices.DeleteFunc(busy, func(m modelled) bool {
						if !overlap(p, n, m) {
							return false
						}
						for used, held := range m.streams {
							if used != s && held && !ordered {
								t.Fatalf("stream %d got memory that stream %d may still use", s, used)
							}
							if used != s && held && ordered {
								shut[s] = true // it waits now
								done, err := b.driver.StreamDone(b.gpu.Context, b.streams[s])
								require.NoError(t, err)
								require.False(t, done, "stream %d got memory that stream %d may still use", s, used)
							}
						}
						return false
					})
					live = append(live, modelled{p, n, map[int]bool{s: true}})
				case k < 5 && len(live) > 0:
					m, s := live[random.IntN(len(live))], random.IntN(streams)
					require.NoError(t, b.pool.RecordStream(m.base, b.streams[s]))
					m.streams[s] = true
				case k < 8 && len(live) > 0:
					i, s := random.IntN(len(live)), random.IntN(streams)
					m := live[i]
					live = slices.Delete(live, i, i+1)
					freed := map[int]bool{s: shut[s]}
					for recorded := range m.streams {
						if recorded != s {
							require.NoError(t, b.pool.RecordStream(m.base, b.streams[recorded]))
						}
						freed[recorded] = shut[recorded]
					}
					b.release(m.base, s)
					busy = append(busy, modelled{m.base, m.bytes, freed})
				case k < 9:
					s := random.IntN(streams)
					b.shut(s)
					shut[s] = true
				default:
					for s := range streams {
						b.write(s)
					}
					require.NoError(t, b.driver.Synchronize(b.gpu.Context))
					shut, busy = [streams]bool{}, nil
					if random.IntN(3) == 0 {
						b.agree()
						for _, s := range b.pool.Idle(!ordered) {
							require.NoError(t, b.driver.Unmap(b.gpu.Context, s.Mapping))
						}
					}
				}
				if i%5 == 0 {
					b.check()
				}
			}
			for _, m := range live {
				b.release(m.base, 0)
			}
		})
	}
}

func overlap(p cuda.Ptr, n int64, m modelled) bool {
	return p < m.base+cuda.Ptr(m.bytes) && m.base < p+cuda.Ptr(n)
}

// check looks whether the pool's lists and counts agree.
func (b *bench) check() {
	p := b.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	var inUse, cached, blocks int64
	free := 0
	for _, s := range p.segments {
		at := s.Address
		for x := s.first; x != nil; x = x.next {
			require.Equal(b, at, x.base)
			require.True(b, x.prev == nil && x == s.first || x.prev.next == x)
			at += cuda.Ptr(x.bytes)
			if x.free {
				free++
				cached += x.bytes
				require.False(b, x.next != nil && x.next.free && p.joins(x, x.next), "free neighbours were not merged")
			} else {
				require.Same(b, x, p.live[x.base])
				inUse += x.bytes
				blocks++
			}
		}
		require.Equal(b, s.Address+cuda.Ptr(s.Bytes), at)
	}
	require.Len(b, p.free, free)
	require.True(b, slices.IsSortedFunc(p.free, before))
	require.Equal(b, Stats{InUse: inUse, Cached: cached, Peak: p.stats.Peak, Blocks: blocks,
		Segments: int64(len(p.segments))}, p.stats)
	uses := map[*event]int{}
	for _, x := range p.free {
		for _, u := range x.uses {
			if u.event != nil {
				uses[u.event]++
			}
		}
	}
	for e, n := range uses {
		require.Equal(b, n, e.uses, "of event %d", e.number)
		require.NotContains(b, p.spare, e.handle)
	}
}
