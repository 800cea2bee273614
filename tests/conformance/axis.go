package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Axis names the way operations are executed: HostAxis, or on device memory
// "cuda.MODE.STREAM".
type Axis string

// HostAxis is blocking calls on host memory.
const HostAxis Axis = "host"

// Mode is the way operations on device memory are run.
type Mode string

// The modes.
const (
	// Eager: the call enqueues.
	Eager Mode = "eager"
	// Graph: the calls are captured once and replayed, each time on other input.
	Graph Mode = "graph"
	// Mixed: an eager call, two replays and an eager call.
	Mixed Mode = "mixed"
)

// Modes lists all modes.
func Modes() []Mode { return []Mode{Eager, Graph, Mixed} }

// Streams of an axis.
const (
	ownStream     = "own"     // one that the suite made, which does not wait for the default stream
	defaultStream = "default" // the default stream; graphs are captured on another and launched into it
)

// Axes lists the axes of a kind of memory, in the given modes; none means all.
// Host memory ignores modes.
func Axes(memory plugin.MemoryKind, modes ...Mode) []Axis {
	if memory == plugin.MemoryKindHost {
		return []Axis{HostAxis}
	}
	if len(modes) == 0 {
		modes = Modes()
	}
	var list []Axis
	for _, stream := range []string{ownStream, defaultStream} {
		for _, mode := range modes {
			list = append(list, axisOf(mode, stream))
		}
	}
	return list
}

func axisOf(mode Mode, stream string) Axis {
	return Axis(fmt.Sprintf("%s.%s.%s", plugin.MemoryKindCuda, mode, stream))
}

// parts takes an axis apart; host memory has neither mode nor stream.
func (a Axis) parts() (mode Mode, stream string) {
	f := strings.Split(string(a), ".")
	if len(f) != 3 {
		return "", ""
	}
	return Mode(f[1]), f[2]
}

// onDevice says whether operations run on device memory.
func (a Axis) onDevice() bool { return a != HostAxis && a != "" }

// eager returns the axis of the same stream without graphs.
func (a Axis) eager() Axis {
	if !a.onDevice() {
		return a
	}
	_, stream := a.parts()
	return axisOf(Eager, stream)
}

// validModes refuses what is not a mode.
func validModes(modes []Mode) error {
	for _, m := range modes {
		if !slices.Contains(Modes(), m) {
			return fmt.Errorf("conformance: mode %q is none of %v", m, Modes())
		}
	}
	return nil
}
