package cudatest

import (
	"errors"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/cuda"
)

// Condition is a handle of cuGraphConditionalHandleCreate: what a conditional node looks at, and
// Decide sets.
type Condition uint64

// ConditionalKind says how a conditional node runs its bodies.
type ConditionalKind int

// Kinds of conditional nodes, as CUgraphConditionalNodeType numbers them.
const (
	If     ConditionalKind = iota // body 0 where the condition is not 0, else body 1 if there is one
	While                         // body 0 as long as the condition is not 0
	Switch                        // the body of that number, if there is one
)

// condition is shared by the executables made of its graph, so two of them are not to run at the same time.
type condition struct {
	owner   *graph
	initial uint32 // at each launch
	value   atomic.Uint32
	used    bool // by a conditional node
}

// conditional is the part of a conditional node that other nodes lack.
type conditional struct {
	kind      ConditionalKind
	condition *condition
	bodies    []*graph
}

// mayBeInBodies are the calls whose nodes a body may have: kernels, copies and memsets. CUDA also allows empty nodes
// and child graphs. Events that nodes record or wait for, host functions, allocations and what waits for a value in
// memory or writes one are not allowed; the driver only says so when the graph is instantiated.
var mayBeInBodies = map[string]bool{"cuLaunchKernelEx": true, "cuMemcpyAsync": true, "cuMemsetD8Async": true}

// NewCondition makes a condition for a conditional node of a graph, or of a body within it. Each launch begins with the
// initial value.
func (d *Driver) NewCondition(ctx cuda.Context, g cuda.Graph, initial uint32) (Condition, error) {
	if err := d.in(ctx, "NewCondition", "cuGraphConditionalHandleCreate"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if d.graphs[g] == nil {
		return 0, failed(cuda.InvalidValue, "cuGraphConditionalHandleCreate")
	}
	c := Condition(d.id())
	d.conditions[c] = &condition{owner: d.graphs[g].root(), initial: initial}
	return c, nil
}

// Decide puts a kernel into a stream that sets a condition to what value returns, with cudaGraphSetConditional.
func (d *Driver) Decide(ctx cuda.Context, s cuda.Stream, c Condition, value func() uint32) error {
	if err := d.in(ctx, "Decide", "cuLaunchKernelEx"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	known := d.conditions[c]
	if known == nil {
		return failed(cuda.InvalidValue, "cuLaunchKernelEx")
	}
	return d.enqueue(s, func(<-chan struct{}) { known.value.Store(value()) }, "cuLaunchKernelEx")
}

// AddConditional puts a conditional node into the graph that a stream is captured into, behind what is in the stream,
// and returns its bodies, which are the driver's: they go with the graph. It is cuGraphAddNode with the dependencies of
// cuStreamGetCaptureInfo, and cuStreamUpdateCaptureDependencies behind it.
func (d *Driver) AddConditional(ctx cuda.Context, s cuda.Stream, c Condition, kind ConditionalKind,
	bodies int) ([]cuda.Graph, error) {
	if err := d.in(ctx, "AddConditional", "cuGraphAddNode"); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	st, known := d.get(s), d.conditions[c]
	if st == nil || st.capture == nil || st.capture.broken || known == nil || known.used ||
		known.owner != st.capture.root() || bodies < 1 || kind == While && bodies > 1 || kind == If && bodies > 2 {
		return nil, failed(cuda.InvalidValue, "cuGraphAddNode")
	}
	known.used = true
	node, handles := &conditional{kind: kind, condition: known}, []cuda.Graph(nil)
	for range bodies {
		b := &graph{id: d.id(), parent: st.capture, ended: true}
		d.graphs[cuda.Graph(b.id)] = b
		node.bodies, handles = append(node.bodies, b), append(handles, cuda.Graph(b.id))
	}
	at := st.capture.add(st, nil, "cuGraphAddNode")
	st.capture.nodes[at].conditional = node
	return handles, nil
}

// BeginCaptureToGraph makes a stream record into a graph that is there already, such as a body. Every capture has a
// number of its own, also of one graph.
func (d *Driver) BeginCaptureToGraph(ctx cuda.Context, s cuda.Stream, to cuda.Graph) error {
	if err := d.in(ctx, "BeginCaptureToGraph", "cuStreamBeginCaptureToGraph"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	st, g := d.get(s), d.graphs[to]
	if st == nil || s == 0 || st.capture != nil {
		return failed(cuda.CaptureUnsupported, "cuStreamBeginCaptureToGraph")
	}
	if g == nil || !g.ended || g.broken {
		return failed(cuda.InvalidValue, "cuStreamBeginCaptureToGraph")
	}
	g.capture, g.origin, g.first, g.ended = d.id(), st, len(g.nodes), false
	st.capture, st.last = g, nil
	return nil
}

// Conditional puts a conditional node into the graph that s is captured into, with bodies captured from another stream:
// a kernel sets the condition to what value returns, before the node and at the end of each body.
func (d *Driver) Conditional(ctx cuda.Context, s, inner cuda.Stream, kind ConditionalKind, value func() uint32,
	bodies ...func() error) error {
	c, err := d.CaptureInfo(ctx, s)
	if err != nil {
		return err
	}
	condition, err := d.NewCondition(ctx, c.Graph, 0)
	if err == nil {
		err = d.Decide(ctx, s, condition, value)
	}
	if err != nil {
		return err
	}
	graphs, err := d.AddConditional(ctx, s, condition, kind, len(bodies))
	for i := 0; err == nil && i < len(bodies); i++ {
		if err = d.BeginCaptureToGraph(ctx, inner, graphs[i]); err != nil {
			return err
		}
		err = errors.Join(bodies[i](), d.Decide(ctx, inner, condition, value))
		_, ended := d.EndCapture(ctx, inner)
		err = errors.Join(err, ended)
	}
	return err
}

// root returns the graph that a body belongs to in the end; others are their own.
func (g *graph) root() *graph {
	for g.parent != nil {
		g = g.parent
	}
	return g
}

// each calls f for the graph and the bodies within it.
func (g *graph) each(f func(*graph)) {
	f(g)
	for i := range g.nodes {
		if c := g.nodes[i].conditional; c != nil {
			for _, b := range c.bodies {
				b.each(f)
			}
		}
	}
}

// allows reports whether the driver instantiates a graph: no capture of it is in progress or has failed, bodies have no
// nodes but those that they may have, and the kernels of each outermost conditional node are of one context.
func (g *graph) allows() bool {
	if g.broken || !g.ended {
		return false
	}
	for i := range g.nodes {
		c := g.nodes[i].conditional
		if c == nil {
			if g.parent != nil && !mayBeInBodies[g.nodes[i].call] {
				return false
			}
			continue
		}
		ctx, one := cuda.Context(0), true
		for _, b := range c.bodies {
			if !b.allows() {
				return false
			}
			b.each(func(b *graph) {
				for _, n := range b.nodes {
					if n.call == "cuLaunchKernelEx" && n.ctx != 0 {
						one = one && (ctx == 0 || ctx == n.ctx)
						ctx = n.ctx
					}
				}
			})
		}
		if !one {
			return false
		}
	}
	return true
}

// executable copies a graph as it is now, with the bodies within it.
func (g *graph) executable() *graph {
	x := &graph{nodes: append([]node(nil), g.nodes...), tokens: append([]*token(nil), g.tokens...)}
	for i := range x.nodes {
		c := x.nodes[i].conditional
		if c == nil {
			continue
		}
		own := &conditional{kind: c.kind, condition: c.condition}
		for _, b := range c.bodies {
			own.bodies = append(own.bodies, b.executable())
		}
		x.nodes[i].conditional, x.nodes[i].op = own, own.run
	}
	return x
}

// reset gives the conditions of an executable the values that a launch begins with.
func (g *graph) reset() {
	g.each(func(g *graph) {
		for i := range g.nodes {
			if c := g.nodes[i].conditional; c != nil {
				c.condition.value.Store(c.condition.initial)
			}
		}
	})
}

func (c *conditional) run(done <-chan struct{}) {
	value := c.condition.value.Load
	switch c.kind {
	case If:
		if value() != 0 {
			c.bodies[0].run(done)
		} else if len(c.bodies) > 1 {
			c.bodies[1].run(done)
		}
	case While:
		for value() != 0 {
			select {
			case <-done:
				return
			default:
				c.bodies[0].run(done)
			}
		}
	case Switch:
		if v := value(); v < uint32(len(c.bodies)) {
			c.bodies[v].run(done)
		}
	}
}
