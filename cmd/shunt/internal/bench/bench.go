// Package bench measures collectives over real ranks and checks every result.
// The launcher's side (Run) starts the ranks as processes of this machine and
// merges what they report; a rank's side (Rank) runs the measurements. The
// table of what is measured is in tests.go, the data in pattern.go.
package bench

import (
	"slices"
	"strings"
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
	InPlace     bool          `json:"in_place"`      // measure in place too
	InPlaceOnly bool          `json:"in_place_only"` // where an operation has such a form

	// What follows is for GPUs.
	Memory  plugin.MemoryKind `json:"memory"`
	Modes   []Mode            `json:"modes,omitempty"`
	Busy    int               `json:"busy,omitempty"`    // percent of the multiprocessors that other work keeps busy
	Against []string          `json:"against,omitempty"` // NCCL, or transports as options name them
	Library string            `json:"library,omitempty"` // path of NCCL's
	// Symmetric measures Shunt in windows too, whose memory is symmetric.
	Symmetric bool `json:"symmetric,omitempty"`

	// Tune measures, instead of what the selector takes, every algorithm that it
	// could take, each as one of a row's peers.
	Tune bool `json:"tune,omitempty"`
	// Regret, with Tune, measures beside them what the selector takes, and what else is compared.
	Regret bool `json:"regret,omitempty"`
}

// Names returns the names of the measurements, in the order of the report.
func Names() []string {
	names := make([]string, len(tests))
	for i := range tests {
		names[i] = tests[i].name
	}
	return names
}

// sizes returns the bytes to measure, ascending; the largest is always Max.
func (c *Config) sizes() []int64 {
	var list []int64
	for size := c.Min; size < c.Max; size *= c.Factor {
		list = append(list, size)
		if size > c.Max/c.Factor {
			break // the next one is larger, and may overflow
		}
	}
	return append(list, c.Max)
}

// Check refuses what cannot be run.
func (c *Config) Check() error { return c.check() }

// Sizes returns the number of sizes.
func (c *Config) Sizes() int { return len(c.sizes()) }

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
	case c.Memory != plugin.MemoryKindHost && c.Memory != plugin.MemoryKindCuda:
		return bad("memory %s", c.Memory)
	case c.Memory == plugin.MemoryKindHost && (len(c.Modes) > 0 || c.Busy != 0 || len(c.Against) > 0 || c.Symmetric):
		return bad("graphs, filler work, symmetric memory and comparisons are for CUDA memory")
	case c.Busy < 0 || c.Busy > 100:
		return bad("%d %% of the multiprocessors; want 0 to 100", c.Busy)
	}
	if c.Tune && (c.Busy != 0 || c.InPlace || c.InPlaceOnly || len(c.Modes) > 1 ||
		(!c.Regret && (len(c.Against) > 0 || c.Symmetric))) {
		return bad("algorithms are measured out of place, in one mode, and beside nothing else")
	}
	if c.Regret && (!c.Tune || slices.ContainsFunc(c.Against, func(name string) bool { return name != NCCL })) {
		return bad("what is chosen is compared with all algorithms and with %s, and with nothing else", NCCL)
	}
	for i, name := range c.Against {
		if name != NCCL && !strings.Contains(name, ":") {
			return bad("no comparison with %q; there are %s and transports, as builtin:NAME, shared:PATH or process:PATH", name,
				NCCL)
		}
		if slices.Contains(c.Against[:i], name) {
			return bad("two comparisons with %q", name)
		}
	}
	for _, m := range c.Modes {
		if m != Eager && m != Graph {
			return bad("mode %q; there are %s and %s", m, Eager, Graph)
		}
	}
	for _, name := range c.Collectives {
		if find(name) == nil {
			return bad("no measurement is called %q", name)
		}
		if c.Tune && !slices.Contains(TuneNames(), name) {
			return bad("%s has nothing to choose; windows belong to one communicator", name)
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

// jobs returns all rows to be measured, in order; every rank and the launcher go
// through the same list.
func (c *Config) jobs() []job {
	names := c.names()
	modes := c.Modes
	if len(modes) == 0 {
		modes = []Mode{Eager}
	}
	var list []job
	for _, mode := range modes {
		for _, name := range names {
			list = c.jobsOf(list, find(name), mode)
		}
	}
	return list
}

func (c *Config) names() []string {
	switch {
	case len(c.Collectives) > 0:
		return c.Collectives
	case c.Tune:
		return TuneNames()
	}
	return Names()
}

// Apart returns the configuration in parts of one collective each.
func (c *Config) Apart() []Config {
	names := c.names()
	parts := make([]Config, len(names))
	for i, name := range names {
		parts[i] = *c
		parts[i].Collectives = []string{name}
	}
	return parts
}

func (c *Config) jobsOf(list []job, t *test, mode Mode) []job {
	if t.collective == plugin.Barrier {
		return append(list, job{test: t, mode: mode})
	}
	last := int64(-1)
	for _, size := range c.sizes() {
		elements := max(size/c.DType.Bytes(), 1)
		s := t.shape(place{world: c.World, root: c.Root}, elements)
		if s.elements == last {
			continue // a larger size that rounds to the same counts
		}
		last = s.elements
		inPlace := s.inPlace && (c.InPlace || c.InPlaceOnly)
		if !inPlace || !c.InPlaceOnly {
			list = append(list, job{test: t, elements: elements, mode: mode})
		}
		if inPlace {
			list = append(list, job{test: t, elements: elements, mode: mode, inPlace: true})
		}
	}
	return list
}

// largest returns the most bytes that a job needs of one buffer, on any rank.
func (c *Config) largest() int64 {
	most := c.Max
	for _, j := range c.jobs() {
		for rank := range c.World {
			s := j.test.shape(place{c.World, rank, c.Root}, j.elements)
			most = max(most, c.DType.Bytes()*max(s.send, s.recv, s.placeSend+s.send, s.placeRecv+s.recv))
		}
	}
	return most
}

// job is one row of one form.
type job struct {
	test     *test
	elements int64
	mode     Mode
	inPlace  bool
}

// report is one rank's report about one job.
type report struct {
	Samples    []float64    `json:"us"` // of one operation, in each batch
	Wrong      int64        `json:"wrong"`
	Iterations int          `json:"iterations"`
	Algorithm  string       `json:"algorithm"`
	Peers      []peerReport `json:"peers,omitempty"`
	Covered    int          `json:"covered,omitempty"` // batches that other work outlasted, of all candidates
	Skipped    string       `json:"skipped,omitempty"` // why no transport serves it
	Error      string       `json:"error,omitempty"`   // the last report of a rank
}

// peerReport is one rank's report about another candidate than the first.
type peerReport struct {
	Name    string    `json:"name"`
	Samples []float64 `json:"us"`
	Wrong   int64     `json:"wrong"`
	// Iterations are its own, where they are not the report's.
	Iterations int `json:"iterations,omitempty"`
}
