// Package failpoint lets a test make a named place in the code late, wrong or deadly. A place is a package variable,
//
//	var failProbe = failpoint.New("device.probe", "a pattern that a peer wrote, as it is read")
//
// and calls Hit or Corrupt where it stands. SHUNT_FAILPOINTS, read at the start of the process, or Arm switches places
// on. It holds clauses, separated by semicolons:
//
//	name[rank]=action(argument)@n
//
// With [rank] a clause holds only in the process with that SHUNT_RANK, with @n only for the n-th hit. The actions are
// exit (SIGKILL to this process), stop (SIGSTOP; the place goes on after SIGCONT), delay(TIME) and corrupt(BYTES),
// which changes data of the place.
package failpoint

import (
	"errors"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// Variable is the name of the environment variable.
const Variable = "SHUNT_FAILPOINTS"

// Point is a named place. Its methods may be called from any goroutine; while it is off they cost an atomic load.
type Point struct {
	Name, Doc string
	armed     atomic.Pointer[fault]
}

// fault is a parsed clause.
type fault struct {
	clause, name, action string
	delay                time.Duration
	bytes, at            int64 // at: the hit that acts, 0: every hit
	hits                 atomic.Int64
}

// Points are all places of the process. Package variables declare them, so that it does not change later.
var Points []*Point

var environment, environmentErr = parse(os.Getenv(Variable))

// New declares a place. Its name is unique; doc says when it is reached.
func New(name, doc string) *Point {
	p := &Point{Name: name, Doc: doc}
	Points = append(Points, p)
	for _, f := range environment {
		if f.name == name {
			p.armed.Store(f)
		}
	}
	return p
}

// Hit does what the place was switched on for, if anything.
func (p *Point) Hit() { p.Corrupt(nil) }

// Corrupt is like Hit, where there is data to corrupt. It reports whether data has changed.
func (p *Point) Corrupt(data []byte) bool {
	f := p.armed.Load()
	if f == nil {
		return false
	}
	if hit := f.hits.Add(1); f.at != 0 && hit != f.at {
		return false
	}
	switch f.action {
	case "exit":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way to every thread
	case "stop":
		// To this thread, which does not return from the call before the process goes on; a signal to the process
		// could be for another one.
		runtime.LockOSThread()
		_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
		runtime.UnlockOSThread()
	case "delay":
		time.Sleep(f.delay)
	case "corrupt":
		n := min(f.bytes, int64(len(data)))
		for i := range n { // equally far from each other
			data[i*int64(len(data))/n] ^= 0x55
		}
		return n > 0
	}
	return false
}

// Armed returns the clause that the place was switched on with, or "".
func (p *Point) Armed() string {
	if f := p.armed.Load(); f != nil {
		return f.clause
	}
	return ""
}

// Arm switches places on until restore is called, for tests.
func Arm(text string) (restore func(), err error) {
	faults, err := parse(text)
	if err != nil {
		return nil, err
	}
	before := map[*Point]*fault{}
	for _, f := range faults {
		p := find(f.name)
		if p == nil {
			return nil, unknown(f)
		}
		before[p] = p.armed.Load()
	}
	for _, f := range faults {
		find(f.name).armed.Store(f)
	}
	return func() {
		for p, f := range before {
			p.armed.Store(f)
		}
	}, nil
}

// Problem returns the error in SHUNT_FAILPOINTS, or nil. A text with an error switches nothing on.
func Problem() error {
	for _, f := range environment {
		if find(f.name) == nil {
			return unknown(f)
		}
	}
	return environmentErr
}

func find(name string) *Point {
	if i := slices.IndexFunc(Points, func(p *Point) bool { return p.Name == name }); i >= 0 {
		return Points[i]
	}
	return nil
}

func unknown(f *fault) error {
	return plugin.Errorf(plugin.InvalidArgument, "%s: this program has no failpoint %q", Variable, f.name)
}

// parse reads the clauses of a text that concern this rank.
func parse(text string) (faults []*fault, err error) {
	for clause := range strings.SplitSeq(text, ";") {
		if clause = strings.TrimSpace(clause); clause == "" {
			continue
		}
		f, rank, ok := parseClause(clause)
		if !ok {
			return nil, plugin.Errorf(plugin.InvalidArgument, "%s: clause %.80q is not name[rank]=action(argument)@n, "+
				"with the action exit, stop, delay(TIME) or corrupt(BYTES)", Variable, clause)
		}
		if rank == "" || rank == os.Getenv("SHUNT_RANK") {
			faults = append(faults, f)
		}
	}
	return faults, nil
}

func parseClause(clause string) (f *fault, rank string, ok bool) {
	grammar := regexp.MustCompile(`^([\w.]+)(?:\[(\d+)\])?=(exit|stop|delay|corrupt)(?:\((\w+)\))?(?:@([1-9]\d*))?$`)
	m := grammar.FindStringSubmatch(clause)
	if m == nil {
		return nil, "", false
	}
	f = &fault{clause: clause, name: m[1], action: m[3], bytes: 1}
	var errs [3]error
	if f.action == "delay" {
		f.delay, errs[0] = time.ParseDuration(m[4])
	} else if m[4] != "" {
		f.bytes, errs[1] = strconv.ParseInt(m[4], 10, 32)
	}
	if m[5] != "" {
		f.at, errs[2] = strconv.ParseInt(m[5], 10, 64)
	}
	return f, m[2], errors.Join(errs[:]...) == nil
}
