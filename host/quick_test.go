package host_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// Messages that come again and again with the same length and root, in any order of
// shapes, with memory that changes and with other operations in between: each
// brings what was sent.
func TestRepeatedMessagesBringWhatWasSent(t *testing.T) {
	const n, rounds = 3, 24
	counts := []int64{0, 1, 2, 14, 15, 62, 63, 1022, 1024, 1025, 20000}
	world(t, n, func(c *host.Communicator) error {
		number := 0
		for round := range rounds {
			for shape := range 2 * len(counts) {
				count, root := counts[shape/2], (round/8+shape)%n
				number++
				// In place and not, at changing addresses.
				x := ramp(number, int(count)+8)[round%8:]
				y := make([]float32, int(count)+8)[(round+shape)%8:]
				want := append([]float32(nil), x[:count]...)
				if shape%2 == 0 {
					y = x
					if c.Rank() != root {
						clear(x)
					}
				}
				op := &host.Operation{Collective: plugin.Broadcast, Send: at(x), Recv: at(y), Count: count, DType: plugin.Float32,
					Root: root}
				if c.Rank() != root {
					op.Send = nil
				}
				var err error
				if request, late := c.DoFor(op, time.Hour); request != nil || late != nil {
					err = errors.Join(errWrong, late)
				}
				if err := errors.Join(err, equal(y[:count], want)); err != nil {
					return fmt.Errorf("broadcast %d, %d elements from %d: %w", number, count, root, err)
				}
				// And to the next rank but one.
				next, previous := (c.Rank()+1)%n, (c.Rank()+n-1)%n
				z := ramp(c.Rank()+number, int(count))
				theirs := make([]float32, count)
				exchange := []error{nil, nil}
				send := func() error { return c.Send(at(z), count, plugin.Float32, next, nil) }
				recv := func() error { return c.Recv(at(theirs), count, plugin.Float32, previous, nil) }
				if c.Rank() == 0 {
					exchange[0], exchange[1] = send(), recv()
				} else {
					exchange[0], exchange[1] = recv(), send()
				}
				if err := errors.Join(exchange[0], exchange[1], equal(theirs, ramp(previous+number, int(count)))); err != nil {
					return fmt.Errorf("exchange %d, %d elements: %w", number, count, err)
				}
				if number%50 == 0 {
					if err := c.Barrier(nil); err != nil {
						return err
					}
				}
			}
			if round%10 == 7 { // what was looked up is looked up again
				if _, err := c.NewWindow(context.Background(), 64); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// A repeated call is checked as every call is.
func TestRepeatedMessagesAreChecked(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		x := make([]float64, 8)
		do := func(send, recv unsafe.Pointer, root int) error {
			return c.Broadcast(send, recv, 4, plugin.Float64, root, nil)
		}
		for i := range 20 {
			x[0] = float64(i)
			if err := do(at(x), at(x), i%2); err != nil {
				return err
			}
			if x[0] != float64(i) {
				return errWrong
			}
		}
		me, bytes := c.Rank(), at(x)
		for name, err := range map[string]error{
			"null send memory":       do(nil, bytes, me),
			"null receive memory":    do(bytes, nil, 1-me),
			"misaligned":             do(bytes, unsafe.Add(bytes, 1), 1-me),
			"misaligned send memory": do(unsafe.Add(bytes, 4), bytes, me),
			"overlap":                do(bytes, unsafe.Add(bytes, 16), me),
		} {
			if !errors.Is(err, plugin.InvalidArgument) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		runtime.KeepAlive(x)
		return c.Barrier(nil)
	})
}

// Repeated calls are in the flight recorder, and the peers' view of a rank is kept up to date.
func TestRepeatedMessagesAreRecorded(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		x := make([]float32, 4)
		for range 30 {
			if err := c.Broadcast(at(x), at(x), 4, plugin.Float32, 0, nil); err != nil {
				return err
			}
		}
		entries := c.Records()
		if len(entries) != 30 {
			return fmt.Errorf("%d records", len(entries))
		}
		for i, e := range entries {
			if e.Number != uint64(i+1) || e.Collective != "broadcast" || e.State != "ended" || e.End < e.Begin || e.Count != 4 ||
				e.Root != 0 {
				return fmt.Errorf("record %d is %+v", i, e)
			}
		}
		return nil
	})
}

// A call that follows the last one but for a rank that is gone fails as it always
// does: what is short must not hide it.
func TestRepeatedMessagesEndWithTheCommunicator(t *testing.T) {
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 2)
		for range 10 {
			if err := c.Broadcast(at(x), at(x), 2, plugin.Float32, 0, nil); err != nil {
				return err
			}
		}
		if err := c.Barrier(nil); err != nil {
			return err
		}
		if c.Rank() == 1 {
			c.Abort("enough")
			return nil
		}
		for {
			// The root runs ahead until it learns of the abort.
			if err := c.Broadcast(at(x), at(x), 2, plugin.Float32, 0, nil); err != nil {
				return err
			}
		}
	})
	if errs[1] != nil || !errors.Is(errs[0], plugin.Aborted) {
		t.Errorf("the ranks ended with %v", errs)
	}
}

// A call like the latest one is not worked out anew; what came in between shows
// nowhere, whatever has used the same scratch.
func TestRepeatedCallsOfAllCollectives(t *testing.T) {
	const n, most = 3, 40
	world(t, n, func(c *host.Communicator) error {
		me := c.Rank()
		x, y := make([]float64, n*most+1), make([]float64, n*most+1)
		value := func(rank, i, call int) float64 { return float64(rank*1000 + i + 7*call) }
		counts := []int64{3, 0, 5}
		for call := range 400 {
			count := int64(1 + call/5%most)
			for i := range x {
				x[i], y[i] = value(me, i, call), -1
			}
			var err error
			var want []float64
			// Two of the same, then another one.
			switch kind := call / 2 % 5; kind {
			case 0:
				err = c.AllReduce(at(x), at(y), count, plugin.Float64, plugin.OpSum, nil)
				for i := range int(count) {
					want = append(want, value(0, i, call)+value(1, i, call)+value(2, i, call))
				}
			case 1:
				err = c.AllToAll(at(x), at(y), count, plugin.Float64, nil)
				for from := range n {
					for i := range int(count) {
						want = append(want, value(from, me*int(count)+i, call))
					}
				}
			case 2:
				err = c.AllGather(at(x), at(y), count, plugin.Float64, nil)
				for from := range n {
					for i := range int(count) {
						want = append(want, value(from, i, call))
					}
				}
			case 3:
				err = c.Do(&host.Operation{Collective: plugin.AllGatherV, Send: at(x), Recv: at(y), Count: counts[me],
					RecvCounts: counts, DType: plugin.Float64})
				for from := range n {
					for i := range int(counts[from]) {
						want = append(want, value(from, i, call))
					}
				}
			case 4:
				root := call / 10 % n
				err = c.Reduce(at(x), at(y), count, plugin.Float64, plugin.OpMax, root, nil)
				if me == root {
					for i := range int(count) {
						want = append(want, value(n-1, i, call))
					}
				}
			}
			if err := errors.Join(err, equal(y[:len(want)], want)); err != nil {
				return fmt.Errorf("call %d: %w", call, err)
			}
			if y[len(want)] != -1 {
				return fmt.Errorf("call %d wrote more than %d elements", call, len(want))
			}
			if call%6 == 0 { // the next call is the same one, and these are none
				bad := c.AllReduce(unsafe.Add(at(x), 1), at(y), count, plugin.Float64, plugin.OpSum, nil)
				overlapping := c.AllReduce(at(x), at(x[1:]), 2, plugin.Float64, plugin.OpSum, nil)
				if !errors.Is(bad, plugin.InvalidArgument) || !errors.Is(overlapping, plugin.InvalidArgument) {
					return fmt.Errorf("call %d: %w, %w", call, bad, overlapping)
				}
			}
		}
		return nil
	})
}
