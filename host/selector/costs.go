package selector

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/shunt-ccl/shunt/plugin"
)

// Mode says how a program calls operations on GPUs. Costs differ: a single call pays for each of its launches. A rank
// cannot know whether its peers capture the call, so the mode is one for a job, not one for each call.
type Mode string

// The modes.
const (
	ModeGraph Mode = "graph" // replayed from graphs
	ModeEager Mode = "eager" // called one by one
)

func (m Mode) check() error {
	if m != ModeGraph && m != ModeEager {
		return plugin.Errorf(plugin.InvalidArgument, "mode %.40q is unknown, want %s or %s", m, ModeGraph, ModeEager)
	}
	return nil
}

// Sources of costs.
const (
	SourceEstimate = "estimate" // the transport's own
	SourceMeasured = "measured" // a tuning file's
	SourceBuiltin  = "built in" // measured on such hardware, and embedded in the program
)

// Costs are the measured costs that a job's choices are made by, and what they decide among. Ranks that choose by
// different ones would run different algorithms, so all ranks take rank 0's. The zero value has none.
type Costs struct {
	Mode    Mode    `json:"mode,omitempty"`   // empty: graph
	Tuning  *Tuning `json:"tuning,omitempty"` // the user's
	Builtin *Tuning `json:"builtin,omitempty"`
	// Numerics: how far results may be from those of the tables for cost to decide among them
	Numerics plugin.Numerics `json:"numerics,omitempty"`
}

func (c *Costs) mode() Mode {
	if c.Mode == "" {
		return ModeGraph
	}
	return c.Mode
}

// lookup returns the points for a signature and algorithm on a class of topology, and their source. The user's file
// goes before what is built in. Without points, nil.
func (c *Costs) lookup(req plugin.Request, topology, qualified string) (points []Point, source string) {
	if c.Tuning != nil {
		points, source = c.Tuning.lookup(req, topology, c.mode(), qualified), SourceMeasured
	}
	if points == nil && c.Builtin != nil {
		points, source = c.Builtin.lookup(req, topology, c.mode(), qualified), SourceBuiltin
	}
	return points, source
}

// Digest is equal for costs that make the same choices.
func (c Costs) Digest() string {
	c.Mode = c.mode()
	return digest(c.Encode())
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Encode returns the costs, without comments, as bytes for DecodeCosts.
func (c Costs) Encode() []byte {
	for _, t := range []**Tuning{&c.Tuning, &c.Builtin} {
		if *t != nil {
			*t = &Tuning{Version: TuningVersion, Entries: (*t).Entries}
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic("selector: " + err.Error()) // plain data; ParseTuning has refused what JSON cannot hold
	}
	return text
}

// DecodeCosts reads what Encode returned on another rank. It refuses what ParseTuning would.
func DecodeCosts(text []byte) (Costs, error) {
	var c Costs
	if len(text) > 3*maxTuningBytes {
		return c, plugin.Errorf(plugin.Protocol, "costs have %d bytes, want at most %d", len(text), 3*maxTuningBytes)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, plugin.Errorf(plugin.Protocol, "malformed costs: %w", err)
	}
	err := c.mode().check()
	for _, t := range []*Tuning{c.Tuning, c.Builtin} {
		if err == nil && t != nil {
			err = t.check()
		}
	}
	if err != nil {
		return Costs{}, plugin.Errorf(plugin.Protocol, "malformed costs: %w", err)
	}
	return c, nil
}

// dtypeClasses are the names of classes of dtypes whose reductions take about the same time a byte.
var dtypeClasses = [...]string{"integer", "float", "half", "float8"}

// DTypeClass returns the class of a dtype: integer, float (32 and 64 bits), half (16 bits, added up in 32) or float8.
// An entry of a tuning file may name a class in place of a dtype.
func DTypeClass(d plugin.DType) string {
	switch d {
	case plugin.Float32, plugin.Float64:
		return "float"
	case plugin.Float16, plugin.Bfloat16:
		return "half"
	case plugin.Float8E4m3, plugin.Float8E5m2:
		return "float8"
	}
	return "integer"
}
