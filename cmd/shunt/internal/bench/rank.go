package bench

import (
	"context"
	"encoding/json"
	"io"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// corrupt changes a result before it is checked, so that the check itself can
// be tested.
var corrupt = failpoint.NewData("bench.corrupt", "a result of `shunt bench`, before it is checked")

// maxIterations bounds the timing of small operations.
const maxIterations = 20000

// batches is in how many parts the operations of a row are timed, each behind a
// barrier. The launcher takes the slowest rank of each and the median of them,
// so that what else runs on the machine spoils a batch and not the row.
const batches = 9

// Rank is a rank of a benchmark: it joins by the environment, goes through the
// jobs and writes one report each to w. The error has been reported too.
func Rank(ctx context.Context, c Config, w io.Writer) (err error) {
	out := json.NewEncoder(w)
	defer func() {
		if err != nil {
			_ = out.Encode(report{Error: err.Error()}) // the launcher may be gone
		}
	}()
	if err := c.check(); err != nil {
		return err
	}
	options := host.Options{}
	if c.Transport != "" {
		options.Transports = []string{c.Transport}
	}
	comm, err := host.Init(ctx, options)
	if err != nil {
		return err
	}
	r := &rank{config: c, comm: comm, pattern: newPattern(c.DType, c.Op, c.World)}
	defer func() {
		if closeErr := r.close(); err == nil {
			err = closeErr
		}
	}()
	for _, j := range c.jobs() {
		report, err := r.run(ctx, j)
		if err != nil {
			return err
		}
		if err := out.Encode(report); err != nil {
			return plugin.Errorf(plugin.System, "reporting to the launcher: %w", err)
		}
	}
	return nil
}

// rank is the state of one rank.
type rank struct {
	config     Config
	comm       *host.Communicator
	pattern    *pattern
	send, recv buffer
	count      buffer // one int64: the number of iterations
	window     *host.Window
	group      host.Group
}

// buffer is page-aligned memory outside Go's heap that grows as needed.
type buffer struct{ memory []byte }

// of is the buffer's first bytes.
func (b *buffer) of(bytes int64) ([]byte, error) {
	if int64(len(b.memory)) < bytes {
		if err := b.free(); err != nil {
			return nil, err
		}
		memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, plugin.Errorf(plugin.OutOfMemory, "buffer of %d bytes: %w", bytes, err)
		}
		b.memory = memory
	}
	return b.memory[:bytes], nil
}

func (b *buffer) free() error {
	if b.memory == nil {
		return nil
	}
	memory := b.memory
	b.memory = nil
	if err := unix.Munmap(memory); err != nil {
		return plugin.Errorf(plugin.System, "munmap: %w", err)
	}
	return nil
}

func pointer(memory []byte) unsafe.Pointer {
	if len(memory) == 0 {
		return nil
	}
	return unsafe.Pointer(&memory[0])
}

func (r *rank) close() error {
	err := r.comm.Close() // takes the window along
	for _, b := range []*buffer{&r.send, &r.recv, &r.count} {
		if freeErr := b.free(); err == nil {
			err = freeErr
		}
	}
	return err
}

// prepared is one job with its memory in place.
type prepared struct {
	shape      shape
	job        job
	send, recv []byte // the parts of the buffers; in place they overlap
	call       func() error
}

// run measures one job.
func (r *rank) run(ctx context.Context, j job) (report, error) {
	p, err := r.prepare(ctx, j)
	if err != nil {
		return report{}, err
	}
	var rep report
	if !r.config.NoCheck && p.shape.elements > 0 {
		if rep.Wrong, err = r.checked(p); err != nil {
			return rep, err
		}
	}
	if rep.Iterations, err = r.calibrate(p); err != nil {
		return rep, err
	}
	for left := rep.Iterations; left > 0; {
		n := max(rep.Iterations/batches, 1)
		us, err := r.timed(p, n)
		if err != nil {
			return rep, err
		}
		rep.Samples = append(rep.Samples, us)
		left -= n
	}
	rep.Iterations = len(rep.Samples) * max(rep.Iterations/batches, 1)
	dtype, count := r.config.DType, p.shape.count
	if p.shape.window != noWindow {
		dtype, count = plugin.Uint8, count*dtype.Bytes()
	}
	e, err := r.comm.Explain(j.test.collective, dtype, r.config.Op, count*dtype.Bytes())
	if err != nil {
		return rep, err
	}
	rep.Algorithm = e.Chosen
	return rep, nil
}

// prepare lays a job's memory out.
func (r *rank) prepare(ctx context.Context, j job) (*prepared, error) {
	s := j.test.shape(place{r.config.World, r.comm.Rank(), r.config.Root}, j.elements)
	p := &prepared{shape: s, job: j}
	size := r.config.DType.Bytes()
	var err error
	switch {
	case j.inPlace:
		var all []byte
		if all, err = r.recv.of(max(s.placeSend+s.send, s.placeRecv+s.recv) * size); err == nil {
			p.send, p.recv = all[s.placeSend*size:][:s.send*size], all[s.placeRecv*size:][:s.recv*size]
		}
	default:
		if p.send, err = r.send.of(s.send * size); err == nil {
			p.recv, err = r.recv.of(s.recv * size)
		}
	}
	if err != nil {
		return nil, err
	}
	if s.window != noWindow {
		return p, r.prepareWindow(ctx, p)
	}
	operations := s.operations
	for i := range operations {
		op := &operations[i]
		op.DType, op.Op = r.config.DType, r.config.Op
		op.Send, op.Recv = pointer(p.send), pointer(p.recv)
		if op.Op == plugin.OpPremulSum {
			op.Scalar = scalar
		}
	}
	if len(operations) == 1 {
		p.call = func() error { return r.comm.Do(&operations[0]) }
		return p, nil
	}
	p.call = func() error {
		for i := range operations {
			r.group.Add(operations[i])
		}
		return r.group.Run(r.comm)
	}
	return p, nil
}

// prepareWindow makes the window when it is first needed, large enough for
// every later job.
func (r *rank) prepareWindow(ctx context.Context, p *prepared) error {
	if r.window == nil {
		window, err := r.comm.NewWindow(ctx, max(r.config.Max, r.config.DType.Bytes()))
		if err != nil {
			return err
		}
		r.window = window
	}
	world, me := r.config.World, r.comm.Rank()
	next, previous := (me+1)%world, (me+world-1)%world
	local := unsafe.Slice((*byte)(r.window.Local()), r.window.Bytes())[:len(p.send)]
	bytes := int64(len(p.send))
	if p.shape.window == getNext {
		send := p.send
		copy(local, send)
		p.send = local // what the previous rank reads
		p.call = func() error { return r.window.Get(next, 0, pointer(p.recv), bytes) }
		return nil
	}
	p.recv = local
	p.call = func() error {
		if err := r.window.Put(next, 0, pointer(p.send), bytes); err != nil {
			return err
		}
		if err := r.window.Signal(next); err != nil {
			return err
		}
		return r.window.Wait(previous, 1)
	}
	return nil
}

// checked runs the operation once over known data and counts the wrong
// elements of this rank's result.
func (r *rank) checked(p *prepared) (int64, error) {
	size := r.config.DType.Bytes()
	for i := range p.recv {
		p.recv[i] = 0xA5
	}
	r.pattern.fill(p.send, source(r.comm.Rank()), 0)
	// Nobody starts before every rank's memory is in place, which matters where a
	// peer writes or reads it without this rank's doing.
	if err := r.comm.Barrier(nil); err != nil {
		return 0, err
	}
	if err := p.call(); err != nil {
		return 0, err
	}
	if len(p.shape.expect) > 0 {
		corrupt.Corrupt(p.recv)
	}
	wrong := int64(0)
	for _, e := range p.shape.expect {
		wrong += r.pattern.wrong(p.recv[e.offset*size:][:e.length*size], e.from, e.first)
	}
	return wrong, r.comm.Barrier(nil)
}

// calibrate decides how often to run; all ranks get rank 0's answer.
func (r *rank) calibrate(p *prepared) (int, error) {
	if r.config.Iterations > 0 {
		return r.config.Iterations, nil
	}
	memory, err := r.count.of(8)
	if err != nil {
		return 0, err
	}
	n := (*int64)(pointer(memory))
	*n = 1
	for {
		us, err := r.timed(p, int(*n))
		if err != nil {
			return 0, err
		}
		spent, budget := us*float64(*n), float64(r.config.Budget.Microseconds())
		enough := *n
		// A short run says little: try again with more until a tenth is spent.
		done := spent*10 >= budget || *n >= maxIterations/4
		if done {
			enough = int64(budget / max(us, 0.01))
		} else {
			enough *= 4
		}
		*n = min(max(enough, 3), maxIterations)
		if done {
			*n = -*n
		}
		if err := r.comm.Broadcast(pointer(memory), pointer(memory), 1, plugin.Int64, 0, nil); err != nil {
			return 0, err
		}
		if *n > maxIterations || *n < -maxIterations || *n == 0 {
			return 0, plugin.Errorf(plugin.Internal, "bench: rank 0 asked for %d iterations", *n)
		}
		if *n < 0 {
			return int(-*n), nil
		}
	}
}

// timed runs the operation n times and returns the microseconds of one.
func (r *rank) timed(p *prepared, n int) (float64, error) {
	if err := r.comm.Barrier(nil); err != nil {
		return 0, err
	}
	began := time.Now()
	for range n {
		if err := p.call(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began).Nanoseconds()) / 1e3 / float64(n), nil
}
