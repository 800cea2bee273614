package host_test

import (
	"errors"

	"github.com/shunt-ccl/shunt/cuda"
)

// captured is a graph of a rank.
type captured struct {
	rank  *rank
	graph cuda.Graph
	exec  cuda.GraphExec
}

// graph captures what body does.
func (r *rank) graph(body func() error) (g captured, err error) {
	if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
		return captured{}, err
	}
	err = body()
	graph, ended := r.driver.EndCapture(r.ctx, r.stream)
	if err = errors.Join(err, ended); err != nil {
		return captured{}, err
	}
	x, err := r.driver.Instantiate(r.ctx, graph)
	return captured{r, graph, x}, err
}

func (g captured) launch() error { return g.rank.driver.LaunchGraph(g.rank.ctx, g.exec, g.rank.stream) }

// replay launches it and waits until the stream is done.
func (g captured) replay() error {
	return errors.Join(g.launch(), g.rank.driver.SynchronizeStream(g.rank.ctx, g.rank.stream))
}

func (g captured) destroy() error {
	return errors.Join(g.rank.driver.DestroyGraphExec(g.exec), g.rank.driver.DestroyGraph(g.graph))
}
