package selector

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// TuningVersion is the version of the file format that is written and read.
const TuningVersion = 1

// MaxTuningPoints is the number of points that an entry has at most.
const MaxTuningPoints = 64

// Bounds of a tuning file.
const (
	maxTuningBytes   = 4 << 20
	maxTuningEntries = 8192
	maxTopology      = 255
)

// Tuning is a file of measured costs:
//
//	{
//	  "shunt_tuning": 1,
//	  "comment": "where and when it was measured",
//	  "entries": [
//	    {"collective": "all_reduce", "algorithm": "shm/one_shot", "world": 4, "hosts": 1, "memory": "host",
//	     "points": [{"bytes": 8, "us": 1.25}, {"bytes": 1024, "us": 1.5}]}
//	  ]
//	}
//
// An entry may also name a dtype or a class of dtypes (DTypeClass), an op, a class of topology (topology.Class), a mode
// (Mode) and whether receive memory is symmetric; the entry that names most wins. Between points the cost is
// interpolated. A world of 0 means any.
type Tuning struct {
	Version int     `json:"shunt_tuning"`
	Comment string  `json:"comment,omitempty"`
	Entries []Entry `json:"entries"`
}

// Entry is the measured cost of one algorithm.
type Entry struct {
	Collective string  `json:"collective"`
	Algorithm  string  `json:"algorithm"`       // qualified: shm/one_shot
	DType      string  `json:"dtype,omitempty"` // or a class of dtypes
	Op         string  `json:"op,omitempty"`
	World      int     `json:"world,omitempty"`
	Hosts      int     `json:"hosts,omitempty"`
	Memory     string  `json:"memory,omitempty"`
	Topology   string  `json:"topology,omitempty"`  // a class, as topology.Class returns it
	Mode       Mode    `json:"mode,omitempty"`      // empty: both
	Symmetric  *bool   `json:"symmetric,omitempty"` // whether receive memory is; nil: both
	Points     []Point `json:"points"`              // ascending in bytes
}

// Point is one measured size: bytes of one rank's message, and the time of the
// slowest rank.
type Point struct {
	Bytes        int64   `json:"bytes"`
	Microseconds float64 `json:"us"`
}

// ReadTuning reads a tuning file. Errors are System when it cannot be read and
// InvalidArgument when it is malformed; they name the path.
func ReadTuning(path string) (*Tuning, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a pipe may take for ever
		return nil, plugin.Errorf(plugin.System, "tuning file: %s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "tuning file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxTuningBytes+1))
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "tuning file %s: %w", path, err)
	}
	t, err := ParseTuning(data)
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "tuning file %s: %w", path, err)
	}
	return t, nil
}

// ParseTuning reads the text of a tuning file. Unknown fields, other versions,
// unknown names and costs that are not finite and positive are refused.
func ParseTuning(data []byte) (*Tuning, error) {
	if len(data) > maxTuningBytes {
		return nil, plugin.Errorf(plugin.InvalidArgument, "it has more than %d bytes", maxTuningBytes)
	}
	var version struct {
		Version int `json:"shunt_tuning"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "not JSON of the right form: %w", err)
	}
	if version.Version != TuningVersion {
		return nil, plugin.Errorf(plugin.InvalidArgument, "field shunt_tuning is %d; this version reads %d", version.Version,
			TuningVersion)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var t Tuning
	if err := decoder.Decode(&t); err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%w", err)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	return &t, nil
}

func (t *Tuning) check() error {
	if len(t.Entries) > maxTuningEntries {
		return plugin.Errorf(plugin.InvalidArgument, "it has %d entries, want at most %d", len(t.Entries), maxTuningEntries)
	}
	for i := range t.Entries {
		if err := t.Entries[i].check(); err != nil {
			return plugin.Errorf(plugin.InvalidArgument, "entry %d: %w", i, err)
		}
	}
	return nil
}

func (e *Entry) check() error {
	if _, err := plugin.ParseCollective(e.Collective); err != nil {
		return err
	}
	if !validName(e.Algorithm) || !strings.Contains(e.Algorithm, "/") {
		return plugin.Errorf(plugin.InvalidArgument, "algorithm %.80q is not of the form transport/algorithm", e.Algorithm)
	}
	if e.DType != "" && !slices.Contains(dtypeClasses[:], e.DType) {
		if _, err := plugin.ParseDType(e.DType); err != nil {
			return plugin.Errorf(plugin.InvalidArgument, "%w; classes of dtypes are %s", err,
				strings.Join(dtypeClasses[:], ", "))
		}
	}
	if e.Mode != "" {
		if err := e.Mode.check(); err != nil {
			return err
		}
	}
	if len(e.Topology) > maxTopology {
		return plugin.Errorf(plugin.InvalidArgument, "the class of topology has %d bytes, want at most %d", len(e.Topology),
			maxTopology)
	}
	if e.Op != "" {
		if _, err := plugin.ParseOp(e.Op); err != nil {
			return err
		}
	}
	if e.Memory != "" && !slices.ContainsFunc(plugin.MemoryKinds(),
		func(k plugin.MemoryKind) bool { return k.String() == e.Memory }) {
		return plugin.Errorf(plugin.InvalidArgument, "memory kind %.80q is unknown", e.Memory)
	}
	if e.World < 0 || e.World > plugin.MaxWorld || e.Hosts < 0 || e.Hosts > plugin.MaxWorld {
		return plugin.Errorf(plugin.InvalidArgument, "a world of %d ranks on %d hosts is out of range", e.World, e.Hosts)
	}
	if len(e.Points) == 0 || len(e.Points) > MaxTuningPoints {
		return plugin.Errorf(plugin.InvalidArgument, "it has %d points, want 1 to %d", len(e.Points), MaxTuningPoints)
	}
	last := int64(-1)
	for _, p := range e.Points {
		if p.Bytes <= last || p.Bytes > 1<<50 {
			return plugin.Errorf(plugin.InvalidArgument, "point at %d bytes after %d: sizes must ascend, up to 2^50", p.Bytes,
				last)
		}
		if !(p.Microseconds > 0 && p.Microseconds <= 1e12) || math.IsNaN(p.Microseconds) {
			return plugin.Errorf(plugin.InvalidArgument, "the cost of %v µs at %d bytes is out of range", p.Microseconds,
				p.Bytes)
		}
		last = p.Bytes
	}
	return nil
}

// lookup returns the points for a signature and algorithm, nil where the file has
// none. Of several entries the one that names most decides, then the first; a dtype
// says more than its class. A message is measured at its sending end, so that both
// ends choose alike.
func (t *Tuning) lookup(req plugin.Request, place string, mode Mode, qualified string) []Point {
	var best []Point
	bestScore := -1
	for i := range t.Entries {
		e := &t.Entries[i]
		if e.Collective != firstEnd(req.Collective).String() || e.Algorithm != qualified || !e.holds(req, place, mode) {
			continue
		}
		score, fits := 0, true
		match := func(named, equal bool) {
			if named {
				score += 2
				fits = fits && equal
			}
		}
		if class := DTypeClass(req.DType); e.DType == class {
			score++
		} else {
			match(e.DType != "", e.DType == req.DType.String())
		}
		match(e.Op != "", e.Op == req.Op.String())
		match(e.Symmetric != nil, e.Symmetric != nil && *e.Symmetric == req.Symmetric)
		for _, named := range []bool{e.World != 0, e.Hosts != 0, e.Memory != "", e.Topology != "", e.Mode != ""} {
			match(named, true)
		}
		if fits && score > bestScore {
			best, bestScore = e.Points, score
		}
	}
	return best
}

// holds reports whether an entry is for calls of the request's communicator.
func (e *Entry) holds(req plugin.Request, place string, mode Mode) bool {
	return (e.World == 0 || e.World == req.World) && (e.Hosts == 0 || e.Hosts == req.Hosts) &&
		(e.Memory == "" || e.Memory == req.Memory.String()) && (e.Topology == "" || e.Topology == place) &&
		(e.Mode == "" || e.Mode == mode)
}

// Tuned returns the entries of the tuning file that are for calls of a request's communicator, which says how many
// ranks, on how many hosts, and with which memory. Without a file there is none, and all is 0.
func (t *Table) Tuned(req plugin.Request) (entries []Entry, all int) {
	if t.costs.Tuning == nil {
		return nil, 0
	}
	for _, e := range t.costs.Tuning.Entries {
		if e.holds(req, t.topology, t.costs.mode()) {
			entries = append(entries, e)
		}
	}
	return entries, len(t.costs.Tuning.Entries)
}

// Marshal returns the text of the file, as ParseTuning reads it.
func (t *Tuning) Marshal() ([]byte, error) {
	t.Version = TuningVersion
	text, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "tuning: %w", err)
	}
	return append(text, '\n'), nil
}
