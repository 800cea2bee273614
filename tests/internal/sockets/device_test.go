package sockets_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/internal/sockets"
)

// gathering is a rank with a GPU, and an all_gather of one word for each.
type gathering struct {
	*host.Communicator
	*device.Device
	image  *device.Image
	stream host.Stream
}

func (g *gathering) gather() error {
	return g.AllGather(g.image.Pointer(0), g.image.Pointer(64), 1, plugin.Int64, g.stream)
}

// call gathers, waits, and returns the error of the two.
func (g *gathering) call() error {
	return errors.Join(g.gather(), g.Synchronize(g.stream))
}

// onGPUs runs ranks as goroutines, and returns what body returned on each.
func onGPUs(t *testing.T, spec string, timeout time.Duration, body func(g *gathering) error) []error {
	t.Helper()
	if machine.Real() {
		t.Skip("needs GPUs in memory: ranks of one process")
	}
	defer machine.Close()
	const world = 2
	id := "file://" + filepath.Join(t.TempDir(), "meet")
	errs, closed := make([]error, world), make([]error, world)
	var all sync.WaitGroup
	for rank := range world {
		all.Go(func() {
			errs[rank] = func() error {
				d, err := device.Open(rank)
				if err != nil {
					return err
				}
				image, err := d.NewImage(128)
				if err != nil {
					return err
				}
				c, err := host.Init(context.Background(), host.Options{Rank: rank, World: world, ID: id, Transports: []string{spec},
					Timeout: timeout, Memory: plugin.MemoryKindCuda, Device: rank, Driver: d.Driver})
				if err != nil {
					return err
				}
				defer func() { closed[rank] = errors.Join(c.Close(), image.Free(), d.Close()) }()
				g := &gathering{c, d, image, device.Stream(d.Streams[0])}
				if err := g.call(); err != nil {
					return fmt.Errorf("the first call: %w", err)
				}
				return body(g)
			}()
		})
	}
	all.Wait()
	for rank, err := range closed {
		if err != nil && plugin.CodeOf(err) != plugin.PluginDied { // an endpoint of a process that is gone
			t.Errorf("closing rank %d: %v", rank, err)
		}
	}
	if leaks := machine.Leaks(); len(leaks) > 0 {
		t.Errorf("left on the devices: %v", leaks)
	}
	return errs
}

func wants(t *testing.T, err error, code plugin.Code, words ...string) {
	t.Helper()
	if plugin.CodeOf(err) != code {
		t.Errorf("%v, want %s", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}

// A rank that stays away is named at the deadline, though the call itself has returned.
func TestARankThatStaysAwayFromACommandOfTheStreamIsNamed(t *testing.T) {
	for _, carrier := range []string{"builtin", "process"} {
		t.Run(carrier, func(t *testing.T) {
			met := make(chan struct{})
			start := time.Now()
			errs := onGPUs(t, spec(t, carrier), 5*time.Second, func(g *gathering) error {
				if g.Rank() == 1 {
					<-met
					return nil
				}
				defer close(met)
				start = time.Now()
				return g.call()
			})
			wants(t, errs[0], plugin.Timeout, "rank 1")
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A connection that breaks is reported in the engine's words, on every rank.
func TestABrokenConnectionEndsTheStream(t *testing.T) {
	var once sync.Once
	errs := onGPUs(t, "builtin:sockets", 20*time.Second, func(g *gathering) error {
		once.Do(sockets.Break)
		for {
			if err := g.call(); err != nil {
				return err
			}
		}
	})
	for _, err := range errs {
		wants(t, err, plugin.PeerDied, "transport sockets on rank", "at 127.0.0.1:")
	}
}

// An abort lets a stream go that waits in a command, and in a graph's.
func TestAbortEndsCommandsOfStreams(t *testing.T) {
	for _, carrier := range []string{"builtin", "process"} {
		t.Run(carrier, func(t *testing.T) {
			errs := onGPUs(t, spec(t, carrier), 60*time.Second, func(g *gathering) error {
				graph, err := g.Capture(g.Streams[0], g.gather)
				if err != nil {
					return err
				}
				if err = graph.Launch(g.Streams[0]); err == nil {
					err = g.Synchronize(g.stream)
				}
				if err == nil && g.Rank() == 1 {
					g.Abort("enough")
				} else if err == nil {
					err = errors.Join(graph.Launch(g.Streams[0]), g.Synchronize(g.stream))
				}
				return errors.Join(err, graph.Destroy())
			})
			wants(t, errs[0], plugin.Aborted, "rank 1 aborted", "enough")
		})
	}
}

// A plugin's process that is killed while a stream waits in its command is named on every rank.
func TestAKilledPluginEndsCommandsOfStreams(t *testing.T) {
	process := spec(t, "process")
	called := make(chan struct{})
	var killed int
	errs := onGPUs(t, process, 60*time.Second, func(g *gathering) error {
		if g.Rank() == 0 {
			err := g.gather()
			close(called)
			return errors.Join(err, g.Synchronize(g.stream))
		}
		<-called
		if killed = childOf(strings.TrimPrefix(process, "process:")); killed == 0 {
			t.Error("there is no process of the plugin")
		} else if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		for { // until this rank knows
			if err := g.Err(); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	})
	for _, err := range errs {
		wants(t, err, plugin.PluginDied, strconv.Itoa(killed))
	}
}

// childOf returns a child of this process that runs a program, or 0.
func childOf(program string) int {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if at, err := os.Readlink(link); err != nil || at != program {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "stat"))
		if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(fields) > 1 &&
			fields[1] == strconv.Itoa(os.Getpid()) {
			return pid
		}
	}
	return 0
}
