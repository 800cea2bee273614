package cudatest

import (
	"github.com/shunt-ccl/shunt/cuda"
)

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
	g := &graph{id: d.id()}
	st.capture = g
	d.graphs[cuda.Graph(g.id)] = g
	return nil
}

// EndCapture answers the graph; every stream that joined the capture runs again.
func (d *Driver) EndCapture(ctx cuda.Context, s cuda.Stream) (cuda.Graph, error) {
	if err := d.in(ctx, "EndCapture", "cuStreamEndCapture"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	st := d.get(s)
	if st == nil || st.capture == nil {
		return 0, failed(cuda.CaptureInvalid, "cuStreamEndCapture")
	}
	g := st.capture
	for _, other := range d.streams {
		if other.capture == g {
			other.capture = nil
		}
	}
	for _, e := range d.events {
		e.mu.Lock()
		if e.graph == g {
			e.graph = nil
		}
		e.mu.Unlock()
	}
	return cuda.Graph(g.id), nil
}

// CaptureInfo says what a stream records into.
func (d *Driver) CaptureInfo(ctx cuda.Context, s cuda.Stream) (cuda.Capture, error) {
	if err := d.in(ctx, "CaptureInfo", "cuStreamGetCaptureInfo"); err != nil {
		return cuda.Capture{}, err
	}
	defer d.mu.Unlock()
	st := d.get(s)
	if st == nil {
		return cuda.Capture{}, failed(cuda.InvalidHandle, "cuStreamGetCaptureInfo")
	}
	if st.capture == nil {
		return cuda.Capture{}, nil
	}
	return cuda.Capture{Status: cuda.CaptureActive, ID: st.capture.id, Graph: cuda.Graph(st.capture.id)}, nil
}

// Instantiate copies a graph as it is now.
func (d *Driver) Instantiate(ctx cuda.Context, g cuda.Graph) (cuda.GraphExec, error) {
	if err := d.in(ctx, "Instantiate", "cuGraphInstantiate"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	source := d.graphs[g]
	if source == nil {
		return 0, failed(cuda.InvalidValue, "cuGraphInstantiate")
	}
	x := &graph{id: d.id(), ops: append([]op(nil), source.ops...), tokens: append([]*token(nil), source.tokens...)}
	for _, t := range x.tokens {
		t.uses++
	}
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
	for _, t := range g.tokens {
		t.uses++
	}
	return d.enqueue(s, func(done <-chan struct{}) {
		for _, o := range g.ops {
			o(done)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.letGo(g.tokens)
	}, "cuGraphLaunch")
}

// letGo drops one use of each token; the lock is held.
func (d *Driver) letGo(tokens []*token) {
	for _, t := range tokens {
		if t.uses--; t.uses == 0 {
			d.released = append(d.released, t.value)
		}
	}
}

// DestroyGraph forgets a graph.
func (d *Driver) DestroyGraph(g cuda.Graph) error {
	if err := d.call("DestroyGraph", "cuGraphDestroy"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.graphs[g] == nil {
		return failed(cuda.InvalidValue, "cuGraphDestroy")
	}
	d.letGo(d.graphs[g].tokens)
	delete(d.graphs, g)
	return nil
}

// DestroyGraphExec forgets an executable; launches under way go on.
func (d *Driver) DestroyGraphExec(x cuda.GraphExec) error {
	if err := d.call("DestroyGraphExec", "cuGraphExecDestroy"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.execs[x] == nil {
		return failed(cuda.InvalidValue, "cuGraphExecDestroy")
	}
	d.letGo(d.execs[x].tokens)
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

// LoadModule takes any image that is not empty.
func (d *Driver) LoadModule(ctx cuda.Context, image []byte) (cuda.Module, error) {
	if err := d.in(ctx, "LoadModule", "cuModuleLoadData of %d bytes", len(image)); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if len(image) == 0 {
		return 0, failed(cuda.InvalidImage, "cuModuleLoadData of %d bytes", len(image))
	}
	m := cuda.Module(d.id())
	d.modules[m] = true
	return m, nil
}

// UnloadModule forgets a module.
func (d *Driver) UnloadModule(ctx cuda.Context, m cuda.Module) error {
	if err := d.in(ctx, "UnloadModule", "cuModuleUnload"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if !d.modules[m] {
		return failed(cuda.InvalidHandle, "cuModuleUnload")
	}
	delete(d.modules, m)
	return nil
}

// Function finds a registered kernel.
func (d *Driver) Function(ctx cuda.Context, m cuda.Module, name string, _ int) (cuda.Function, error) {
	if err := d.in(ctx, "Function", "loading kernel %s", name); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	k := d.options.Kernels[name]
	if !d.modules[m] || k == nil {
		return 0, failed(cuda.NotFound, "loading kernel %s", name)
	}
	f := cuda.Function(d.id())
	d.kernels[f] = k
	return f, nil
}

// LaunchKernels puts kernels into a stream. The argument blocks are copied.
func (d *Driver) LaunchKernels(ctx cuda.Context, s cuda.Stream, launches []cuda.Launch) (int, error) {
	if err := d.in(ctx, "LaunchKernels", "cuLaunchKernelEx of launch 1 of %d", len(launches)); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	for i, l := range launches {
		k := d.kernels[l.Function]
		threads := l.Block[0] * l.Block[1] * l.Block[2]
		if k == nil || l.Bytes > cuda.ParamBytes || threads == 0 || threads > 1024 || l.Grid[0]*l.Grid[1]*l.Grid[2] == 0 {
			return i, failed(cuda.InvalidValue, "cuLaunchKernelEx of launch %d of %d", i+1, len(launches))
		}
		if err := d.enqueue(s, func(done <-chan struct{}) { k(Grid{l, done}) }, "cuLaunchKernelEx"); err != nil {
			return i, err
		}
	}
	return len(launches), nil
}
