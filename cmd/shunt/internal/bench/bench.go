// Package bench measures collectives over real ranks and checks every result.
// The launcher's side (Run) starts the ranks as processes of this machine and
// merges what they report; a rank's side (Rank) runs the measurements. The
// table of what is measured is in tests.go, the data in pattern.go.
package bench

import (
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Config says what to measure. It travels to the ranks as JSON.
type Config struct {
	World       int           `json:"world"`
	Collectives []string      `json:"collectives"` // nil: all of Names
	Min         int64         `json:"min"`         // bytes of the whole buffer
	Max         int64         `json:"max"`
	Factor      int64         `json:"factor"` // between sizes, at least 2
	DType       plugin.DType  `json:"dtype"`
	Op          plugin.Op     `json:"op"`
	Root        int           `json:"root"`
	Iterations  int           `json:"iterations"` // 0: as many as Budget allows
	Budget      time.Duration `json:"budget_ns"`  // for timing one row
	Transport   string        `json:"transport"`  // "" is the default choice
	NoCheck     bool          `json:"no_check"`
	InPlace     bool          `json:"in_place"` // measure in place too
}

// Names are the names of the measurements, in the order of the report.
func Names() []string {
	names := make([]string, len(tests))
	for i := range tests {
		names[i] = tests[i].name
	}
	return names
}

// sizes are the bytes to measure, ascending; the largest is always Max.
func (c *Config) sizes() []int64 {
	var list []int64
	for size := c.Min; size < c.Max; size *= c.Factor {
		list = append(list, size)
	}
	return append(list, c.Max)
}

// check refuses what cannot be run.
func (c *Config) check() error {
	bad := func(format string, args ...any) error { return plugin.Errorf(plugin.InvalidArgument, format, args...) }
	switch {
	case c.World < 1 || c.World > plugin.MaxWorld:
		return bad("world of %d; want 1 to %d", c.World, plugin.MaxWorld)
	case c.Min < 1 || c.Max < c.Min || c.Max > 1<<40:
		return bad("sizes from %d to %d bytes", c.Min, c.Max)
	case c.Factor < 2:
		return bad("factor %d; want 2 at least", c.Factor)
	case c.Root < 0 || c.Root >= c.World:
		return bad("root %d is not a rank of a world of %d", c.Root, c.World)
	case c.Iterations < 0 || c.Budget < 0:
		return bad("negative number of iterations or budget")
	case !c.DType.Valid() || !c.Op.Valid():
		return bad("dtype %d, op %d", c.DType, c.Op)
	}
	for _, name := range c.Collectives {
		if find(name) == nil {
			return bad("no measurement is called %q", name)
		}
	}
	return nil
}

func find(name string) *test {
	for i := range tests {
		if tests[i].name == name {
			return &tests[i]
		}
	}
	return nil
}

// jobs are all rows to be measured, in order; every rank and the launcher go
// through the same list.
func (c *Config) jobs() []job {
	names := c.Collectives
	if len(names) == 0 {
		names = Names()
	}
	var list []job
	for _, name := range names {
		t := find(name)
		if t.collective == plugin.Barrier {
			list = append(list, job{test: t})
			continue
		}
		last := int64(-1)
		for _, size := range c.sizes() {
			elements := max(size/c.DType.Bytes(), 1)
			s := t.shape(place{world: c.World, root: c.Root}, elements)
			if s.elements == last {
				continue // a larger size that rounds to the same counts
			}
			last = s.elements
			list = append(list, job{test: t, elements: elements})
			if s.inPlace && c.InPlace {
				list = append(list, job{test: t, elements: elements, inPlace: true})
			}
		}
	}
	return list
}

// job is one row of one form.
type job struct {
	test     *test
	elements int64
	inPlace  bool
}

// report is what one rank says about one job.
type report struct {
	Samples    []float64 `json:"us"` // of one operation, in each batch
	Wrong      int64     `json:"wrong"`
	Iterations int       `json:"iterations"`
	Algorithm  string    `json:"algorithm"`
	Error      string    `json:"error,omitempty"` // the last report of a rank
}
