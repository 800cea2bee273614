package badinput

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() {
	pool.Handle("badinput calls", callsHandler)
	pool.Handle("badinput mismatch", mismatchHandler)
	pool.Handle("badinput window", windowHandler)
	pool.Handle("badinput groups", groupsHandler)
	pool.Handle("badinput closed", closedHandler)
}

// request is the argument of every handler here.
type request struct {
	job.Request
	Number int  // mismatch: of the table
	Warm   bool // mismatch: after both calls were made once by all ranks
}

// verdict is the outcome of one bad call on one rank.
type verdict struct {
	Name    string
	Code    plugin.Code
	Message string
	After   string // why the communicator did not work afterwards
}

func verdictOf(name string, err error) verdict {
	v := verdict{Name: name, Code: plugin.CodeOf(err)}
	if err != nil {
		v.Message = err.Error()
	}
	return v
}

// bench is a job to make calls on.
type bench struct{ *job.Job }

const memoryBytes = 8 << 20

func open(ctx context.Context, w *pool.Worker, payload []byte) (*bench, request, error) {
	var r request
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, r, err
	}
	j, err := job.New(w, r.Memory, memoryBytes)
	if err != nil {
		return nil, r, err
	}
	if err := j.Join(ctx, r.Request); err != nil {
		return nil, r, errors.Join(err, j.Close())
	}
	return &bench{j}, r, nil
}

// operation turns a call into what the Go interface takes.
func (b *bench) operation(c *Call) (host.Operation, error) {
	op := host.Operation{
		Count: c.Count, SendCounts: c.SendCounts, SendDispls: c.SendDispls, RecvCounts: c.RecvCounts,
		RecvDispls: c.RecvDispls,
	}
	var err error
	if op.Collective, err = enum(c.Collective, plugin.ParseCollective); err != nil {
		return op, err
	}
	if op.DType, err = enum(c.DType, plugin.ParseDType); err != nil {
		return op, err
	}
	if op.Op, err = enum(c.Op, plugin.ParseOp); err != nil {
		return op, err
	}
	switch c.Root {
	case "":
	case "self":
		op.Root = b.Comm.Rank()
	default:
		if op.Root, err = strconv.Atoi(string(c.Root)); err != nil {
			return op, err
		}
	}
	send, recv := b.Pointer(0), b.Pointer(memoryBytes/2)
	if op.Send, err = word(c.Send, send, send, op.DType); err != nil {
		return op, err
	}
	op.Recv, err = word(c.Recv, recv, send, op.DType)
	return op, err
}

// word returns the address that a word of the table stands for.
func word(text string, own, other unsafe.Pointer, d plugin.DType) (unsafe.Pointer, error) {
	switch text {
	case "", "ok":
		return own, nil
	case "null":
		return nil, nil
	case "odd":
		return unsafe.Add(own, 1), nil
	case "inside":
		return unsafe.Add(other, d.Bytes()), nil
	case "same":
		return other, nil
	case "high":
		return unsafe.Add(nil, -64), nil // never touched: the call must refuse it
	}
	return nil, fmt.Errorf("unknown word %q for memory", text)
}

// works makes a good call and checks its result.
func (b *bench) works() error { return b.Sum(b.Comm) }

// judge makes a bad call by way of f and a good one behind it.
func (b *bench) judge(name string, f func() error) verdict {
	v := verdictOf(name, f())
	if err := b.works(); err != nil {
		v.After = err.Error()
	}
	return v
}

func callsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	table, err := Load()
	if err != nil {
		return nil, err
	}
	b, _, err := open(ctx, w, payload)
	if err != nil {
		return nil, err
	}
	var verdicts []verdict
	for i := range table.Calls {
		e := &table.Calls[i]
		op, err := b.operation(&e.Call)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		verdicts = append(verdicts, b.judge(e.Name, func() error { return b.Comm.Do(&op) }))
		verdicts = append(verdicts, b.judge(e.Name+", started", func() error {
			request, err := b.Comm.Start(&op)
			if err != nil {
				return err
			}
			return request.Wait(ctx)
		}))
	}
	if err := b.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(verdicts)
}

func mismatchHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	table, err := Load()
	if err != nil {
		return nil, err
	}
	b, r, err := open(ctx, w, payload)
	if err != nil {
		return nil, err
	}
	m := &table.Mismatches[r.Number]
	if r.Warm {
		for i := range m.Calls {
			op, err := b.operation(&m.Calls[i])
			if err != nil {
				return nil, err
			}
			if err := b.Comm.Do(&op); err != nil {
				return nil, fmt.Errorf("%s, call %d by all ranks: %w", m.Name, i, err)
			}
		}
	}
	op, err := b.operation(&m.Calls[w.Rank])
	if err != nil {
		return nil, err
	}
	v := verdictOf(m.Name, b.Comm.Do(&op))
	if v.Code == plugin.OK {
		// A rank that needs nothing of its peer may be through; the next call
		// must tell it.
		v = verdictOf(m.Name, b.Comm.Barrier(nil))
	}
	// An aborted communicator stays aborted, with the same reason.
	if again := verdictOf(m.Name, b.works()); again.Code != v.Code {
		v.After = fmt.Sprintf("the next call gives %s: %s", again.Code, again.Message)
	}
	if err := b.Close(); err != nil {
		return nil, err
	}
	return json.Marshal([]verdict{v})
}

func windowHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	b, _, err := open(ctx, w, payload)
	if err != nil {
		return nil, err
	}
	var verdicts []verdict
	add := func(name string, f func() error) { verdicts = append(verdicts, b.judge(name, f)) }
	add("negative window", func() error { _, err := b.Comm.NewWindow(ctx, -1); return err })
	window, err := b.Comm.NewWindow(ctx, 100)
	if err != nil {
		return nil, err
	}
	memory, peer := b.Pointer(0), 1-w.Rank
	add("symmetric null", func() error { return b.Comm.RegisterSymmetric(nil, 16) })
	add("symmetric of nothing", func() error { return b.Comm.RegisterSymmetric(memory, 0) })
	add("symmetric of less than nothing", func() error { return b.Comm.RegisterSymmetric(memory, -1<<63) })
	add("symmetric on one rank", func() error { return b.Comm.RegisterSymmetric(memory, int64(16*w.Rank)) })
	add("put behind the end", func() error { return window.Put(peer, 99, memory, 2) })
	add("get behind the end", func() error { return window.Get(peer, 0, memory, 101) })
	add("negative offset", func() error { return window.Put(peer, -1, memory, 1) })
	add("overflowing offset", func() error { return window.Put(peer, 1<<62, memory, 1<<62) })
	add("peer too large", func() error { return window.Signal(2) })
	add("null source", func() error { return window.Put(peer, 0, nil, 1) })
	add("misaligned offset", func() error {
		return b.Comm.Do(&host.Operation{Collective: plugin.Put, Window: window, Root: peer, Offset: 2, Send: memory,
			Count: 1, DType: plugin.Float32})
	})
	other, err := b.Comm.Split(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	add("another communicator's window", func() error {
		return other.Do(&host.Operation{Collective: plugin.Signal, Window: window, Root: peer, DType: plugin.Uint8})
	})
	if err := other.Close(); err != nil {
		return nil, err
	}
	if err := window.Close(); err != nil {
		return nil, err
	}
	add("closed window", func() error { return window.Signal(peer) })
	if err := b.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(verdicts)
}

func groupsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	b, _, err := open(ctx, w, payload)
	if err != nil {
		return nil, err
	}
	memory := b.Pointer(0)
	var verdicts []verdict
	add := func(name string, operations ...host.Operation) {
		verdicts = append(verdicts, b.judge(name, func() error {
			var g host.Group
			for _, op := range operations {
				g.Add(op)
			}
			return g.Run(b.Comm)
		}))
	}
	message := func(v plugin.Collective, count int64) host.Operation {
		return host.Operation{Collective: v, Send: memory, Recv: unsafe.Add(memory, 4096), Count: count, DType: plugin.Int32,
			Root: w.Rank}
	}
	add("collective in a group", host.Operation{Collective: plugin.AllReduce, Send: memory, Recv: memory, Count: 1,
		DType: plugin.Int32})
	add("send to itself without receive", message(plugin.Send, 1))
	add("itself with other sizes", message(plugin.Send, 2), message(plugin.Recv, 3))
	add("second is bad", message(plugin.Send, 1), message(plugin.Recv, -1))
	verdicts = append(verdicts, b.judge("negative color", func() error { _, err := b.Comm.Split(ctx, -5, 0); return err }))
	if err := b.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(verdicts)
}

func closedHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	b, _, err := open(ctx, w, payload)
	if err != nil {
		return nil, err
	}
	if err := b.works(); err != nil {
		return nil, err
	}
	if err := b.Comm.Close(); err != nil {
		return nil, err
	}
	var verdicts []verdict
	add := func(name string, err error) { verdicts = append(verdicts, verdictOf(name, err)) }
	add("call", b.works())
	_, err = b.Comm.Start(&host.Operation{Collective: plugin.Barrier})
	add("start", err)
	_, err = b.Comm.Split(ctx, 0, 0)
	add("split", err)
	_, err = b.Comm.NewWindow(ctx, 1)
	add("window", err)
	if err := b.Comm.Close(); err != nil {
		return nil, fmt.Errorf("second close: %w", err)
	}
	if err := b.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(verdicts)
}

// expand puts the rank into a message of the table. A rank that reports its own mistake
// names itself once.
func expand(message string, rank int) string {
	message = strings.ReplaceAll(message, fmt.Sprintf("%%r: rank %d: ", rank), "%r: ")
	return strings.ReplaceAll(message, "%r", strconv.Itoa(rank))
}
