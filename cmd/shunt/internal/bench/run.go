package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/plugin"
)

// Row is one measured size, merged over all ranks.
type Row struct {
	Collective string  `json:"collective"`
	Bytes      int64   `json:"bytes"` // of the whole buffer
	Count      int64   `json:"count"` // elements of one rank's message
	DType      string  `json:"dtype"`
	Op         string  `json:"op"`   // "none" where nothing is reduced
	Root       int     `json:"root"` // -1 where there is none
	Algorithm  string  `json:"algorithm"`
	OutOfPlace *Timing `json:"out_of_place"`
	InPlace    *Timing `json:"in_place,omitempty"`
}

// Wrong is the number of wrong elements of both forms.
func (r *Row) Wrong() int64 {
	wrong := int64(0)
	for _, t := range []*Timing{r.OutOfPlace, r.InPlace} {
		if t != nil {
			wrong += t.Wrong
		}
	}
	return wrong
}

// Timing is one form of a row.
type Timing struct {
	Microseconds float64 `json:"us"` // of one operation: the median over batches of the slowest rank
	Algbw        float64 `json:"algbw"`
	Busbw        float64 `json:"busbw"` // GB/s, by the conventions of nccl-tests
	Wrong        int64   `json:"wrong"` // elements, over all ranks
	Iterations   int     `json:"iterations"`
}

// Launch is how Run starts the ranks.
type Launch struct {
	Job     launch.Job // World, Args and Files are filled in
	Signals <-chan os.Signal
	Args    func(config string) []string // of the program, for a rank with this configuration
}

// Run starts the ranks, hands every merged row to each as it is complete, and
// returns when all ranks have ended. The error is a *launch.Failure, joined
// with what the ranks said, when a rank failed.
func Run(ctx context.Context, c Config, l Launch, each func(Row)) error {
	if err := c.check(); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return plugin.Errorf(plugin.Internal, "bench: %w", err)
	}
	j := l.Job
	j.World, j.Args = c.World, l.Args(string(text))
	pipes := make([]*os.File, 0, c.World)
	j.Files = func(int) ([]*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, plugin.Errorf(plugin.System, "bench: %w", err)
		}
		pipes = append(pipes, r)
		return []*os.File{w}, nil
	}
	ended := make(chan error, 1)
	ready := make(chan struct{})
	j.Started = func() { close(ready) }
	go func() { ended <- launch.Run(ctx, j, l.Signals) }()
	var mergeErr error
	select {
	case <-ready:
		mergeErr = merge(c, pipes, each)
	case err := <-ended:
		ended <- err
	}
	err = <-ended
	for _, p := range pipes {
		_ = p.Close() // read to the end
	}
	return errors.Join(err, mergeErr)
}

// merge reads one report of every rank for each job.
func merge(c Config, pipes []*os.File, each func(Row)) error {
	readers := make([]*json.Decoder, len(pipes))
	for i, p := range pipes {
		readers[i] = json.NewDecoder(bufio.NewReader(p))
	}
	// Whatever ends the merge, the ranks must not block on a full pipe.
	defer func() {
		for i, p := range pipes {
			_, _ = io.Copy(io.Discard, readers[i].Buffered())
			_, _ = io.Copy(io.Discard, p)
		}
	}()
	var row *Row
	for _, j := range c.jobs() {
		t := Timing{}
		algorithm := ""
		var slowest []float64 // rank's time, by batch
		for rank, reader := range readers {
			var rep report
			if err := reader.Decode(&rep); err != nil {
				return saidLast(readers, rank+1) // the rank's end says more
			}
			if rep.Error != "" {
				return plugin.Errorf(plugin.Internal, "bench: rank %d: %s", rank, rep.Error)
			}
			if rank == 0 {
				slowest, algorithm = rep.Samples, rep.Algorithm
			}
			if len(rep.Samples) != len(slowest) || len(slowest) == 0 {
				return plugin.Errorf(plugin.Internal, "bench: rank %d timed %d batches, rank 0 %d", rank, len(rep.Samples), len(slowest))
			}
			for i, us := range rep.Samples {
				slowest[i] = max(slowest[i], us)
			}
			t.Wrong += rep.Wrong
			t.Iterations = rep.Iterations
		}
		t.Microseconds = median(slowest)
		if j.inPlace {
			t.bandwidth(j, row.Bytes, c.World)
			row.InPlace = &t
		} else {
			if row != nil {
				each(*row)
			}
			row = newRow(c, j, algorithm)
			t.bandwidth(j, row.Bytes, c.World)
			row.OutOfPlace = &t
		}
	}
	if row != nil {
		each(*row)
	}
	return nil
}

// saidLast looks for a rank that reported an error after another one fell
// silent.
func saidLast(readers []*json.Decoder, from int) error {
	var said error
	for rank := from; rank < len(readers); rank++ {
		var rep report
		if readers[rank].Decode(&rep) == nil && rep.Error != "" {
			said = errors.Join(said, fmt.Errorf("bench: rank %d: %s", rank, rep.Error))
		}
	}
	return said
}

func newRow(c Config, j job, algorithm string) *Row {
	s := j.test.shape(place{world: c.World, rank: c.Root, root: c.Root}, j.elements)
	r := &Row{
		Collective: j.test.name, Bytes: s.elements * c.DType.Bytes(), Count: s.count,
		DType: c.DType.String(), Op: "none", Root: -1, Algorithm: algorithm,
	}
	if j.test.collective.Reduces() {
		r.Op = c.Op.String()
	}
	if j.test.collective.Rooted() {
		r.Root = c.Root
	}
	return r
}

// bandwidth fills algbw and busbw from the time.
func (t *Timing) bandwidth(j job, bytes int64, world int) {
	if t.Microseconds > 0 {
		t.Algbw = float64(bytes) / t.Microseconds / 1e3
		t.Busbw = t.Algbw * j.test.bus(float64(world))
	}
}
