package host_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// uncounted is the transport as it would be without counts on the device.
type uncounted struct{ cudaipctest.Transport }

func (u uncounted) Info() plugin.Info {
	i := u.Transport.Info()
	i.Name, i.Features = "uncounted", i.Features&^plugin.FeatureDeviceCounts
	return i
}

func init() { host.Register(uncounted{onMachine}) }

// impossible lists changes of rank 1's arrays, of three ranks, and the error of each.
// Elements are of 4 bytes, each message has 10, and there is room for 60.
var impossible = []struct {
	name   string
	placed bool
	change func(a *[4][]int64)
	text   string
}{
	{"negative send count", false, func(a *[4][]int64) { a[0][0] = -3 }, "send count -3 for rank 0 is negative"},
	{"negative send count to itself", true, func(a *[4][]int64) { a[0][1] = -1 }, "send count -1 for rank 1 is negative"},
	{"least send count", false, func(a *[4][]int64) { a[0][2] = math.MinInt64 },
		"send count -9223372036854775808 for rank 2 is negative"},
	{"negative receive count", true, func(a *[4][]int64) { a[2][2] = -7 }, "receive count -7 for rank 2 is negative"},
	{"negative send displacement", true, func(a *[4][]int64) { a[1][0] = -10 },
		"send displacement -10 for rank 0 is negative"},
	{"negative receive displacement", true, func(a *[4][]int64) { a[3][2] = -1 },
		"receive displacement -1 for rank 2 is negative"},
	{"send count past the capacity", false, func(a *[4][]int64) { a[0][2] = 41 },
		"send count 41 at displacement 20 for rank 2 reaches past the capacity of 60"},
	{"receive count past the capacity", true, func(a *[4][]int64) { a[2][0] = 61 },
		"receive count 61 at displacement 26 for rank 0 reaches past the capacity of 60"},
	{"send displacement past the capacity", true, func(a *[4][]int64) { a[1][2] = 51 },
		"send count 10 at displacement 51 for rank 2 reaches past the capacity of 60"},
	{"receive displacement past the capacity", true, func(a *[4][]int64) { a[3][0] = 60 },
		"receive count 10 at displacement 60 for rank 0 reaches past the capacity of 60"},
	{"huge send count", false, func(a *[4][]int64) { a[0][0] = math.MaxInt64 },
		"send count 9223372036854775807 at displacement 0 for rank 0 reaches past the capacity of 60"},
	{"huge receive displacement", true, func(a *[4][]int64) { a[3][0] = math.MaxInt64 },
		"receive count 10 at displacement 9223372036854775807 for rank 0 reaches past the capacity of 60"},
	{"count whose bytes wrap around", true, func(a *[4][]int64) { a[0][2] = 1 << 62 },
		"send count 4611686018427387904 at displacement 3 for rank 2 reaches past the capacity of 60"},
	{"own count", false, func(a *[4][]int64) { a[0][1] = 9 },
		"send count 9 of this rank to itself differs from receive count 10"},
	{"empty own count", true, func(a *[4][]int64) { a[2][1] = 0 },
		"send count 10 of this rank to itself differs from receive count 0"},
}

// Counts that cannot be are an error on all ranks, which says whose, in an eager call
// and in a replay. Of that rank nothing is sent, and nothing is stored there.
func TestImpossibleCountsOnTheDeviceAreNamed(t *testing.T) {
	const n, each = 3, 10
	s := splits{{each, each, each}, {each, each, each}, {each, each, each}}
	for i, test := range impossible {
		t.Run(test.name, func(t *testing.T) {
			ended := meeting(n)
			errs := deviceErrors(t, gpus(t, n), func(_ int, o *host.Options) { o.Timeout = time.Minute }, func(r *rank) error {
				x, err := r.exchange(plugin.Float32, 60/n-n)
				if err == nil && x.capacity != 60 {
					err = fmt.Errorf("room for %d elements", x.capacity)
				}
				call, destroy := func() error { return x.call(test.placed) }, func() error { return nil }
				if replayed := i%2 == 1; replayed && err == nil {
					var g captured
					g, err = x.graph(call)
					call, destroy = g.launch, g.destroy
				}
				arrays := s.arrays(r.Rank(), test.placed)
				want := x.expected(s, test.placed)
				// Counts that can be go well before.
				err = errors.Join(err, x.put(arrays), call(), x.check(want), x.once(splitsOf(n, i, each), test.placed), r.meet())
				if err != nil {
					return err
				}
				if r.Rank() == 1 {
					test.change(&arrays)
				}
				if err = errors.Join(x.put(arrays), call()); err != nil {
					return err
				}
				verdict := r.told(i)
				err = errors.Join(r.driver.SynchronizeStream(r.ctx, r.stream), ended())
				got := x.nothing()
				err = errors.Join(err, r.driver.Read(r.ctx, got, x.recv))
				if from := s.arrays(r.Rank(), test.placed)[3][1]; r.Rank() == 1 {
					want = x.nothing()
				} else { // the others may have exchanged theirs
					got, want = got[4*from:4*(from+each)], x.nothing()[:4*each]
				}
				if err := errors.Join(err, equal(got, want), destroy(), r.Close(), x.free()); err != nil {
					return err
				}
				return verdict
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.InvalidArgument, "rank %d", rank)
				require.ErrorContains(t, err, "counts in device memory on rank 1: "+test.text, "rank %d", rank)
				var e *plugin.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, 1, e.Rank, "rank %d", rank)
			}
		})
	}
}

// told returns a communicator's failure in one of three ways: without a call, by
// Synchronize, or by the next call.
func (r *rank) told(way int) error {
	failed := eventually("the failure", func() bool { return r.Err() != nil })
	switch {
	case failed != nil:
		return failed
	case way%3 == 0:
		return r.Err()
	case way%3 == 1:
		return r.sync()
	}
	return r.Barrier(r)
}

// Two ends whose counts differ are reported as with counts on the host.
func TestDeviceCountsOfTwoEndsMustAgree(t *testing.T) {
	for _, lengths := range [][2]int64{{10, 11}, {4000, 3}, {300_000, 300_001}, {400_000, 10}, {10, 300_000}} {
		t.Run(fmt.Sprintf("%d to %d", lengths[0], lengths[1]), func(t *testing.T) {
			errs := deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.Timeout = time.Minute }, func(r *rank) error {
				x, err := r.exchange(plugin.Float32, max(lengths[0], lengths[1]))
				s := splitsOf(2, 1, 10)
				s[0][1] = lengths[0]
				err = errors.Join(err, x.once(s, false), r.meet())
				if err != nil {
					return err
				}
				if r.Rank() == 1 {
					s[0][1] = lengths[1]
				}
				if err := errors.Join(x.put(s.arrays(r.Rank(), false)), x.call(false)); err != nil {
					return err
				}
				verdict := r.told(0)
				if err := errors.Join(r.driver.SynchronizeStream(r.ctx, r.stream), r.Close(), x.free()); err != nil {
					return err
				}
				return verdict
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("rank 0 sends %d bytes to rank 1, which expects %d", 4*lengths[0],
					4*lengths[1]), "rank %d", rank)
			}
		})
	}
}

// One rank's counts are on the host: that is another call than the others', which
// prepare theirs, while its own is prepared since init. With SHUNT_CHECK it is said before
// anything is enqueued.
func TestCountsAreOnTheDeviceOnAllRanksOrNone(t *testing.T) {
	const n = 3
	for _, checked := range []bool{false, true} {
		for _, odd := range []int{0, 2} {
			t.Run(fmt.Sprintf("rank %d, checked %v", odd, checked), func(t *testing.T) {
				called := "all_to_all_v, count 0 of float32"
				if checked {
					t.Setenv("SHUNT_CHECK", "on")
					called = "all_to_all_v of float32"
				}
				ended := meeting(n)
				errs := deviceErrors(t, gpus(t, n), nil, func(r *rank) error {
					x, err := r.exchange(plugin.Float32, 10)
					s := splitsOf(n, 1, 10)
					if err = errors.Join(err, x.put(s.arrays(r.Rank(), false))); err != nil {
						return err
					}
					if r.Rank() == odd {
						err = x.hostCall(s, false)
					} else {
						err = x.call(false)
					}
					verdict := r.verdict(err)
					if err := errors.Join(r.driver.SynchronizeStream(r.ctx, r.stream), ended(), r.Close(), x.free()); err != nil {
						return err
					}
					return verdict
				})
				for rank, err := range errs {
					require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
					require.ErrorContains(t, err, "ranks disagree: rank", "rank %d", rank)
					require.ErrorContains(t, err, fmt.Sprintf("called #1 %s, counts on the device", called), "rank %d", rank)
					require.ErrorContains(t, err, fmt.Sprintf("rank %d called #1 %s", odd, called), "rank %d", rank)
					require.NotContains(t, err.Error(), fmt.Sprintf("rank %d called #1 %s, counts", odd, called), "rank %d", rank)
				}
			})
		}
	}
}

// What is wrong before the counts are read is refused at once, and the communicator stays usable.
func TestDeviceCountsAreRefusedBeforehand(t *testing.T) {
	const n = 2
	deviceWorld(t, n, func(r *rank) error {
		x, err := r.exchange(plugin.Float32, 10)
		if err != nil {
			return err
		}
		arrays := splitsOf(n, 1, 10).arrays(r.Rank(), true)
		top := uintptr(math.MaxUint64 - 7)
		for _, test := range []struct {
			change func(o *host.Operation)
			text   string
		}{
			{func(o *host.Operation) { o.DeviceCounts.SendCounts = nil }, "send counts in device memory are null"},
			{func(o *host.Operation) { o.DeviceCounts.RecvCounts = nil }, "receive counts in device memory are null"},
			{func(o *host.Operation) { o.DeviceCounts.SendCounts = off(o.DeviceCounts.SendCounts, 4) },
				"send counts in device memory, 0x"},
			{func(o *host.Operation) { o.DeviceCounts.SendDispls = off(o.DeviceCounts.SendDispls, 1) },
				"are not aligned to 8 bytes"},
			{func(o *host.Operation) { o.DeviceCounts.RecvDispls = address(top) },
				"receive displacements in device memory, 0xfffffffffffffff8, wrap around the address space"},
			{func(o *host.Operation) { o.DeviceCounts.SendCapacity = -1 }, "send capacity -1 is negative"},
			{func(o *host.Operation) { o.DeviceCounts.RecvCapacity = -2 }, "receive capacity -2 is negative"},
			{func(o *host.Operation) { o.DeviceCounts.SendCapacity = math.MaxInt64 / 3 },
				"send capacity 3074457345618258602 of float32 overflows"},
			{func(o *host.Operation) { o.DeviceCounts.RecvCapacity = 1 << 61 },
				"receive capacity 2305843009213693952 of float32 overflows"},
			{func(o *host.Operation) { o.SendCounts = arrays[0] }, "counts are either on the device or on the host, not both"},
			{func(o *host.Operation) { o.RecvDispls = arrays[3] }, "counts are either on the device or on the host, not both"},
			{func(o *host.Operation) { o.Collective = plugin.AllToAll }, "only all_to_all_v takes counts in device memory"},
			{func(o *host.Operation) { o.Collective, o.Op = plugin.AllReduce, plugin.OpSum },
				"only all_to_all_v takes counts in device memory"},
			{func(o *host.Operation) { o.DeviceCounts.RecvCounts = o.Recv }, "receive counts in device memory, 0x"},
			{func(o *host.Operation) { o.DeviceCounts.SendDispls = off(o.Recv, 4*x.capacity-8) }, "lie in the receive memory"},
			{func(o *host.Operation) { o.DeviceCounts.SendCounts = off(o.Recv, -8) }, "lie in the receive memory"},
			{func(o *host.Operation) { o.Send = nil }, "send memory is null"},
			{func(o *host.Operation) { o.Recv = nil }, "recv memory is null"},
			{func(o *host.Operation) { o.Recv = off(o.Recv, 2) }, "recv memory"},
			{func(o *host.Operation) { o.Recv = o.Send }, "overlap but are not in place"},
		} {
			op := host.Operation{Collective: plugin.AllToAllV, Send: pointer(x.send), Recv: pointer(x.recv), DType: x.dtype,
				DeviceCounts: x.given(true), Stream: r}
			test.change(&op)
			err := r.Do(&op)
			if !errors.Is(err, plugin.InvalidArgument) || !contains(err, test.text) ||
				!contains(err, fmt.Sprintf("rank %d", r.Rank())) {
				return fmt.Errorf("want %q: %w", test.text, err)
			}
		}
		// Right in front of receive memory, or behind it, is beside it; no room needs no memory.
		none := x.given(true)
		none.SendCapacity, none.RecvCapacity = 0, 0
		if _, err := r.ExplainOnDevice(plugin.DType(99)); !errors.Is(err, plugin.InvalidArgument) {
			return fmt.Errorf("explained %w", err)
		}
		if e, err := r.ExplainOnDevice(x.dtype); err != nil || e.Chosen != "cudaipc/ll128" {
			return fmt.Errorf("%q would run, %w", e.Chosen, err)
		}
		err = errors.Join(x.put([4][]int64{{0, 0}, {5, 5}, {0, 0}, {9, 9}}), r.AllToAllVOnDevice(nil, nil, none, x.dtype, r),
			x.check(x.nothing()))
		return errors.Join(err, x.once(splitsOf(n, 2, 10), true), x.free())
	})
}

func off(p unsafe.Pointer, bytes int64) unsafe.Pointer { return address(uintptr(p) + uintptr(bytes)) }

func address(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func TestDeviceCountsNeedCudaMemory(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		x, counts := make([]float32, 8), make([]int64, 2)
		err := c.AllToAllVOnDevice(at(x[:4]), at(x[4:]),
			host.DeviceCounts{SendCounts: at(counts), RecvCounts: at(counts), SendCapacity: 4, RecvCapacity: 4}, plugin.Float32,
			nil)
		if !errors.Is(err, plugin.InvalidArgument) || !contains(err,
			"counts in device memory need a communicator on CUDA memory") {
			return fmt.Errorf("got %w", err)
		}
		if _, err := c.ExplainOnDevice(plugin.Float32); !errors.Is(err, plugin.Unsupported) {
			return fmt.Errorf("explained %w", err)
		}
		return c.Barrier(nil)
	})
}

func TestCheckFindsCountsThatAreNotInTheGPUsMemory(t *testing.T) {
	t.Setenv("SHUNT_CHECK", "on")
	deviceWorld(t, 2, func(r *rank) error {
		x, err := r.exchange(plugin.Float32, 10)
		if err != nil {
			return err
		}
		mine := make([]int64, 2)
		for i, name := range []string{"send counts", "send displacements", "receive counts", "receive displacements"} {
			counts := x.given(true)
			*[]*unsafe.Pointer{&counts.SendCounts, &counts.SendDispls, &counts.RecvCounts, &counts.RecvDispls}[i] = at(mine)
			err := r.AllToAllVOnDevice(pointer(x.send), pointer(x.recv), counts, x.dtype, r)
			if !errors.Is(err, plugin.InvalidArgument) || !contains(err,
				fmt.Sprintf("all_to_all_v on rank %d: %s %#x are not in the GPU's memory", r.Rank(), name, at(mine))) {
				return fmt.Errorf("%s on the host: %w", name, err)
			}
		}
		return errors.Join(x.once(splitsOf(2, 1, 10), true), x.once(splitsOf(2, 2, 10), false), x.free())
	})
}

func TestTransportsWithoutDeviceCountsSayWhy(t *testing.T) {
	deviceErrs := deviceErrors(t, gpus(t, 2), func(_ int,
		o *host.Options) {
		o.Transports = []string{"builtin:uncounted"}
	}, func(r *rank) error {
		x, err := r.exchange(plugin.Float32, 10)
		if err != nil {
			return err
		}
		s := splitsOf(2, 1, 10)
		if err := errors.Join(x.hostCall(s, false), x.check(x.expected(s, false))); err != nil {
			return err
		}
		if _, err := x.ExplainOnDevice(x.dtype); !errors.Is(err, plugin.Unsupported) ||
			!contains(err, "it takes no counts from device memory") {
			return fmt.Errorf("explained %w", err)
		}
		return errors.Join(x.call(false), x.free())
	})
	for rank, err := range deviceErrs {
		require.ErrorIs(t, err, plugin.Unsupported, "rank %d", rank)
		require.ErrorContains(t, err, "uncounted: it takes no counts from device memory", "rank %d", rank)
	}
}

func TestRecordsSayThatCountsAreOnTheDevice(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		x, err := r.exchange(plugin.Float32, 10)
		s := splitsOf(2, 1, 10)
		if err = errors.Join(err, x.once(s, false), x.hostCall(s, false), r.sync()); err != nil {
			return err
		}
		var out strings.Builder
		if err := r.WriteRecords(&out); err != nil {
			return err
		}
		var report struct {
			Operations []struct {
				Collective string
				OnDevice   *bool `json:"counts_on_device"`
			}
		}
		if err := json.Unmarshal([]byte(out.String()), &report); err != nil {
			return err
		}
		o := report.Operations
		if len(o) != 2 || o[0].OnDevice == nil || !*o[0].OnDevice || o[1].OnDevice != nil {
			return fmt.Errorf("recorded %s", out.String())
		}
		return x.free()
	})
}
