package network

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// programVariable names, in the environment of a rank, what it does.
const programVariable = "NETWORK_TEST_PROGRAM"

// Event is a line of JSON that a rank prints about itself.
type Event struct {
	Rank  int
	What  string // "joined", "runs", "error", "closed", "ended"
	Phase string // the call that failed
	Code  string
	Of    int // the rank that the error is of
	Text  string
	World int
	Calls int           // that succeeded
	Took  time.Duration // of the call
	Asked time.Duration // by which the kernel said something of an interface meanwhile, on average
	At    time.Time
}

// Program describes the work of every rank, which joins, and then makes calls until it is stopped.
type Program struct {
	Does   string        // beside calls: "split", "whole" (a split of all) or "subset"; "nothing": no calls either
	Bytes  int           // of a message
	Pause  time.Duration // after each call
	Shrink bool          // after an error
}

// member is a rank at work.
type member struct {
	Program
	rank int
	stop atomic.Bool
}

// Rank runs the program of the environment, if there is one, and ends the process.
func Rank() {
	text := os.Getenv(programVariable)
	if text == "" {
		return
	}
	m := &member{}
	if err := json.Unmarshal([]byte(text), &m.Program); err != nil {
		panic(err)
	}
	_, _ = fmt.Sscan(os.Getenv("SHUNT_RANK"), &m.rank)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			m.stop.Store(true)
		}
	}()
	m.run()
	m.say(Event{What: "ended"})
	os.Exit(0)
}

func (m *member) say(e Event) {
	e.Rank, e.At = m.rank, time.Now()
	text, _ := json.Marshal(e)
	fmt.Println(string(text))
}

func (m *member) failed(phase string, began time.Time, calls, world int, err error) {
	e := Event{What: "error", Phase: phase, Code: plugin.CodeOf(err).String(), Of: -1, Text: err.Error(), Calls: calls,
		World: world, Took: time.Since(began)}
	var p *plugin.Error
	if errors.As(err, &p) {
		e.Of = p.Rank
	}
	m.say(e)
}

func (m *member) run() {
	began := time.Now()
	m.say(Event{What: "joins"})
	c, err := host.Init(context.Background(), host.Options{})
	if err != nil {
		m.failed("init", began, 0, 0, err)
		return
	}
	m.say(Event{What: "joined", World: c.World(), Took: time.Since(began)})
	ok := m.Does == "nothing" || m.calls(c)
	for try := 0; !ok && m.Shrink && try < 3; try++ {
		began = time.Now()
		smaller, err := c.Shrink(context.Background())
		if err != nil {
			m.failed("shrink", began, 0, 0, err)
			break
		}
		m.say(Event{What: "shrunk", World: smaller.World(), Took: time.Since(began)})
		m.close(c)
		c = smaller
		ok = m.calls(c)
	}
	m.close(c)
}

func (m *member) close(c *host.Communicator) {
	asked := asking()
	began := time.Now()
	err := c.Close()
	e := Event{What: "closed", Took: time.Since(began), Asked: asked()}
	if err != nil {
		e.Text = err.Error()
	}
	m.say(e)
}

// asking asks the kernel about an interface, over and over, until its result is called, which returns how long an
// answer took on average. One lock of the kernel is for the configuration of all networks, so that hosts which others
// make and remove delay it. UCX asks some hundred times while it closes.
func asking() func() time.Duration {
	stop, mean := make(chan struct{}), make(chan time.Duration)
	go func() {
		var all time.Duration
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for n := time.Duration(0); ; n++ {
			select {
			case <-stop:
				mean <- all / max(n, 1)
				return
			case <-every.C:
			}
			began := time.Now()
			if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
				_, _ = unix.IoctlGetEthtoolDrvinfo(fd, "lo")
				_ = unix.Close(fd)
			}
			all += time.Since(began)
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-mean
	}
}

// calls makes calls and checks them, until one fails or a rank was stopped.
func (m *member) calls(c *host.Communicator) bool {
	words := max(m.Bytes/8, 4)
	in, out := make([]int64, words), make([]int64, words)
	me, world := c.Rank(), c.World()
	for call := 0; ; call++ {
		for i := range in {
			in[i] = int64(me + call + i)
		}
		in[0] = 0
		if m.stop.Load() {
			in[0] = 1
		}
		in[1] = 1 << m.rank
		began := time.Now()
		err := c.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), int64(words), plugin.Int64, plugin.OpSum, nil)
		if err != nil {
			m.failed("all_reduce", began, call, world, err)
			return false
		}
		for i := 2; i < words; i++ {
			if want := int64(world*(world-1)/2 + world*(call+i)); out[i] != want {
				m.say(Event{What: "wrong", World: world, Text: fmt.Sprintf("call %d, word %d: %d, want %d", call, i, out[i], want)})
				os.Exit(3)
			}
		}
		if call == 3 {
			m.say(Event{What: "runs", World: world, Text: fmt.Sprintf("%b", out[1])})
		}
		if out[0] > 0 {
			m.say(Event{What: "stops", World: world, Calls: call, Text: fmt.Sprintf("%b", out[1])})
			return true
		}
		time.Sleep(m.Pause)
		if err := m.more(c); err != nil {
			m.failed(m.Does, began, call, world, err)
			return false
		}
	}
}

// more does what the program does beside calls.
func (m *member) more(c *host.Communicator) (err error) {
	ctx := context.Background()
	var made *host.Communicator
	switch m.Does {
	case "split":
		made, err = c.Split(ctx, c.Rank()%2, c.Rank())
	case "whole":
		made, err = c.Split(ctx, 0, -c.Rank())
	case "subset":
		if c.Rank() == 0 || c.Rank() == c.World()-1 {
			made, err = c.Subset(ctx, []int{0, c.World() - 1})
		}
	}
	if err != nil || made == nil {
		return err
	}
	x := int64(1)
	err = made.AllReduce(unsafe.Pointer(&x), unsafe.Pointer(&x), 1, plugin.Int64, plugin.OpSum, nil)
	if err == nil && x != int64(made.World()) {
		return fmt.Errorf("a part of %d gave %d", made.World(), x)
	}
	return errors.Join(err, made.Close())
}
