package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// Names of the requests that a worker serves.
const (
	handlerOpen  = "conformance open"
	handlerCase  = "conformance case"
	handlerClose = "conformance close"
)

func init() {
	pool.Handle(handlerOpen, openHandler)
	pool.Handle(handlerCase, caseHandler)
	pool.Handle(handlerClose, closeHandler)
}

// openRequest makes the two communicators that cases run on.
type openRequest struct {
	Transport string
	Memory    plugin.MemoryKind
	ID        string
	Dir       string // for files that ranks share
	Algorithm string // SHUNT_ALGO
	Symmetric bool   // as in Config
	Hosts     int
	Timeout   time.Duration
	Probes    []int64        // when not nil, rank 0 returns what is offered at these sizes
	DTypes    []plugin.DType // for these dtypes; nil: for all
}

// openReply is rank 0's.
type openReply struct {
	Offers []offer
	Broken []broken
	Info   plugin.Info
}

// rank is the state of a worker that stays from case to case.
type rank struct {
	comms  [2]*host.Communicator
	device *device.Device // nil: host memory
	arena  arena
	side   arena // for what outlives the arena's next reset
	dir    string

	hosts     int                        // that the ranks pretend to run on
	symmetric bool                       // receive memory is registered as symmetric
	serves    map[plugin.Collective]bool // what the transport can do at all
	counts    bool                       // it takes counts from device memory
}

// Close releases everything.
func (r *rank) Close() error {
	errs := []error{r.closeComms(), r.arena.close(), r.side.close()}
	if r.device != nil {
		errs = append(errs, r.device.Close())
	}
	*r = rank{}
	return errors.Join(errs...)
}

func (r *rank) closeComms() error {
	var errs []error
	for i := range slices.Backward(r.comms[:]) {
		if r.comms[i] != nil {
			errs = append(errs, r.comms[i].Close())
			r.comms[i] = nil
		}
	}
	return errors.Join(errs...)
}

// onDevice gives the rank its GPU.
func (r *rank) onDevice(number int) (err error) {
	if r.device != nil {
		return nil
	}
	r.device, err = device.Open(number)
	r.arena.device, r.side.device = r.device, r.device
	return err
}

func stateOf(w *pool.Worker) *rank {
	if w.State == nil {
		w.State = &rank{}
	}
	return w.State.(*rank)
}

func openHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	var request openRequest
	if err := json.Unmarshal(payload, &request); err != nil {
		return nil, err
	}
	r := stateOf(w)
	if err := r.closeComms(); err != nil {
		return nil, pool.Fatal(fmt.Errorf("closing the previous communicators: %w", err))
	}
	r.dir, r.hosts = request.Dir, request.Hosts
	if r.symmetric = request.Symmetric; r.symmetric {
		r.arena.shared = true
		if err := r.arena.close(); err != nil { // what follows registers memory of its own
			return nil, pool.Fatal(err)
		}
	}
	if err := os.Setenv("SHUNT_ALGO", request.Algorithm); err != nil {
		return nil, err
	}
	if request.Hosts > 1 {
		id := fmt.Sprintf("host%d", w.Rank*request.Hosts/w.World)
		for _, name := range []string{"SHUNT_HOST_ID", "NCCL_HOSTID"} { // NCCL asks no one else what a host is
			if err := os.Setenv(name, id); err != nil {
				return nil, err
			}
		}
	}
	if request.Memory == plugin.MemoryKindCuda {
		if err := r.onDevice(w.Rank); err != nil {
			return nil, pool.Fatal(fmt.Errorf("device of rank %d: %w", w.Rank, err))
		}
	}
	options := host.Options{
		Rank: w.Rank, World: w.World, ID: request.ID, Transports: []string{request.Transport}, Timeout: request.Timeout,
		Memory: request.Memory,
	}
	if r.device != nil {
		options.Device, options.Driver = r.device.Ordinal, r.device.Driver
	}
	world, err := host.Init(ctx, options)
	if err != nil {
		return nil, pool.Fatal(fmt.Errorf("init: %w", err))
	}
	r.comms[0] = world
	if r.comms[1], err = world.Split(ctx, 0, w.Rank); err != nil {
		return nil, pool.Fatal(fmt.Errorf("second communicator: %w", err))
	}
	r.serves = map[plugin.Collective]bool{}
	for _, collective := range whole() {
		_, err := world.Explain(collective, plugin.Float32, plugin.OpSum, 1024)
		r.serves[collective] = err == nil
	}
	_, err = world.ExplainOnDevice(plugin.Float32)
	r.counts = err == nil
	if w.Rank != 0 {
		return nil, nil
	}
	reply := openReply{Info: world.Transports()[0].Info}
	if request.Probes != nil {
		reply.Broken = append(brokenResults(ctx, world.Transports()[0], w.World, request.Memory),
			acceptedOptions(ctx, world.Transports()[0], request.Memory, options.Device)...)
		if reply.Offers, err = offersOf(r.explainer(world), request.DTypes, request.Probes); err != nil {
			return nil, err
		}
	}
	return json.Marshal(reply)
}

func closeHandler(_ context.Context, w *pool.Worker, _ []byte) ([]byte, error) {
	if err := stateOf(w).Close(); err != nil {
		return nil, pool.Fatal(err)
	}
	return nil, nil
}

// caseReply is a rank's reply about a case that did not fail.
type caseReply struct {
	Skip string `json:",omitempty"` // why the case could not run: the capability that is absent
	Ran  string `json:",omitempty"` // the algorithm that ran
}

func caseHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	var c Case
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, err
	}
	r := stateOf(w)
	if r.comms[0] == nil {
		return nil, pool.Fatal(errors.New("no communicator is open"))
	}
	comm := r.comms[c.Comm]
	var ran selector.Explanation
	if c.Scenario == "" || c.OnDevice {
		var err error
		ran, err = r.explain(comm, &c)
		if plugin.CodeOf(err) == plugin.Unsupported {
			return json.Marshal(caseReply{Skip: err.Error()})
		}
		if err != nil {
			return nil, err
		}
	}
	if ran.OwnNumerics && (c.Family == Rounding || c.Family == Special) {
		return json.Marshal(caseReply{Skip: fmt.Sprintf("%s of %s values: %s says that it rounds in its own way (numerics)",
			c.Collective, c.Family, ran.Chosen)})
	}
	if c.Scenario != "" {
		scenario := scenarioNamed(c.Scenario)
		if scenario == nil {
			return nil, fmt.Errorf("no scenario %q", c.Scenario)
		}
		s := &stage{rank: r, comm: r.comms[0], c: &c, me: w.Rank, random: w.Rand}
		err := scenario.run(ctx, s)
		if isAbsent(err) {
			// What was called before what is not supported works on memory that the next case uses.
			if err := r.settle(); err != nil {
				return nil, pool.Fatal(err)
			}
			return json.Marshal(caseReply{Skip: err.Error()})
		}
		if err != nil { // the ranks may be out of step, and others wait for this one
			for _, comm := range r.comms {
				comm.Abort(err.Error())
			}
			return nil, pool.Fatal(err)
		}
		return json.Marshal(caseReply{})
	}
	if c.Algorithm != "" && ran.Chosen != c.Algorithm {
		if !slices.Contains(offered(ran), c.Algorithm) {
			return json.Marshal(caseReply{Skip: fmt.Sprintf("%s: %s is not offered for every dtype, op and size",
				c.Collective, c.Algorithm)})
		}
		return nil, fmt.Errorf("algorithm %s was forced but %s would run: %s", c.Algorithm, ran.Chosen, ran.Why)
	}
	if err := r.single(comm, &c); err != nil {
		return nil, err
	}
	return json.Marshal(caseReply{Ran: ran.Chosen})
}

// settle waits for what the rank has put into streams.
func (r *rank) settle() error {
	if r.device == nil {
		return nil
	}
	var errs []error
	for _, line := range append([]cuda.Stream{0}, r.device.Streams[:]...) {
		errs = append(errs, r.comms[0].Synchronize(device.Stream(line)))
	}
	return errors.Join(errs...)
}

// prepared is one operation with its buffers, ready to run and to be checked.
type prepared struct {
	c          *Case
	layout     *layout
	send, recv *buffer // the same when in place
	counts     *buffer // that are on the device; nil: they are on the host
	arrays     block   // what counts holds
	op         host.Operation
}

// room returns the number of bytes that a rank's buffers of a case take.
func (l *layout) room(c *Case) int64 {
	bytes := need(c.DType, l.send, c.SendShift) + need(c.DType, l.recv, c.RecvShift)
	if c.OnDevice {
		bytes += need(plugin.Int64, 4*int64(c.World), 0)
	}
	return bytes
}

// prepare carves the case's buffers out of the arena, which has room, and
// fills them.
func (r *rank) prepare(c *Case, me int, l *layout) (*prepared, error) {
	p := &prepared{c: c, layout: l}
	salt := byte(hash(c.Seed, uint64(me)))
	sendShift, recvShift := c.shifts(me)
	var err error
	p.op = host.Operation{
		Collective: c.Collective, DType: c.DType, Op: c.Op, Count: l.count, Root: c.Root,
		SendCounts: l.sendCounts, SendDispls: l.sendDispls, RecvCounts: l.recvCounts, RecvDispls: l.recvDispls,
	}
	if c.Op == plugin.OpPremulSum {
		p.op.Scalar = c.scalar(me)
	}
	shared := c.InPlace && l.inPlacePossible()
	receive := func() error {
		if !shared || l.sendIsInner {
			p.recv, err = r.arena.buffer("receive", c.DType, l.recv, recvShift, salt+1)
		}
		return err
	}
	if r.symmetric && receive() != nil { // first, as send memory is not equally long everywhere
		return nil, err
	}
	if !shared || !l.sendIsInner {
		if p.send, err = r.arena.buffer("send", c.DType, l.send, sendShift, salt); err != nil {
			return nil, err
		}
	}
	if !r.symmetric && receive() != nil {
		return nil, err
	}
	var sendAt, recvAt int64
	switch {
	case shared && l.sendIsInner:
		p.send, sendAt = p.recv, l.inPlaceAt
	case shared:
		p.recv, recvAt = p.send, l.inPlaceAt
	}
	p.op.Send, p.op.Recv = pointer(p.send, sendAt), pointer(p.recv, recvAt)
	for _, b := range l.input {
		b.at += sendAt
		p.send.put(b)
	}
	if c.OnDevice {
		return p, r.counted(p)
	}
	return p, nil
}

// each calls f for the operation's buffers.
func (p *prepared) each(f func(*buffer) error) error {
	err := f(p.send)
	if err == nil && p.recv != p.send {
		err = f(p.recv)
	}
	if err == nil && p.counts != nil {
		err = f(p.counts)
	}
	return err
}

func pointer(b *buffer, at int64) unsafe.Pointer { return b.pointer(at) }

// inPlacePossible says whether this rank has both buffers.
func (l *layout) inPlacePossible() bool { return l.send > 0 && l.recv > 0 }

// verify checks every byte of the case's buffers.
func (p *prepared) verify() error {
	l := p.layout
	if p.counts != nil {
		if err := p.counts.check(p.c, []block{p.arrays}); err != nil {
			return err
		}
	}
	if p.send != p.recv {
		return errors.Join(p.send.check(p.c, l.input), p.recv.check(p.c, l.output))
	}
	// In place: the result lies over the input.
	inner, outer, at := l.input, l.output, l.inPlaceAt
	if !l.sendIsInner {
		inner, outer = l.output, l.input
	}
	expected := slices.Clone(outer)
	for _, b := range inner {
		b.at += at
		covered := false
		for i, o := range expected {
			if o.at == b.at && o.count == b.count {
				covered = true
				if !l.sendIsInner {
					expected[i] = b // the result replaces what was sent
				}
			}
		}
		if !covered {
			expected = append(expected, b)
		}
	}
	return p.send.check(p.c, expected)
}

// single runs one collective as its axis says, and checks it.
func (r *rank) single(comm *host.Communicator, c *Case) error {
	var p *prepared
	return r.perform(comm, c.Axis, act{
		fill: func(turn uint64) error {
			now := c.at(turn)
			l := now.layoutOf(comm.Rank())
			err := r.makeRoom(now, l)
			if err == nil {
				p, err = r.prepare(now, comm.Rank(), l)
			}
			return err
		},
		enqueue: func(stream host.Stream) error {
			p.op.Stream = stream
			for range max(c.Repeat, 1) {
				if err := comm.Do(&p.op); err != nil {
					return r.notOffered(comm, err, p.c)
				}
			}
			return nil
		},
		check: func() error { return p.verify() },
	})
}
