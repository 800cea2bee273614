package device

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/shunt-ccl/shunt/cuda"
)

// Graph is a captured graph and its executable.
type Graph struct {
	device *Device
	graph  cuda.Graph
	exec   cuda.GraphExec
}

// Capture records what enqueue puts into the stream. The thread is kept
// meanwhile: a capture belongs to the one that began it.
func (d *Device) Capture(s cuda.Stream, enqueue func() error) (_ *Graph, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := d.Driver.BeginCapture(d.Context, s); err != nil {
		return nil, err
	}
	failed := enqueue()
	g := &Graph{device: d}
	g.graph, err = d.Driver.EndCapture(d.Context, s)
	if failed != nil || err != nil {
		if g.graph != 0 {
			err = errors.Join(err, d.Driver.DestroyGraph(g.graph))
		}
		return nil, fmt.Errorf("under capture: %w", errors.Join(failed, err))
	}
	if g.exec, err = d.Driver.Instantiate(d.Context, g.graph); err != nil {
		return nil, errors.Join(err, d.Driver.DestroyGraph(g.graph))
	}
	return g, nil
}

// Launch replays the graph.
func (g *Graph) Launch(s cuda.Stream) error {
	return g.device.Driver.LaunchGraph(g.device.Context, g.exec, s)
}

// Destroy forgets the graph; launches under way continue.
func (g *Graph) Destroy() error {
	return errors.Join(g.device.Driver.DestroyGraphExec(g.exec), g.device.Driver.DestroyGraph(g.graph))
}
