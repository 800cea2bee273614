// Package failpoint lets a test make a named place in the code fail: with an
// error, a panic, the death or the stopping of the process, a delay, or wrong
// bytes. A place is declared once as a package variable,
//
//	var failExport = failpoint.New("memory.export", "before a region is exported")
//
// and asked where it stands: if err := failExport.Hit(); err != nil { … }.
// Points are switched on by SHUNT_FAILPOINTS, read once at the start of the
// process, or by Arm in tests. A point that is off costs one atomic load.
//
// The grammar of SHUNT_FAILPOINTS is in parse.go. Nothing here decides what a
// failure means; that is the business of the code that asks.
package failpoint

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/internal/nearest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Variable is the name of the environment variable.
const Variable = "SHUNT_FAILPOINTS"

// Point is one named place. Make it with New or NewData; its methods may be
// called from any goroutine.
type Point struct {
	name, doc string
	data      bool
	armed     atomic.Pointer[armed]
}

// armed is what a point does while it is on.
type armed struct {
	clause clause
	hits   atomic.Int64
}

// registry holds every point by name and what the environment asks for. The
// environment is read when this variable is initialised, which is before any
// point can be declared, so a point is armed from its first Hit on.
var registry = readEnvironment()

type registered struct {
	sync.Mutex
	points  map[string]*Point
	clauses []clause // of the environment; points declared later are armed as they appear
	err     error    // of the environment's text
}

func readEnvironment() *registered {
	r := &registered{points: map[string]*Point{}}
	clauses, err := parse(os.Getenv(Variable))
	if err != nil {
		r.err = err
		return r
	}
	r.clauses = forThisRank(clauses)
	return r
}

// forThisRank drops the clauses that name another rank than SHUNT_RANK.
func forThisRank(clauses []clause) []clause {
	rank, err := strconv.Atoi(os.Getenv("SHUNT_RANK"))
	if err != nil {
		rank = -1
	}
	var mine []clause
	for _, c := range clauses {
		if c.rank < 0 || c.rank == rank {
			mine = append(mine, c)
		}
	}
	return mine
}

// New declares a point that is asked by Hit. The name is unique in the process,
// as package.place; the doc says when it is reached.
func New(name, doc string) *Point { return declare(&Point{name: name, doc: doc}) }

// NewData declares a point that hands over bytes, which the action corrupt
// changes; it is asked by Corrupt.
func NewData(name, doc string) *Point { return declare(&Point{name: name, doc: doc, data: true}) }

func declare(p *Point) *Point {
	if !validName(p.name) {
		panic("failpoint: bad name " + strconv.Quote(p.name))
	}
	registry.Lock()
	defer registry.Unlock()
	if registry.points[p.name] != nil {
		panic("failpoint: " + p.name + " is declared twice")
	}
	registry.points[p.name] = p
	for _, c := range registry.clauses {
		if c.name == p.name && p.accepts(c) == nil {
			p.armed.Store(&armed{clause: c})
		}
	}
	return p
}

// Hit runs the point's action when it is on and its turn has come. Only the
// action error returns an error; it has the code that the clause names.
func (p *Point) Hit() error {
	if p.armed.Load() == nil {
		return nil
	}
	return p.fire(nil)
}

// Corrupt is Hit for a point that was made by NewData; it reports whether it
// changed data.
func (p *Point) Corrupt(data []byte) bool {
	a := p.armed.Load()
	if a == nil {
		return false
	}
	return p.fire(data) != nil
}

// errCorrupted tells Corrupt that fire changed the data.
var errCorrupted = plugin.Errorf(plugin.Internal, "data corrupted by a failpoint")

func (p *Point) fire(data []byte) error {
	a := p.armed.Load()
	if a == nil {
		return nil
	}
	c := &a.clause
	hit := a.hits.Add(1)
	if hit < c.from || (hit > c.from && !c.onwards) {
		return nil
	}
	switch c.action {
	case actError:
		return plugin.Errorf(c.code, "failpoint %s: injected error at hit %d", p.name, hit)
	case actPanic:
		panic(fmt.Sprintf("failpoint %s: injected panic at hit %d", p.name, hit))
	case actExit:
		if c.number >= 0 {
			os.Exit(int(c.number))
		}
		die(syscall.SIGKILL)
	case actStop:
		die(syscall.SIGSTOP)
	case actDelay:
		time.Sleep(time.Duration(c.number))
	case actCorrupt:
		if len(data) == 0 {
			return nil
		}
		// Spread over the data: the first byte, and others at equal distances.
		n := min(c.number, int64(len(data)))
		for i := range n {
			data[i*int64(len(data))/n] ^= 0x55
		}
		return errCorrupted
	}
	return nil
}

// die sends a signal that cannot be caught to this process. SIGKILL never
// returns; SIGSTOP returns after SIGCONT.
func die(signal syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), signal); err != nil {
		panic(err)
	}
	if signal == syscall.SIGKILL {
		select {} // the signal is on its way to every thread
	}
}

// accepts says why a clause cannot be put on this point, or nil.
func (p *Point) accepts(c clause) error {
	if c.action == actCorrupt && !p.data {
		return plugin.Errorf(plugin.InvalidArgument, "failpoint %s has no data to corrupt", p.name)
	}
	if c.action == actError && p.data {
		return plugin.Errorf(plugin.InvalidArgument, "failpoint %s takes no error; it can corrupt", p.name)
	}
	return nil
}

// Arm switches points on by a text in the grammar of SHUNT_FAILPOINTS, for
// tests. The function it returns restores what was there. It fails, and
// changes nothing, when the text is malformed, a point does not exist or
// cannot do what is asked.
func Arm(spec string) (restore func(), err error) {
	clauses, err := parse(spec)
	if err != nil {
		return nil, err
	}
	clauses = forThisRank(clauses)
	registry.Lock()
	defer registry.Unlock()
	for _, c := range clauses {
		if err := check(c); err != nil {
			return nil, err
		}
	}
	before := map[*Point]*armed{}
	for _, c := range clauses {
		p := registry.points[c.name]
		old := p.armed.Swap(&armed{clause: c})
		if _, seen := before[p]; !seen {
			before[p] = old
		}
	}
	return func() {
		for p, a := range before {
			p.armed.Store(a)
		}
	}, nil
}

// check looks a clause's point up. The registry is locked.
func check(c clause) error {
	p := registry.points[c.name]
	if p != nil {
		return p.accepts(c)
	}
	var known []string
	for name := range registry.points {
		known = append(known, name)
	}
	sort.Strings(known)
	if near := nearest.Of(c.name, known); near != "" {
		return plugin.Errorf(plugin.InvalidArgument, "failpoint %q does not exist in this program; did you mean %s?", c.name,
			near)
	}
	return plugin.Errorf(plugin.InvalidArgument, "failpoint %q does not exist in this program", c.name)
}

// Problems says what is wrong with SHUNT_FAILPOINTS: text that does not parse,
// points that do not exist or cannot do what is asked. Call it once the program
// runs. Nothing is armed when the text does not parse.
func Problems() []error {
	registry.Lock()
	defer registry.Unlock()
	if registry.err != nil {
		return []error{registry.err}
	}
	var problems []error
	for _, c := range registry.clauses {
		if err := check(c); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// Info describes a point.
type Info struct {
	Name  string `json:"name"`
	Doc   string `json:"doc"`
	Data  bool   `json:"data"`            // takes the action corrupt
	Armed string `json:"armed,omitempty"` // the clause that is on it, "" for none
	Hits  int64  `json:"hits"`            // since it was armed
}

// Points lists every point of the process by name.
func Points() []Info {
	registry.Lock()
	defer registry.Unlock()
	var list []Info
	for _, p := range registry.points {
		info := Info{Name: p.name, Doc: p.doc, Data: p.data}
		if a := p.armed.Load(); a != nil {
			info.Armed, info.Hits = a.clause.String(), a.hits.Load()
		}
		list = append(list, info)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}
