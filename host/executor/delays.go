package executor

/*
#include "engine.h"
*/
import "C"

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Delays make ranks late between the steps of plans, for tests: orders of events
// that otherwise come once in a million runs come at once. Where a rank is late
// follows from the seed and from what the rank runs, so a failure repeats itself.
// Correctness never depends on a delay. delay.c says how long one lasts.
type Delays struct {
	Ranks       []int             // that are delayed, as the communicator numbers them; nil: all
	Steps       []plugin.StepKind // before which; nil: all of DelayableSteps
	Probability float64           // of a delay before each of these steps
	Longest     time.Duration     // a delay ends earlier once all other ranks sleep in a wait
	Seed        uint64
}

// MaxDelay is the longest that a delay may be.
const MaxDelay = time.Second

// delayable are the codes of the steps that touch memory which ranks share. The
// others change registers only: a delay there is one before the step that follows.
var delayable = map[plugin.StepKind][]C.uint32_t{
	plugin.StepLoad: {C.SX_LOAD}, plugin.StepStore: {C.SX_STORE}, plugin.StepCopy: {C.SX_COPY},
	plugin.StepReduce: {C.SX_REDUCE},
	plugin.StepSignal: {C.SX_SIGNAL}, plugin.StepWait: {C.SX_WAIT}, plugin.StepBarrier: {C.SX_ARRIVE, C.SX_GATHER},
	plugin.StepNative: {C.SX_NATIVE}, plugin.StepRemote: {C.SX_REMOTE},
}

// DelayableSteps returns the kinds of step that a delay may come before.
func DelayableSteps() []plugin.StepKind {
	return slices.DeleteFunc(plugin.StepKinds(), func(k plugin.StepKind) bool { return delayable[k] == nil })
}

// String returns the text that ParseDelays reads.
func (d *Delays) String() string {
	var parts []string
	if len(d.Ranks) > 0 {
		parts = append(parts, "ranks="+joined(d.Ranks))
	}
	if len(d.Steps) > 0 {
		parts = append(parts, "steps="+joined(d.Steps))
	}
	return strings.Join(append(parts, fmt.Sprintf("probability=%v,longest=%v,seed=%d", d.Probability, d.Longest, d.Seed)),
		",")
}

func joined[T any](list []T) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, "+")
}

// ParseDelays reads delays as in ranks=1+2,steps=copy+wait,probability=0.1,longest=2ms,seed=7.
// Each part may be left out: all ranks, all steps, 0.1, 2ms and 0. No text is no delays, nil.
func ParseDelays(text string) (*Delays, error) {
	if text == "" {
		return nil, nil
	}
	d := &Delays{Probability: 0.1, Longest: 2 * time.Millisecond}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if !d.parse(name, value) {
			return nil, plugin.Errorf(plugin.InvalidArgument,
				"delays %q: %q is not ranks=1+2, steps=copy+wait (of %v), probability=0.1, longest=2ms (at most %v) or seed=7",
				text, part, DelayableSteps(), MaxDelay)
		}
	}
	return d, nil
}

// parse reads one part; false: it is malformed.
func (d *Delays) parse(name, value string) bool {
	var err error
	switch name {
	case "ranks":
		for part := range strings.SplitSeq(value, "+") {
			rank, err := strconv.Atoi(part)
			if err != nil || rank < 0 {
				return false
			}
			d.Ranks = append(d.Ranks, rank)
		}
	case "steps":
		for part := range strings.SplitSeq(value, "+") {
			at := slices.IndexFunc(DelayableSteps(), func(k plugin.StepKind) bool { return k.String() == part })
			if at < 0 {
				return false
			}
			d.Steps = append(d.Steps, DelayableSteps()[at])
		}
	case "probability":
		d.Probability, err = strconv.ParseFloat(value, 64)
		return err == nil && d.Probability >= 0 && d.Probability <= 1
	case "longest":
		d.Longest, err = time.ParseDuration(value)
		return err == nil && d.Longest >= 0 && d.Longest <= MaxDelay
	case "seed":
		d.Seed, err = strconv.ParseUint(value, 10, 64)
		return err == nil
	default:
		return false
	}
	return true
}

// SetDelays makes later runs late, or no longer with nil. Each rank of the
// communicator sets the same ones: a rank that waits for a late one sleeps soon, or a
// delay would last longer than it needs to. Short forms are not delayed, so they are
// off meanwhile. No run may be in flight.
func (e *Engine) SetDelays(d *Delays) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.refuse(plugin.Closed, "it is closed")
	}
	e.tables.Add(1) // short forms look at it
	if e.c.delayed != 0 {
		e.c.delayed = 0
		e.c.policy = e.undelayed
	}
	if d == nil {
		return nil
	}
	e.undelayed = e.c.policy
	e.c.policy.spins, e.c.policy.yields = 0, 0
	e.c.delayed = 1
	chance := uint64(math.Round(d.Probability * (1 << 32)))
	if len(d.Ranks) > 0 && !slices.Contains(d.Ranks, e.rank) {
		chance = 0
	}
	kinds := d.Steps
	if len(kinds) == 0 {
		kinds = DelayableSteps()
	}
	steps := uint64(0)
	for _, k := range kinds {
		for _, code := range delayable[k] {
			steps |= 1 << code
		}
	}
	e.c.delays = C.sx_delays{steps: C.uint64_t(steps), chance: C.uint64_t(chance), longest: C.int64_t(d.Longest),
		seed: C.uint64_t(d.Seed)}
	return nil
}
