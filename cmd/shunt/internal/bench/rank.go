package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// corrupt changes a result before it is checked, so that the check itself can
// be tested.
var corrupt = failpoint.New("bench.corrupt", "a result of `shunt bench`, before it is checked")

// Rank runs a rank of a benchmark: it joins by the environment, goes through the
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
	if c.Memory == plugin.MemoryKindCuda {
		// Captures belong to a thread, and so does NCCL's current device.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	options, err := c.options(os.Getenv)
	if err != nil {
		return err
	}
	return serve(ctx, c, out, options, rotated)
}

// serve joins and goes through the jobs.
func serve(ctx context.Context, c Config, out *json.Encoder, options host.Options, arena int64) (err error) {
	r, err := join(ctx, c, options, arena)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
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

// join makes a rank that is ready to measure. On a GPU operations rotate over at
// least arena bytes.
func join(ctx context.Context, c Config, options host.Options, arena int64) (_ *rank, err error) {
	r := &rank{config: c, pattern: newPattern(c.DType, c.Op, c.World), space: &hostSpace{}}
	if r.comm, err = host.Init(ctx, options); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.meet = &meeter{Communicator: r.comm}
	if options.Driver != nil {
		d, err := newDeviceSpace(options.Driver, options.Device, &c, r.meet, arena)
		if err != nil {
			return nil, err
		}
		r.space = d
		if err := d.register(r.comm); err != nil {
			return nil, err
		}
	}
	if err := r.meet.choose(r.space, &c); err != nil { // prepares it, before a gate holds the stream
		return nil, err
	}
	return r, r.openRivals(ctx, options)
}

// rank is the state of one rank.
type rank struct {
	config  Config
	comm    *host.Communicator
	meet    *meeter // of comm
	pattern *pattern
	space   space
	rivals  []rival // that are compared, in turn with Shunt
	tuned   *algorithms
	window  *host.Window
	group   host.Group
}

func (r *rank) close() error {
	var err error
	for _, other := range r.rivals {
		err = errors.Join(err, other.close())
	}
	return errors.Join(err, r.comm.Close(), r.space.close()) // the communicator takes the window along
}

// prepared is one job with its memory in place.
type prepared struct {
	shape shape
	job   job
	slots []slot
	most  int64 // bytes of a slot on the rank that needs most
	list  []candidate
}

// slot is the memory of one of the places that an operation rotates over. In
// place, send and receive memory overlap.
type slot struct {
	send, recv    area
	before, after area // around recv; must stay as they are
}

// guard is the length of what surrounds receive memory, in bytes: a page, so
// that the memory stays aligned.
const guard = 4096

// run measures one job.
func (r *rank) run(ctx context.Context, j job) (report, error) {
	p, err := r.prepare(ctx, j)
	if err != nil {
		return skipOr(err)
	}
	var rep report
	for i := range p.list {
		c := &p.list[i]
		for s := range p.slots {
			wrong, err := r.first(p, c, s)
			if err != nil {
				if i == 0 && s == 0 && errors.Is(err, plugin.Unsupported) {
					return skipOr(err)
				}
				return rep, c.failed(p, err)
			}
			c.wrong += wrong
		}
	}
	if rep.Iterations, err = r.space.samples(r, p, p.list); err != nil {
		return rep, err
	}
	for _, c := range p.list {
		rep.Covered += c.covered
	}
	// What ran last is checked as well: counters and slots are at another place
	// than in the beginning.
	if r.checks(p) {
		for i := range p.list {
			wrong, err := r.checked(p, &p.list[i], len(p.slots)-1)
			if err != nil {
				return rep, p.list[i].failed(p, err)
			}
			p.list[i].wrong += wrong
		}
	}
	rep.Samples, rep.Wrong = p.list[0].samples, p.list[0].wrong
	others := p.list[1:]
	if r.config.Tune {
		if err := r.tuned.look(r, p); err != nil {
			return rep, err
		}
		others = p.list // each of them under its name
	}
	for _, c := range others {
		rep.Peers = append(rep.Peers, peerReport{Name: c.name, Samples: c.samples, Wrong: c.wrong, Iterations: c.rounds})
	}
	dtype := r.config.DType
	if p.shape.window != noWindow {
		dtype = plugin.Uint8
	}
	e, err := r.comm.Explain(j.test.collective, dtype, r.config.Op, r.config.message(j))
	if err != nil {
		return rep, err
	}
	rep.Algorithm = e.Chosen
	return rep, nil
}

// failed says whose operation an error came from, Shunt's or the peer's: a GPU
// tells only that something that ran on it has failed.
func (c *candidate) failed(p *prepared, err error) error {
	name := c.name
	if name == "" {
		name = "shunt"
	}
	return fmt.Errorf("%s of %s, %d elements: %w", p.job.test.name, name, p.shape.count, err)
}

// skipOr returns a report of a job that no transport serves, on any rank, or the
// error.
func skipOr(err error) (report, error) {
	if errors.Is(err, plugin.Unsupported) {
		return report{Skipped: err.Error()}, nil
	}
	return report{}, err
}

// prepare lays a job's memory out.
func (r *rank) prepare(ctx context.Context, j job) (*prepared, error) {
	s := j.test.shape(place{r.config.World, r.comm.Rank(), r.config.Root}, j.elements)
	p := &prepared{shape: s, job: j}
	size := r.config.DType.Bytes()
	send, recv := j.memory(s, size)
	// As many slots on every rank, and at the same offsets, also where some need
	// less memory than others: every rank runs the operation once for each, and
	// symmetric memory asks for equal offsets.
	var sendEach, recvEach int64
	for rank := range r.config.World {
		s, v := each(j.memory(j.test.shape(place{r.config.World, rank, r.config.Root}, j.elements), size))
		sendEach, recvEach = max(sendEach, s), max(recvEach, v)
	}
	p.most = max(sendEach, recvEach)
	n := r.space.slots(p.most)
	if s.window != noWindow {
		n = 1
	}
	sends, err := r.space.buffer(sendBuffer, sendEach*int64(n))
	if err != nil {
		return nil, err
	}
	recvs, err := r.space.buffer(recvBuffer, recvEach*int64(n))
	if err != nil {
		return nil, err
	}
	for i := range int64(n) {
		all := recvs.part(i*recvEach, recvEach)
		k := slot{before: all.part(0, guard), after: all.part(guard+recv, guard), recv: all.part(guard, recv),
			send: sends.part(i*sendEach, send)}
		if j.inPlace {
			k.send, k.recv = all.part(guard+s.placeSend*size, s.send*size), all.part(guard+s.placeRecv*size, s.recv*size)
		}
		p.slots = append(p.slots, k)
	}
	if s.window != noWindow {
		return p, r.prepareWindow(ctx, p)
	}
	if r.config.Regret {
		auto := r.shuntCall(r.comm, p, p.slots)
		p.list = []candidate{{name: Auto, call: func(slot int) error {
			autoSlowed.Hit()
			return auto(slot)
		}}}
	}
	if r.config.Tune {
		return p, r.addRivals(p)
	}
	p.list = []candidate{{call: r.shuntCall(r.comm, p, p.slots)}}
	if j.inPlace {
		return p, nil
	}
	return p, r.addRivals(p)
}

// addRivals adds what else is compared.
func (r *rank) addRivals(p *prepared) error {
	for _, other := range r.rivals {
		list, err := other.candidates(r, p)
		if err != nil {
			return err
		}
		p.list = append(p.list, list...)
	}
	return nil
}

// memory returns the bytes that a rank's shape needs to send from and to receive
// into. In place they are one.
func (j job) memory(s shape, size int64) (send, recv int64) {
	if j.inPlace {
		return 0, max(s.placeSend+s.send, s.placeRecv+s.recv) * size
	}
	return s.send * size, s.recv * size
}

// each returns the bytes of one slot in the send and receive buffers, aligned as an
// allocation, with guards around the received data.
func each(send, recv int64) (int64, int64) {
	return (send + 511) / 512 * 512, (recv + 2*guard + 511) / 512 * 512
}

// shuntCall returns the operation of a shape over slots, on one of Shunt's
// communicators.
func (r *rank) shuntCall(comm *host.Communicator, p *prepared, slots []slot) func(int) error {
	operations := make([][]host.Operation, len(slots))
	for i, k := range slots {
		operations[i] = r.operations(p, k)
	}
	if len(p.shape.operations) == 1 {
		return func(slot int) error { return comm.Do(&operations[slot][0]) }
	}
	return func(slot int) error {
		for _, op := range operations[slot] {
			r.group.Add(op)
		}
		return r.group.Run(comm)
	}
}

// operations returns the operations of a shape on the memory of a slot.
func (r *rank) operations(p *prepared, k slot) []host.Operation {
	list := append([]host.Operation(nil), p.shape.operations...)
	for i := range list {
		op := &list[i]
		op.DType, op.Op, op.Stream = r.config.DType, r.config.Op, r.space.stream()
		op.Send, op.Recv = k.send.at, k.recv.at
		if op.Op == plugin.OpPremulSum {
			op.Scalar = scalar
		}
	}
	return list
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
	k := &p.slots[0]
	k.before, k.after = area{}, area{}
	bytes := k.send.bytes
	local := area{r.window.Local(), bytes}
	do := func(op host.Operation) func() error {
		op.Window, op.DType, op.Stream = r.window, plugin.Uint8, r.space.stream()
		return func() error { return r.comm.Do(&op) }
	}
	if p.shape.window == getNext {
		get := do(host.Operation{Collective: plugin.Get, Root: next, Recv: k.recv.at, Count: bytes})
		k.send = local // what the previous rank reads
		p.list = []candidate{{call: func(int) error { return get() }}}
		return nil
	}
	put := do(host.Operation{Collective: plugin.Put, Root: next, Send: k.send.at, Count: bytes})
	signal := do(host.Operation{Collective: plugin.Signal, Root: next})
	wait := do(host.Operation{Collective: plugin.Wait, Root: previous, Offset: 1})
	k.recv = local
	p.list = []candidate{{call: func(int) error {
		if err := put(); err != nil {
			return err
		}
		if err := signal(); err != nil {
			return err
		}
		return wait()
	}}}
	return nil
}

// ready fills the memory of an operation: known data to send, and something
// else where the result comes and around it.
func (r *rank) ready(p *prepared, c *candidate, number int) (slot, error) {
	k := p.slots[number]
	if c.slots != nil {
		k = c.slots[number]
	}
	for _, a := range []area{k.before, k.recv, k.after} {
		if err := r.space.poison(a); err != nil {
			return k, err
		}
	}
	return k, r.space.fill(k.send, r.pattern, source(r.comm.Rank()), 0)
}

// checks reports whether a job has results, and they are checked.
func (r *rank) checks(p *prepared) bool { return !r.config.NoCheck && p.shape.elements > 0 }

// first makes a slot ready for timing, and counts what is wrong of a result there.
func (r *rank) first(p *prepared, c *candidate, slot int) (wrong int64, err error) {
	checks := r.checks(p)
	if !checks && p.shape.elements > 0 {
		// Pages that were never written are all one page of zeros, which no cache
		// misses.
		if _, err := r.ready(p, c, slot); err != nil {
			return 0, err
		}
	}
	// Once at least, so that what a first call prepares is neither timed nor captured.
	if slot == 0 && (!checks || p.job.mode == Graph) {
		if err := r.once(c, slot); err != nil {
			return 0, err
		}
	}
	if !checks {
		return 0, nil
	}
	return r.checked(p, c, slot)
}

// checked runs the operation once over known data, as it is timed: by a call or by
// the replay of one. It counts the wrong elements of this rank's result, and the
// bytes beside it that were written.
func (r *rank) checked(p *prepared, c *candidate, slot int) (_ int64, err error) {
	size := r.config.DType.Bytes()
	run := func() error { return c.call(slot) }
	if p.job.mode == Graph {
		d := r.space.(*deviceSpace)
		// Before the memory is in place, so that only the replay can make a result.
		x, err := d.capture(1, func(int) error { return c.call(slot) })
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, d.driver.DestroyGraphExec(x)) }()
		run = func() error { return d.driver.LaunchGraph(d.ctx, x, d.own) }
	}
	k, err := r.ready(p, c, slot)
	if err != nil {
		return 0, err
	}
	// No rank starts before every rank's memory is in place, which matters where a
	// peer writes or reads it without this rank's doing.
	if err := r.barrier(); err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	if err := r.space.finish(); err != nil {
		return 0, err
	}
	if len(p.shape.expect) > 0 {
		if err := r.space.spoil(k.recv); err != nil {
			return 0, err
		}
	}
	wrong := int64(0)
	for _, e := range p.shape.expect {
		n, err := r.space.wrong(k.recv.part(e.offset*size, e.length*size), r.pattern, e.from, e.first)
		if err != nil {
			return 0, err
		}
		wrong += n
	}
	for _, a := range []area{k.before, k.after} {
		n, err := r.space.unpoisoned(a)
		if err != nil {
			return 0, err
		}
		wrong += n
	}
	return wrong, r.barrier()
}

// once runs the operation and waits for its end.
func (r *rank) once(c *candidate, slot int) error {
	if err := c.call(slot); err != nil {
		return err
	}
	return r.space.finish()
}

// barrier returns when every rank has entered it and this rank's operations
// have ended.
func (r *rank) barrier() error {
	if err := r.meet.Barrier(r.space.stream()); err != nil {
		return err
	}
	return r.space.finish()
}
