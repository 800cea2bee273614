package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// Row is one measured size, merged over all ranks.
type Row struct {
	Collective string  `json:"collective"`
	Bytes      int64   `json:"bytes"` // of the whole buffer
	Count      int64   `json:"count"` // elements of one rank's message
	DType      string  `json:"dtype"`
	Op         string  `json:"op"`             // "none" where nothing is reduced
	Root       int     `json:"root"`           // -1 where there is none
	Mode       Mode    `json:"mode,omitempty"` // GPUs only
	Algorithm  string  `json:"algorithm"`
	OutOfPlace *Timing `json:"out_of_place"`
	InPlace    *Timing `json:"in_place,omitempty"`
	Peers      []Peer  `json:"peers,omitempty"`   // what was compared, out of place
	Skipped    string  `json:"skipped,omitempty"` // why nothing was measured
	// Covered is the share of batches, of all candidates and ranks, that ran
	// beside other work from beginning to end, where there was to be some.
	Covered *float64 `json:"covered,omitempty"`
}

// Peer is the timing of another library, or of another form of Shunt.
type Peer struct {
	Name string `json:"name"`
	Timing
}

// Best returns the shortest time of NCCL with a right result, in microseconds; 0 if
// there is none. The name says in which form.
func (r *Row) Best() (us float64, name string) {
	for _, p := range r.Peers {
		if (p.Name == NCCL || p.Name == NCCLWindow) && p.Wrong == 0 && (us == 0 || p.Microseconds < us) {
			us, name = p.Microseconds, p.Name
		}
	}
	return us, name
}

// Ours returns Shunt's shortest time out of place with a right result, on memory of
// any kind; 0 if there is none.
func (r *Row) Ours() (us float64) {
	if r.OutOfPlace != nil && r.OutOfPlace.Wrong == 0 {
		us = r.OutOfPlace.Microseconds
	}
	if p := r.Peer(Symmetric); p != nil && p.Wrong == 0 && (us == 0 || p.Microseconds < us) {
		us = p.Microseconds
	}
	return us
}

// Peer returns the contender of a name, or nil.
func (r *Row) Peer(name string) *Peer {
	for i := range r.Peers {
		if r.Peers[i].Name == name {
			return &r.Peers[i]
		}
	}
	return nil
}

// Wrong returns the number of wrong elements of all forms of Shunt.
func (r *Row) Wrong() int64 {
	wrong := int64(0)
	for _, t := range []*Timing{r.OutOfPlace, r.InPlace} {
		if t != nil {
			wrong += t.Wrong
		}
	}
	for _, p := range r.Peers {
		if p.Name != NCCL && p.Name != NCCLWindow {
			wrong += p.Wrong
		}
	}
	return wrong
}

// Timing is one form of a row.
type Timing struct {
	Microseconds float64 `json:"us"`     // of one operation: the median over batches of the slowest rank
	P25          float64 `json:"us_p25"` // likewise
	P75          float64 `json:"us_p75"`
	P99          float64 `json:"us_p99"`
	Algbw        float64 `json:"algbw"`
	Busbw        float64 `json:"busbw"` // GB/s, by the conventions of nccl-tests
	Wrong        int64   `json:"wrong"` // elements, over all ranks
	Iterations   int     `json:"iterations"`

	batches int
}

// Launch configures how Run starts the ranks.
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
			return nil, plugin.Errorf(plugin.System, "bench: %w", descriptors.Advise(err, 2))
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
	var early *endedEarly
	if err != nil && errors.As(mergeErr, &early) { // how they ended says more
		mergeErr = nil
	}
	return errors.Join(err, mergeErr)
}

// endedEarly is the error of ranks that have ended before they had reported a measurement.
type endedEarly struct {
	ranks []int
	what  string
}

func (e *endedEarly) Error() string {
	who := "rank " + strings.Trim(strings.ReplaceAll(fmt.Sprint(e.ranks), " ", " and rank "), "[]")
	return fmt.Sprintf("bench: %s ended without an error, with nothing measured of %s", who, e.what)
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
	return mergeReports(c, readers, each)
}

// mergeReports makes rows of what the ranks report.
func mergeReports(c Config, readers []*json.Decoder, each func(Row)) error {
	var row *Row
	for _, j := range c.jobs() {
		m, whole, err := mergeJob(readers)
		if !whole {
			if row != nil && !j.inPlace { // it is complete
				each(*row)
			}
			var early *endedEarly
			if errors.As(err, &early) {
				early.what = j.test.name
			}
			return err
		}
		if !j.inPlace || row == nil || row.InPlace != nil || !row.is(c, j) {
			if row != nil {
				each(*row)
			}
			row = newRow(c, j, m.algorithm)
		}
		m.into(row, j, &c)
	}
	if row != nil {
		each(*row)
	}
	return nil
}

// mergeJob merges the ranks' reports of one job, and tells whether all have reported.
func mergeJob(readers []*json.Decoder) (m merged, whole bool, err error) {
	for rank, reader := range readers {
		var rep report
		if err := reader.Decode(&rep); err != nil {
			return m, false, saidLast(readers, rank)
		}
		if rep.Error != "" {
			return m, false, plugin.Errorf(plugin.Internal, "bench: rank %d: %s", rank, rep.Error)
		}
		if err := m.add(rank, &rep); err != nil {
			return m, false, err
		}
	}
	return m, true, nil
}

// merged joins all ranks' reports about one job.
type merged struct {
	timing    Timing
	algorithm string
	skipped   string
	slowest   []float64 // rank's time, by batch
	peers     []peerReport
	covered   int
}

func (m *merged) add(rank int, rep *report) error {
	bad := func(what string, have, want int) error {
		return plugin.Errorf(plugin.Internal, "bench: rank %d has timed %d %s, and rank 0 has timed %d", rank, have,
			what, want)
	}
	if rank == 0 {
		m.slowest, m.algorithm, m.skipped, m.peers = rep.Samples, rep.Algorithm, rep.Skipped, rep.Peers
	}
	m.timing.Wrong += rep.Wrong
	if (rep.Skipped == "") != (m.skipped == "") {
		return plugin.Errorf(plugin.Internal, "bench: rank %d says %q, rank 0 %q", rank, rep.Skipped, m.skipped)
	}
	m.timing.Iterations = rep.Iterations
	m.covered += rep.Covered
	if rep.Skipped != "" {
		return nil
	}
	if len(rep.Samples) != len(m.slowest) || len(m.slowest) == 0 {
		return bad("batches", len(rep.Samples), len(m.slowest))
	}
	slower(m.slowest, rep.Samples)
	if len(rep.Peers) != len(m.peers) {
		return bad("libraries", len(rep.Peers), len(m.peers))
	}
	for i := range m.peers {
		have, other := &m.peers[i], &rep.Peers[i]
		if len(other.Samples) != len(have.Samples) || len(have.Samples) == 0 || other.Name != have.Name {
			return bad("batches of "+have.Name, len(other.Samples), len(have.Samples))
		}
		if rank > 0 { // rank 0's are what it began with
			slower(have.Samples, other.Samples)
			have.Wrong += other.Wrong
		}
	}
	return nil
}

// slower keeps the longer time of each batch.
func slower(have, other []float64) {
	for i, us := range other {
		have[i] = max(have[i], us)
	}
}

// into writes the job's times into its row.
func (m *merged) into(row *Row, j job, c *Config) {
	if m.skipped != "" {
		row.Skipped = m.skipped
		return
	}
	timing := func(samples []float64, wrong int64) Timing {
		t := Timing{Microseconds: median(samples), P25: percentile(samples, 25), P75: percentile(samples, 75),
			P99: percentile(samples, 99), Wrong: wrong, Iterations: m.timing.Iterations, batches: len(samples)}
		t.bandwidth(j, row.Bytes, c.World)
		return t
	}
	if c.Busy > 0 {
		share := float64(m.covered) / float64(len(m.slowest)*(1+len(m.peers))*c.World)
		row.Covered = &share
	}
	t := timing(m.slowest, m.timing.Wrong)
	if j.inPlace {
		row.InPlace = &t
		return
	}
	row.OutOfPlace = &t
	for _, p := range m.peers {
		t := timing(p.Samples, p.Wrong)
		if p.Iterations > 0 {
			t.Iterations = p.Iterations
		}
		row.Peers = append(row.Peers, Peer{p.Name, t})
	}
}

// is reports whether the row is that of a job, in either form.
func (r *Row) is(c Config, j job) bool {
	other := newRow(c, j, "")
	return r.Collective == other.Collective && r.Bytes == other.Bytes && r.Mode == other.Mode
}

// saidLast looks for a rank that reported an error after another one fell silent. Else it returns who is silent.
func saidLast(readers []*json.Decoder, silent int) error {
	var said error
	early := &endedEarly{ranks: []int{silent}}
	for rank := silent + 1; rank < len(readers); rank++ {
		var rep report
		if readers[rank].Decode(&rep) != nil {
			early.ranks = append(early.ranks, rank)
		} else if rep.Error != "" {
			said = errors.Join(said, fmt.Errorf("bench: rank %d: %s", rank, rep.Error))
		}
	}
	return cmp.Or[error](said, early)
}

func newRow(c Config, j job, algorithm string) *Row {
	s := j.test.shape(place{world: c.World, rank: c.Root, root: c.Root}, j.elements)
	r := &Row{
		Collective: j.test.name, Bytes: s.elements * c.DType.Bytes(), Count: s.count,
		DType: c.DType.String(), Op: "none", Root: -1, Algorithm: algorithm,
	}
	if c.Memory == plugin.MemoryKindCuda {
		r.Mode = j.mode
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
