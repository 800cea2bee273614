package host_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

// threads runs a function as every rank of a small world, ranks being goroutines. Programs have a process for each
// rank, which `shunt run` starts, and call host.Init with the zero Options.
func threads(n int, body func(c *host.Communicator) error) {
	id, root, err := bootstrap.NewID("")
	if err != nil {
		log.Fatal(err)
	}
	defer root.Close()
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			c, err := host.Init(context.Background(), options(id, rank, n))
			if err == nil {
				err = errors.Join(body(c), c.Close())
			}
			if err != nil {
				log.Print(err)
			}
		})
	}
	ranks.Wait()
}

func ExampleAllReduce() {
	threads(4, func(c *host.Communicator) error {
		x := []float32{float32(c.Rank()), 1}
		if err := host.AllReduce(c, x, x, plugin.OpSum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(x)
		}
		return nil
	})
	// Output: [6 4]
}

func ExampleAllGather() {
	threads(3, func(c *host.Communicator) error {
		everyone := make([]int, c.World())
		if err := host.AllGather(c, []int{c.Rank() * 10}, everyone); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(everyone)
		}
		return nil
	})
	// Output: [0 10 20]
}

func ExampleAllToAllV() {
	threads(2, func(c *host.Communicator) error {
		// Rank r sends one element to rank 0 and two to rank 1.
		send := []int32{int32(c.Rank()), int32(c.Rank()), int32(c.Rank())}
		n := int64(c.Rank() + 1)
		recv := make([]int32, 2*n)
		if err := host.AllToAllV(c, send, []int64{1, 2}, recv, []int64{n, n}); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(recv)
		}
		return nil
	})
	// Output: [0 0 1 1]
}

type celsius float64

// checkSlices runs every function on slices of T.
func checkSlices[T host.Element](c *host.Communicator) error {
	n := c.World()
	rank := T(c.Rank())
	all := make([]T, n) // 0 to n - 1
	for r := range all {
		all[r] = T(r)
	}
	sum := T(n * (n - 1) / 2)
	var errs []error
	check := func(err error, got, want []T) {
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("rank %d: %v, want %v", c.Rank(), got, want)
		}
		errs = append(errs, err)
	}
	x := make([]T, 1)
	check(host.AllReduce(c, []T{rank}, x, plugin.OpSum), x, []T{sum})
	x, want := []T{0}, []T{0}
	if c.Rank() == 1 {
		want = []T{sum}
	}
	check(host.Reduce(c, []T{rank}, x, plugin.OpSum, 1), x, want)
	x = []T{rank + 3}
	check(host.Broadcast(c, x, 1), x, []T{4})
	y := make([]T, n)
	check(host.AllGather(c, []T{rank}, y), y, all)
	check(host.ReduceScatter(c, all, x, plugin.OpMax), x, []T{rank})
	y = make([]T, n)
	check(host.AllToAll(c, slices.Repeat([]T{rank}, n), y), y, all)
	ones := slices.Repeat([]int64{1}, n)
	y = make([]T, n)
	check(host.AllToAllV(c, slices.Repeat([]T{rank}, n), ones, y, ones), y, all)
	y, wantAll := make([]T, n), make([]T, n)
	if c.Rank() == 1 {
		wantAll = all
	}
	check(host.Gather(c, []T{rank}, y, 1), y, wantAll)
	check(host.Scatter(c, all, x, 1), x, []T{rank})
	switch c.Rank() {
	case 0:
		check(host.Send(c, []T{7}, 1), nil, nil)
	case 1:
		check(host.Recv(c, x, 0), x, []T{7})
	}
	check(host.AllReduce(c, []T(nil), nil, plugin.OpSum), nil, nil)
	return errors.Join(errs...)
}

func TestSlices(t *testing.T) {
	world(t, 3, func(c *host.Communicator) error {
		return errors.Join(checkSlices[int8](c), checkSlices[uint8](c), checkSlices[int32](c), checkSlices[uint32](c),
			checkSlices[int64](c), checkSlices[uint64](c), checkSlices[int](c), checkSlices[uint](c),
			checkSlices[float32](c), checkSlices[float64](c), checkSlices[celsius](c))
	})
}

// What is added up depends on the dtype: bits of one type would be another sum in another.
func TestSlicesHaveTheirDType(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		half, small, large := []float32{0.5}, []int8{-1}, []uint64{1 << 63}
		err := errors.Join(host.AllReduce(c, half, half, plugin.OpSum), host.AllReduce(c, small, small, plugin.OpMin),
			host.AllReduce(c, large, large, plugin.OpMax))
		if half[0] != 1 || small[0] != -1 || large[0] != 1<<63 {
			return fmt.Errorf("%v %v %v: %w", half, small, large, err)
		}
		return err
	})
}

// A length that does not fit is an error on the rank that has it, and one that names it on the others.
func TestSlicesOfWrongLength(t *testing.T) {
	for name, call := range map[string]func(c *host.Communicator, n int) error{
		"all_reduce": func(c *host.Communicator, n int) error {
			return host.AllReduce(c, make([]int32, 4), make([]int32, 4+n), plugin.OpSum)
		},
		"all_gather": func(c *host.Communicator, n int) error {
			return host.AllGather(c, make([]int32, 4), make([]int32, 8+n))
		},
		"reduce_scatter": func(c *host.Communicator, n int) error {
			return host.ReduceScatter(c, make([]int32, 8+n), make([]int32, 4), plugin.OpSum)
		},
		"all_to_all": func(c *host.Communicator, n int) error {
			return host.AllToAll(c, make([]int32, 8+n), make([]int32, 8+n))
		},
		"all_to_all_v": func(c *host.Communicator, n int) error {
			return host.AllToAllV(c, make([]int32, 2-n), []int64{1, 1}, make([]int32, 2), []int64{1, 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
				n := 0
				if c.Rank() == 1 {
					n = 1
				}
				return call(c, n)
			})
			require.ErrorIs(t, errs[1], plugin.InvalidArgument)
			require.ErrorContains(t, errs[1], name+" on rank 1: ")
			require.Error(t, errs[0])
			require.ErrorContains(t, errs[0], "rank 1")
		})
	}
}

// premul_sum without a scalar is no sum of zeros.
func TestPremulSumNeedsAScalar(t *testing.T) {
	world(t, 1, func(c *host.Communicator) error {
		x, premul := []float32{3}, plugin.OpPremulSum
		p := at(x)
		for name, call := range map[string]func() error{
			"all_reduce":       func() error { return c.AllReduce(p, p, 1, plugin.Float32, premul, nil) },
			"all_reduce ":      func() error { return host.AllReduce(c, x, x, premul) },
			"reduce":           func() error { return c.Reduce(p, p, 1, plugin.Float32, premul, 0, nil) },
			"reduce ":          func() error { return host.Reduce(c, x, x, premul, 0) },
			"reduce_scatter":   func() error { return c.ReduceScatter(p, p, 1, plugin.Float32, premul, nil) },
			"reduce_scatter ":  func() error { return host.ReduceScatter(c, x, x, premul) },
			"reduce_scatter_v": func() error { return c.ReduceScatterV(p, p, []int64{1}, nil, plugin.Float32, premul, nil) },
		} {
			err := call()
			require.ErrorIs(t, err, plugin.InvalidArgument, name)
			require.EqualError(t, err, strings.TrimSpace(name)+" on rank 0: premul_sum needs a scalar: use Do")
		}
		err := c.Do(&host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Op: premul, Scalar: 2, Send: p,
			Recv: p, Count: 1})
		return errors.Join(err, equal(x, []float32{6}))
	})
}
