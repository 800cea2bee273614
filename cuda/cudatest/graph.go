package cudatest

import (
	"maps"
	"sync"

	"github.com/shunt-ccl/shunt/cuda"
)

// graph is a capture in progress, a graph or an executable.
type graph struct {
	id      uint64
	parent  *graph // that it is a body of a conditional node of
	capture uint64 // the number of its latest capture,
	origin  *stream
	first   int // and the first node of it
	nodes   []node
	tokens  []*token
	broken  bool // the capture cannot end well
	ended   bool
}

// node runs when all that it follows has run.
type node struct {
	op          op
	after       []int
	call        string       // that it is of
	ctx         cuda.Context // of the stream that it was captured from; 0: a default stream
	conditional *conditional // of a conditional node
}

// token is handed out when its last graph is gone.
type token struct {
	value uint64
	uses  int
}

// add adds a node behind what is in a stream that is captured into the graph.
func (g *graph) add(st *stream, o op, call string) int {
	g.nodes = append(g.nodes, node{op: o, after: st.last, call: call, ctx: st.ctx})
	st.last = []int{len(g.nodes) - 1}
	return st.last[0]
}

// joined reports whether every node of the capture comes before the given ones, or is one.
func (g *graph) joined(last []int) bool {
	reached := make([]bool, len(g.nodes))
	for _, n := range last {
		reached[n] = true
	}
	for n := len(g.nodes) - 1; n >= g.first; n-- { // what a node follows has lower numbers
		if !reached[n] {
			return false
		}
		for _, before := range g.nodes[n].after {
			reached[before] = true
		}
	}
	return true
}

// run runs the nodes, those that do not follow each other at the same time.
func (g *graph) run(done <-chan struct{}) {
	ended := make([]chan struct{}, len(g.nodes))
	for i := range ended {
		ended[i] = make(chan struct{})
	}
	var all sync.WaitGroup
	for i := range g.nodes {
		all.Go(func() {
			for _, before := range g.nodes[i].after {
				<-ended[before]
			}
			g.nodes[i].op(done)
			close(ended[i])
		})
	}
	all.Wait()
}

// BeginCapture makes a stream record instead of run.
func (d *Driver) BeginCapture(ctx cuda.Context, s cuda.Stream) error {
	if err := d.in(ctx, "BeginCapture", "cuStreamBeginCapture"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	st := d.get(s)
	if st == nil || s == 0 || st.capture != nil {
		return failed(cuda.CaptureUnsupported, "cuStreamBeginCapture")
	}
	g := &graph{id: d.id(), origin: st}
	g.capture = g.id
	st.capture, st.last = g, nil
	d.graphs[cuda.Graph(g.id)] = g
	return nil
}

// EndCapture returns the graph; every stream that joined the capture runs
// again. Branches that were not joined are an error, and then there is no graph.
func (d *Driver) EndCapture(ctx cuda.Context, s cuda.Stream) (cuda.Graph, error) {
	if err := d.in(ctx, "EndCapture", "cuStreamEndCapture"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	st := d.get(s)
	if st == nil || st.capture == nil || st.capture.origin != st {
		return 0, failed(cuda.CaptureInvalid, "cuStreamEndCapture")
	}
	g, joined := st.capture, st.capture.joined(st.last)
	g.ended = true
	for _, other := range d.streams {
		if other.capture == g {
			other.capture, other.last = nil, nil
		}
	}
	if g.broken || !joined {
		broken := g.broken
		g.broken = true
		if g.capture == g.id { // else the graph was there before
			d.forget(g)
		}
		if broken {
			return 0, failed(cuda.CaptureInvalid, "cuStreamEndCapture")
		}
		return 0, failed(cuda.CaptureUnjoined, "cuStreamEndCapture")
	}
	return cuda.Graph(g.id), nil
}

// CaptureInfo says what a stream records into.
func (d *Driver) CaptureInfo(ctx cuda.Context, s cuda.Stream) (cuda.Capture, error) {
	if err := d.in(ctx, "CaptureInfo", "cuStreamGetCaptureInfo"); err != nil {
		return cuda.Capture{}, err
	}
	defer d.mu.Unlock()
	return d.capture(s)
}

func (d *Driver) capture(s cuda.Stream) (cuda.Capture, error) {
	st := d.get(s)
	switch {
	case st == nil:
		return cuda.Capture{}, failed(cuda.InvalidHandle, "cuStreamGetCaptureInfo")
	case st.capture == nil:
		return cuda.Capture{}, nil
	case st.capture.broken:
		return cuda.Capture{Status: cuda.CaptureInvalidated}, nil
	}
	return cuda.Capture{Status: cuda.CaptureActive, ID: st.capture.capture, Graph: cuda.Graph(st.capture.id)}, nil
}

// Instantiate copies a graph as it is now.
func (d *Driver) Instantiate(ctx cuda.Context, g cuda.Graph) (cuda.GraphExec, error) {
	if err := d.in(ctx, "Instantiate", "cuGraphInstantiate"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	source := d.graphs[g]
	if source == nil || source.parent != nil || !source.allows() {
		return 0, failed(cuda.InvalidValue, "cuGraphInstantiate")
	}
	x := source.executable()
	x.id = d.id()
	x.hold()
	d.execs[cuda.GraphExec(x.id)] = x
	return cuda.GraphExec(x.id), nil
}

// LaunchGraph puts a graph's ops into a stream.
func (d *Driver) LaunchGraph(ctx cuda.Context, x cuda.GraphExec, s cuda.Stream) error {
	if err := d.in(ctx, "LaunchGraph", "cuGraphLaunch"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	g := d.execs[x]
	if g == nil {
		return failed(cuda.InvalidValue, "cuGraphLaunch")
	}
	if st := d.get(s); st != nil && st.capture != nil {
		return failed(cuda.CaptureUnsupported, "cuGraphLaunch") // no child graphs here
	}
	// The ops stay although the executable may be destroyed meanwhile; so do
	// its tokens, until the last op has run.
	g.hold()
	return d.enqueue(s, func(done <-chan struct{}) {
		g.reset()
		g.run(done)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.letGo(g)
	}, "cuGraphLaunch")
}

// hold adds one use to each token of a graph and of the bodies within it; the lock is held.
func (g *graph) hold() {
	g.each(func(g *graph) {
		for _, t := range g.tokens {
			t.uses++
		}
	})
}

// letGo drops one use of each token of a graph and of the bodies within it; the lock is held.
func (d *Driver) letGo(g *graph) {
	g.each(func(g *graph) {
		for _, t := range g.tokens {
			if t.uses--; t.uses == 0 {
				d.released = append(d.released, t.value)
			}
		}
	})
}

// forget ends a graph, with its bodies and conditions; the lock is held.
func (d *Driver) forget(g *graph) {
	d.letGo(g)
	g.each(func(g *graph) { delete(d.graphs, cuda.Graph(g.id)) })
	maps.DeleteFunc(d.conditions, func(_ Condition, c *condition) bool { return c.owner == g })
}

// DestroyGraph forgets a graph. A body of a conditional node goes with its graph, not alone.
func (d *Driver) DestroyGraph(g cuda.Graph) error {
	if err := d.call("DestroyGraph", "cuGraphDestroy"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.graphs[g] == nil || d.graphs[g].parent != nil {
		return failed(cuda.InvalidValue, "cuGraphDestroy")
	}
	d.forget(d.graphs[g])
	return nil
}

// DestroyGraphExec forgets an executable; launches under way continue.
func (d *Driver) DestroyGraphExec(x cuda.GraphExec) error {
	if err := d.call("DestroyGraphExec", "cuGraphExecDestroy"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.execs[x] == nil {
		return failed(cuda.InvalidValue, "cuGraphExecDestroy")
	}
	d.letGo(d.execs[x])
	delete(d.execs, x)
	return nil
}

// RetainOnGraph ties a token to a graph, also while it is being captured.
func (d *Driver) RetainOnGraph(g cuda.Graph, value uint64) error {
	if err := d.call("RetainOnGraph", "cuGraphRetainUserObject"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.graphs[g] == nil {
		return failed(cuda.InvalidValue, "cuGraphRetainUserObject")
	}
	d.graphs[g].tokens = append(d.graphs[g].tokens, &token{value, 1})
	return nil
}

// Released hands out tokens of graphs that are gone.
func (d *Driver) Released(tokens []uint64) []uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := copy(tokens, d.released)
	d.released = d.released[n:]
	return tokens[:n]
}
