package bench

import (
	"errors"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// meeter lets all ranks meet between measurements: by a barrier or, where the transport has none, by another operation
// that ends on no rank before all have called it.
type meeter struct {
	*host.Communicator
	barrier  func(host.Stream) error // nil: the communicator's
	announce func(n *int64) error    // gives every rank rank 0's number; nil: not chosen yet
}

// meetBytes is the size of meetBuffer: what a rank sends, and behind it what it receives of all ranks.
const (
	meetBytes = 2 * meetRecv
	meetRecv  = 8 * plugin.MaxWorld
)

// Barrier returns when every rank has called it, on a stream once that has come there.
func (m *meeter) Barrier(stream host.Stream) error {
	if m.barrier == nil {
		return m.Communicator.Barrier(stream)
	}
	return m.barrier(stream)
}

// choose takes the first way to meet that the transport has, alike on all ranks: what it lacks it lacks on each.
func (m *meeter) choose(space space, c *Config) error {
	a, err := space.buffer(meetBuffer, meetBytes)
	if err != nil {
		return err
	}
	do := func(collective plugin.Collective, root int, send, recv unsafe.Pointer, stream host.Stream) error {
		op := host.Operation{Collective: collective, Root: root, Send: send, Recv: recv, Count: 1, DType: c.DType,
			Op: c.Op, Stream: stream}
		if c.Op == plugin.OpPremulSum {
			op.Scalar = scalar
		}
		return m.Do(&op)
	}
	send, recv := a.at, a.part(meetRecv, meetRecv).at
	ways := []func(host.Stream) error{
		m.Communicator.Barrier,
		func(s host.Stream) error { return do(plugin.AllReduce, 0, send, recv, s) },
		func(s host.Stream) error { return do(plugin.AllGather, 0, send, recv, s) },
		func(s host.Stream) error { return do(plugin.AllToAll, 0, send, recv, s) },
		func(s host.Stream) error { // from each rank in turn
			for root := range c.World {
				if err := do(plugin.Broadcast, root, recv, recv, s); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return first("between measurements all ranks meet in a barrier, all_reduce, all_gather, all_to_all or broadcast",
		len(ways), func(i int) error {
			m.barrier = ways[i]
			if err := m.barrier(space.stream()); err != nil {
				return err
			}
			return space.finish()
		})
}

// announced gives every rank rank 0's number, in host memory.
func (m *meeter) announced(space *hostSpace, n *int64) error {
	if m.announce != nil {
		return m.announce(n)
	}
	a, err := space.buffer(meetBuffer, meetBytes)
	if err != nil {
		return err
	}
	send, recv := (*int64)(a.at), (*int64)(a.part(meetRecv, meetRecv).at) // the first of recv is rank 0's
	run := func(n *int64, collective func() error) error {
		*send = 0
		if m.Rank() == 0 {
			*send = *n
		}
		if err := collective(); err != nil {
			return err
		}
		*n = *recv
		return nil
	}
	from, to := unsafe.Pointer(send), unsafe.Pointer(recv)
	ways := []func() error{
		func() error { return m.Broadcast(from, to, 1, plugin.Int64, 0, nil) },
		func() error { return m.AllReduce(from, to, 1, plugin.Int64, plugin.OpSum, nil) },
		func() error { return m.AllGather(from, to, 1, plugin.Int64, nil) },
		func() error { // the same number for every rank
			for i := range m.World() {
				*(*int64)(unsafe.Add(from, 8*i)) = *send
			}
			return m.AllToAll(from, to, 1, plugin.Int64, nil)
		},
	}
	return first("rank 0 says how often to run by broadcast, all_reduce, all_gather or all_to_all of int64; --iters says it",
		len(ways), func(i int) error {
			m.announce = func(n *int64) error { return run(n, ways[i]) }
			return m.announce(n)
		})
}

// first tries ways in turn, until one is not unsupported.
func first(want string, ways int, try func(int) error) error {
	var failed error
	for i := range ways {
		err := try(i)
		if !errors.Is(err, plugin.Unsupported) {
			return err
		}
		if failed == nil {
			failed = err
		}
	}
	return plugin.Errorf(plugin.Unsupported, "bench: %s, and the transport has none of these: %w", want, failed)
}
