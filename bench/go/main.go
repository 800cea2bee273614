// Package main is bench_calls: times of 8-byte calls on host memory from Go, in the world that the environment
// describes. Rank 0 prints a line of JSON for each operation: the median and the 99th percentile over samples of
// callsPerSample calls, in ns a call. A send_recv is half of a message there and back. bench/c and bench/python measure
// the same, and bench/compare compares two versions of Shunt by them.
//
//	shunt run -n 2 --bind bench_calls [SAMPLES]
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

const (
	callsPerSample = 8
	warmUp         = 2000
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	samples := 20000
	if len(args) > 0 {
		var err error
		if samples, err = strconv.Atoi(args[0]); err != nil || samples < 1 {
			return fmt.Errorf("usage: bench_calls [SAMPLES]; got %q", args[0])
		}
	}
	runtime.LockOSThread()
	host.Register(shm.Transport{})
	comm, err := host.Init(context.Background(), host.Options{})
	if err != nil {
		return err
	}
	defer comm.Close()
	var in, out float64 = 1, 0
	send, recv := unsafe.Pointer(&in), unsafe.Pointer(&out)
	for _, o := range []struct {
		name     string
		call     func() error
		messages float64 // of a call, one after the other
		ranks    int     // that it needs
	}{
		{"all_reduce", func() error { return comm.AllReduce(send, recv, 1, plugin.Float64, plugin.OpSum, nil) }, 1, 1},
		{"broadcast", func() error { return comm.Broadcast(recv, recv, 1, plugin.Float64, 0, nil) }, 1, 1},
		{"send_recv", func() error { return thereAndBack(comm, recv) }, 2, 2},
		{"barrier", func() error { return comm.Barrier(nil) }, 1, 1},
	} {
		if comm.World() < o.ranks {
			continue
		}
		times := make([]float64, 0, samples)
		for i := -warmUp / callsPerSample; i < samples; i++ {
			start := time.Now()
			for range callsPerSample {
				if err := o.call(); err != nil {
					return err
				}
			}
			if i >= 0 {
				times = append(times, float64(time.Since(start))/callsPerSample/o.messages)
			}
		}
		if out != float64(comm.World()) {
			return fmt.Errorf("rank %d: %s left %g, want %d", comm.Rank(), o.name, out, comm.World())
		}
		slices.Sort(times)
		if comm.Rank() == 0 {
			fmt.Printf("{\"lang\": \"go\", \"op\": %q, \"world\": %d, \"bytes\": 8, \"samples\": %d, \"ns_median\": %.1f, "+
				"\"ns_p99\": %.1f}\n", o.name, comm.World(), samples, times[samples/2], times[samples*99/100])
		}
	}
	return nil
}

// thereAndBack sends one message each way between ranks 0 and 1.
func thereAndBack(comm *host.Communicator, buffer unsafe.Pointer) error {
	switch comm.Rank() {
	case 0:
		if err := comm.Send(buffer, 1, plugin.Float64, 1, nil); err != nil {
			return err
		}
		return comm.Recv(buffer, 1, plugin.Float64, 1, nil)
	case 1:
		if err := comm.Recv(buffer, 1, plugin.Float64, 0, nil); err != nil {
			return err
		}
		return comm.Send(buffer, 1, plugin.Float64, 0, nil)
	}
	return nil
}
