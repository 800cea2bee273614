// Package failpoint lets a test make a named place in the code late, wrong or deadly. SHUNT_FAILPOINTS holds clauses,
// name[rank]=action@n, with semicolons between them: [rank] limits a clause to the process with that SHUNT_RANK, @n to
// the n-th hit. The actions are exit (SIGKILL), stop (SIGSTOP; the place continues after SIGCONT), delay(TIME) and
// corrupt(BYTES).
package failpoint

import (
	"cmp"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Variable is the name of the environment variable.
const Variable = "SHUNT_FAILPOINTS"

const grammar = `^([\w.]+)(?:\[(\d+)\])?=(exit|stop|delay\(\d{1,6}(?:[mun]?s|m|h)\)|corrupt(?:\(\d{1,9}\))?)(?:@([1-9]\d*))?$`

// Points are all places of the process, which package variables declare with New.
var Points []*Point

// Point is a named place. Its methods may be called from any goroutine; while it is off they cost an atomic load.
type Point struct {
	Name, Doc string
	armed     atomic.Pointer[clause]
}

type clause struct {
	text, action, at string
	hits             atomic.Int64
}

var off clause

// New declares a place and switches it on if SHUNT_FAILPOINTS says so. Its name is unique; doc says when it is reached.
func New(name, doc string) *Point {
	p := &Point{Name: name, Doc: doc}
	Points = append(Points, p)
	clauses, _ := parse(os.Getenv(Variable)) // Problem returns the error
	p.armed.Store(cmp.Or(clauses[name], &off))
	return p
}

// Hit does what the place was switched on for, if anything.
func (p *Point) Hit() { p.Corrupt(nil) }

// Corrupt is like Hit, where there is data to corrupt. It reports whether data has changed.
func (p *Point) Corrupt(data []byte) bool {
	c := p.armed.Load()
	if c == &off || strconv.FormatInt(c.hits.Add(1), 10) != c.at && c.at != "" {
		return false
	}
	n := 0
	switch action, argument, _ := strings.Cut(strings.TrimSuffix(c.action, ")"), "("); action {
	case "exit", "stop":
		runtime.LockOSThread() // a signal to the process could meet another thread, and this one run on for a while
		signal := map[string]syscall.Signal{"exit": syscall.SIGKILL, "stop": syscall.SIGSTOP}[action]
		_ = syscall.Tgkill(os.Getpid(), syscall.Gettid(), signal)
		runtime.UnlockOSThread()
	case "delay":
		delay, _ := time.ParseDuration(argument)
		time.Sleep(delay)
	case "corrupt":
		n, _ = strconv.Atoi(cmp.Or(argument, "1"))
	}
	n = min(n, len(data))
	for i := range n {
		data[i*len(data)/n] ^= 0x55 // equally far from each other
	}
	return n > 0
}

// Armed returns the clause that the place was switched on with, or "".
func (p *Point) Armed() string { return p.armed.Load().text }

// Arm switches places on until restore is called, for tests. A text with an error switches nothing on.
func Arm(text string) (restore func(), err error) {
	clauses, err := parse(text)
	restore = func() {}
	for _, p := range Points {
		if c := clauses[p.Name]; c != nil && err == nil {
			old, others := p.armed.Swap(c), restore
			restore = func() { p.armed.Store(old); others() }
		}
	}
	return restore, err
}

// Problem returns the error in SHUNT_FAILPOINTS, or nil. Its other clauses hold nevertheless.
func Problem() error {
	_, err := parse(os.Getenv(Variable))
	return err
}

// parse returns the clauses that hold in this rank by the names of their places, and the error in the text.
func parse(text string) (clauses map[string]*clause, err error) {
	clauses = map[string]*clause{}
	for _, c := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ' ' }) {
		m := regexp.MustCompile(grammar).FindStringSubmatch(c)
		if m == nil || !slices.ContainsFunc(Points, func(p *Point) bool { return p.Name == m[1] }) {
			err = plugin.Errorf(plugin.InvalidArgument, "%s: clause %.80q must be name[rank]=action@n, with a name of shunt "+
				"doctor --failpoints and the action exit, stop, delay(TIME) or corrupt(BYTES)", Variable, c)
		} else if m[2] == "" || m[2] == os.Getenv("SHUNT_RANK") {
			clauses[m[1]] = &clause{text: c, action: m[3], at: m[4]}
		}
	}
	return clauses, err
}
