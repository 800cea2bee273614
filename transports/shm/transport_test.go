package shm

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

func request(c plugin.Collective, world int) plugin.Request {
	return plugin.Request{Collective: c, World: world, Hosts: 1}
}

// Every collective of the table but the one-sided ones has an algorithm, in
// every world.
func TestSupportsEveryCollective(t *testing.T) {
	for _, world := range []int{1, 2, 7, maxWorld} {
		for _, c := range plugin.Collectives() {
			s := Transport{}.Supports(request(c, world))
			oneSided := c == plugin.Put || c == plugin.Get || c == plugin.Signal || c == plugin.Wait
			if oneSided == (len(s.Algorithms) > 0) {
				t.Errorf("%s in a world of %d: %d algorithms, reason %q", c, world, len(s.Algorithms), s.Reason)
			}
			for _, a := range s.Algorithms {
				if a.Name == "" || !(a.Latency >= 0) || !(a.Bandwidth > 0) || a.MinBytes != 0 || a.MaxBytes != 0 {
					t.Errorf("%s in a world of %d: algorithm %+v", c, world, a)
				}
			}
		}
	}
}

func TestSupportsGivesReasons(t *testing.T) {
	for _, test := range []struct {
		change func(*plugin.Request)
		reason string
	}{
		{func(r *plugin.Request) { r.Hosts = 2 }, "one host"},
		{func(r *plugin.Request) { r.Memory = plugin.MemoryKindCuda }, "host memory only"},
		{func(r *plugin.Request) { r.World = maxWorld + 1 }, "257"},
		{func(r *plugin.Request) { r.World = 0 }, "worlds of 1"},
		{func(r *plugin.Request) { r.Bytes = -1 }, "fewer than 0 bytes"},
		{func(r *plugin.Request) { r.Collective = 1000 }, "does not know"},
		{func(r *plugin.Request) { r.DType = 1000 }, "does not know"},
		{func(r *plugin.Request) { r.Op = 1000 }, "does not know"},
		{func(r *plugin.Request) { r.Collective = plugin.Put }, "generic"},
	} {
		req := request(plugin.AllReduce, 4)
		test.change(&req)
		s := Transport{}.Supports(req)
		if len(s.Algorithms) != 0 || !strings.Contains(s.Reason, test.reason) {
			t.Errorf("%+v: %d algorithms, reason %q, want one with %q", req, len(s.Algorithms), s.Reason, test.reason)
		}
	}
}

// Reading a peer's memory is offered only where every rank can, and never in a
// world of one. The ways that both kinds of world have stay the same.
func TestSingleCopyNeedsPeerRead(t *testing.T) {
	moving := []plugin.Collective{
		plugin.Broadcast, plugin.AllGather, plugin.AllGatherV, plugin.AllToAll, plugin.AllToAllV,
		plugin.Gather, plugin.GatherV, plugin.Scatter, plugin.ScatterV, plugin.Send, plugin.Recv,
	}
	for _, c := range plugin.Collectives() {
		for _, world := range []int{1, 2, 5} {
			without, with := request(c, world), request(c, world)
			with.PeerRead = true
			difference := plugin.Support{Algorithms: Transport{}.Supports(with).Algorithms}
			for _, a := range (Transport{}).Supports(without).Algorithms {
				i := slices.Index(difference.Algorithms, a)
				if i < 0 {
					t.Fatalf("%s/%s in a world of %d is gone", c, a.Name, world)
				}
				difference.Algorithms = slices.Delete(difference.Algorithms, i, i+1)
			}
			offered := len(difference.Algorithms) == 1 && difference.Algorithms[0].Name == "single_copy"
			if want := world > 1 && slices.Contains(moving, c); offered != want || len(difference.Algorithms) > 1 {
				t.Errorf("%s in a world of %d: %v more, want single_copy %t", c, world, difference.Algorithms, want)
			}
		}
	}
}

// What the two ends of a message choose by must not be what only one knows: for
// every collective of such messages single_copy is never estimated dearer than
// direct, so its own switch by the pair's bytes is all that decides.
func TestPairsDecideByTheirOwnBytes(t *testing.T) {
	for _, c := range []plugin.Collective{plugin.AllToAllV, plugin.GatherV, plugin.ScatterV, plugin.Send, plugin.Recv} {
		for _, bytes := range []int64{0, 1, 1 << 10, 1 << 20, 1 << 40} {
			req := request(c, 4)
			req.Bytes, req.PeerRead = bytes, true
			if first := (Transport{}).Supports(req).Algorithms[0].Name; first != "single_copy" {
				t.Errorf("%s of %d bytes: %s comes first", c, bytes, first)
			}
		}
	}
}

// Supports is the same on every rank, whatever Rank says.
func TestSupportsIgnoresRank(t *testing.T) {
	for _, c := range plugin.Collectives() {
		a, b := request(c, 4), request(c, 4)
		b.Rank = 3
		if !slices.Equal(Transport{}.Supports(a).Algorithms, Transport{}.Supports(b).Algorithms) {
			t.Errorf("%s: the result depends on the rank", c)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, config := range map[string]plugin.OpenConfig{
		"rank":   {Rank: 2, World: 2},
		"world":  {World: maxWorld + 1},
		"empty":  {},
		"memory": {World: 2, Memory: plugin.MemoryKindCuda},
		"option": {World: 2, Options: map[string]string{"color": "red"}},
	} {
		_, err := Transport{}.Open(context.Background(), config)
		if !errors.Is(err, plugin.InvalidArgument) {
			t.Errorf("%s: %v, want invalid_argument", name, err)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	e := openEndpoints(t, 2)[0]
	for name, test := range map[string]struct {
		req       plugin.Request
		algorithm string
		want      plugin.Code
	}{
		"algorithm":  {request(plugin.AllReduce, 2), "three_shot", plugin.Unsupported},
		"collective": {request(plugin.Get, 2), "direct", plugin.Unsupported},
		"world":      {request(plugin.AllReduce, 3), "one_shot", plugin.InvalidArgument},
	} {
		if _, err := e.Prepare(context.Background(), test.req, test.algorithm); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Prepare(context.Background(), request(plugin.AllReduce, 2), "one_shot"); !errors.Is(err,
		plugin.Closed) {
		t.Errorf("after Close: %v, want closed", err)
	}
}

// All plans of large worlds stay within the limits of a plan.
func TestPlansOfLargeWorlds(t *testing.T) {
	for _, world := range []int{16, maxWorld} {
		l := newLayout(world)
		for c, list := range algorithms {
			for _, a := range list {
				for _, r := range []int{0, world - 1} {
					req := request(c, world)
					req.DType, req.Op, req.Rank = plugin.Float32, plugin.OpPremulSum, r
					if _, err := write(req, l, a); err != nil {
						t.Errorf("%s/%s, rank %d of %d: %v", c, a.name, r, world, err)
					}
				}
			}
		}
	}
}

// Slots are disjoint, aligned and inside the region, in any world.
func TestLayout(t *testing.T) {
	for _, world := range []int{1, 2, 3, 8, 64, maxWorld} {
		l := newLayout(world)
		type extent struct{ start, end int64 }
		var used []extent
		add := func(start, bytes int64) { used = append(used, extent{start, start + bytes}) }
		addSlots := func(s slots, rings, span int64) {
			if s.capacity%8 != 0 || s.head+s.capacity > s.stride || s.stride%line != 0 || s.base%page != 0 {
				t.Errorf("world %d: slots %+v", world, s)
			}
			for r := range rings {
				add(s.base+r*span, s.count*s.stride)
			}
		}
		n := int64(world)
		add(l.barrierCounter, word)
		add(l.exchangeCounter, word)
		add(l.blocksCounter, word)
		add(l.barrierSemaphore, line)
		add(l.mutual.offered, line)
		add(l.mutual.taken, line)
		addSlots(l.exchange, 1, 0)
		addSlots(l.blocks, 1, 0)
		for _, r := range l.tiny {
			add(r.produced, n*word)
			add(r.consumed, n*word)
			add(r.credits, n*line)
			addSlots(r.slots, 1, 0)
		}
		for i, p := range []pair{l.messages, l.personal, l.broadcast} {
			rings := n
			if i == 2 {
				rings = 1
			}
			add(p.offers.offered, rings*line)
			add(p.offers.taken, n*line)
			for _, r := range []ring{p.small, p.large} {
				add(r.produced, n*word)
				add(r.consumed, n*word)
				add(r.credits, n*line)
				addSlots(r.slots, rings, r.span)
				if r.count%2 != 0 {
					t.Errorf("world %d: a ring of %d slots has no halves", world, r.count)
				}
			}
		}
		slices.SortFunc(used, func(a, b extent) int { return int(a.start - b.start) })
		for i := 1; i < len(used); i++ {
			if used[i].start < used[i-1].end {
				t.Errorf("world %d: %v overlaps %v", world, used[i], used[i-1])
			}
		}
		if last := used[len(used)-1].end; last > l.bytes || l.bytes > 1<<30 {
			t.Errorf("world %d: the last slot ends at %d of %d bytes", world, last, l.bytes)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestBuffers(t *testing.T) {
	ctx := context.Background()
	before := openFiles(t)
	e := openEndpoints(t, 1)[0]
	r, err := e.Allocate(ctx, 7, 5000)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID != 7 || r.Role != plugin.RegionRoleBuffer || r.Bytes != 8192 || r.Handle.Generation == 0 ||
		r.Handle.Bytes != 8192 {
		t.Errorf("region %+v", r)
	}
	// A process that has the descriptor cannot make others fault by shrinking it.
	if err := unix.Ftruncate(r.Handle.FD, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrinking a buffer: %v, want EPERM", err)
	}
	for id, bytes := range map[uint32]int64{7: 1, 0: 1, 1: 1, 8: -1} {
		if _, err := e.Allocate(ctx, id, bytes); !errors.Is(err, plugin.InvalidArgument) {
			t.Errorf("Allocate(%d, %d): %v, want invalid_argument", id, bytes, err)
		}
	}
	if _, err := e.Allocate(ctx, 9, 0); err != nil { // freed by Close
		t.Error(err)
	}
	if err := e.Free(ctx, 7); err != nil {
		t.Error(err)
	}
	if err := e.Free(ctx, 7); !errors.Is(err, plugin.InvalidArgument) {
		t.Errorf("second Free: %v, want invalid_argument", err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.Allocate(ctx, 10, 1); !errors.Is(err, plugin.Closed) {
		t.Errorf("Allocate after Close: %v, want closed", err)
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d open files after Close, %d before", after, before)
	}
}

// A limit on open files is an error that says so, and leaves nothing open.
func TestOpenWithoutFileDescriptors(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	tight := limit
	tight.Cur = uint64(before) // room for one or two more
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
		t.Fatal(err)
	}
	var endpoints []plugin.Endpoint
	var err error
	for err == nil {
		var e plugin.Endpoint
		if e, err = (Transport{}).Open(context.Background(), plugin.OpenConfig{World: 2}); err == nil {
			endpoints = append(endpoints, e)
		}
	}
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); restored != nil {
		t.Fatal(restored)
	}
	if !errors.Is(err, plugin.OutOfMemory) || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("%v, want out_of_memory that names the rank", err)
	}
	for _, e := range endpoints {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d open files, %d before", after, before)
	}
}

// Whatever is asked, the result is a valid plan or an error, never a panic, and
// Prepare knows exactly the names that Supports gives.
func FuzzPrepare(f *testing.F) {
	f.Add(uint32(0), uint32(7), uint32(0), int64(8), 2, 1, uint32(0), 0, false, "one_shot")
	f.Add(uint32(3), uint32(1), uint32(0), int64(1<<20), 3, 1, uint32(0), 2, true, "single_copy")
	f.Add(uint32(8), uint32(1), uint32(5), int64(-1), 0, 2, uint32(1), -1, true, "direct")
	f.Fuzz(func(t *testing.T, collective, dtype, op uint32, bytes int64, world, hosts int, memory uint32, rank int,
		peerRead bool, name string) {
		req := plugin.Request{
			Collective: plugin.Collective(collective), DType: plugin.DType(dtype), Op: plugin.Op(op), Bytes: bytes,
			World: world, Hosts: hosts, Memory: plugin.MemoryKind(memory), Rank: rank, PeerRead: peerRead,
		}
		offered := slices.ContainsFunc(Transport{}.Supports(req).Algorithms,
			func(a plugin.Algorithm) bool { return a.Name == name })
		size := min(max(world, 1), 8)
		e := &endpoint{rank: min(max(rank, 0), size-1), world: size, layout: newLayout(size)}
		plan, err := e.Prepare(context.Background(), req, name)
		switch {
		case err == nil && !offered:
			t.Errorf("a plan for %+v by %q, which Supports does not offer", req, name)
		case err == nil:
			if err := plan.Validate(); err != nil {
				t.Error(err)
			}
		case offered && req.World == e.world && req.Rank == e.rank:
			t.Errorf("no plan for %+v by %q: %v", req, name, err)
		case plugin.CodeOf(err) == plugin.Internal:
			t.Error(err)
		}
	})
}
