package nccltest

// #include "fake.h"
import "C"

import (
	"crypto/rand"
	"encoding/gob"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Apart has worlds that this process names be made of processes: their ranks meet at a socket of this process, and
// send what the others read there. Registrations, Violations, Break and Refuse know nothing of them.
func Apart() { apart.Store(true) }

var apart atomic.Bool

// board lets the ranks of a world exchange values by key, each for a given number of readers.
type board struct {
	mu     sync.Mutex
	come   *sync.Cond
	values map[string]*value
}

type value struct {
	data    []byte
	readers int
}

// note is a message from a rank to the board: a value, or a request for one, which the board grants once it has it.
type note struct {
	Key     string
	Data    []byte
	Readers int // 0: to read
}

// newBoard opens a board and returns its address, an abstract socket that no other process can know.
func newBoard() (string, error) {
	address := "@nccltest-" + rand.Text()
	listener, err := net.Listen("unix", address)
	if err != nil {
		return "", err
	}
	b := &board{values: map[string]*value{}}
	b.come = sync.NewCond(&b.mu)
	go func() { // until the process ends, as what NCCL listens with
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go b.serve(conn)
		}
	}()
	return address, nil
}

func (b *board) serve(conn net.Conn) {
	defer conn.Close()
	var n note
	if gob.NewDecoder(conn).Decode(&n) != nil {
		return
	}
	b.mu.Lock()
	if n.Readers > 0 {
		b.values[n.Key] = &value{n.Data, n.Readers}
		b.come.Broadcast()
	} else {
		for b.values[n.Key] == nil {
			b.come.Wait()
		}
		v := b.values[n.Key]
		n.Data = v.data
		if v.readers--; v.readers == 0 {
			delete(b.values, n.Key)
		}
	}
	b.mu.Unlock()
	_ = gob.NewEncoder(conn).Encode(&n) // the reader may be gone
}

// member is a rank of a world of processes.
type member struct {
	address        string
	joined         atomic.Bool
	lost           atomic.Bool // the board is gone, and with it a process
	sent, received []int       // messages, by rank
	stopped        <-chan struct{}
}

// ask sends a note and returns the reply; false: the rank was stopped, or the board is gone.
func (m *member) ask(n note, closed <-chan struct{}) ([]byte, bool) {
	conn, err := net.Dial("unix", m.address)
	if err != nil {
		m.lost.Store(true)
		return nil, false
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		defer conn.Close()
		select {
		case <-m.stopped:
		case <-closed:
		case <-over:
		}
	}()
	err = gob.NewEncoder(conn).Encode(&n)
	if err == nil {
		err = gob.NewDecoder(conn).Decode(&n)
	}
	select {
	case <-m.stopped:
		return nil, false
	case <-closed:
		return nil, false
	default:
	}
	if err != nil {
		m.lost.Store(true)
	}
	return n.Data, err == nil
}

func (m *member) put(key string, readers int, data []byte, closed <-chan struct{}) bool {
	_, ok := m.ask(note{key, data, readers}, closed)
	return ok
}

func (m *member) get(key string, closed <-chan struct{}) ([]byte, bool) {
	return m.ask(note{Key: key}, closed)
}

// join meets the others. It runs in a goroutine of its own, as in NCCL.
func join(name string, rank, size int, stopped <-chan struct{}) *member {
	if !strings.HasPrefix(name, "@") {
		return nil
	}
	m := &member{address: name, sent: make([]int, size), received: make([]int, size), stopped: stopped}
	go func() {
		if !m.put(fmt.Sprintf("joined %d", rank), size, nil, nil) {
			return
		}
		for r := range size {
			if _, ok := m.get(fmt.Sprintf("joined %d", r), nil); !ok {
				return
			}
		}
		m.joined.Store(true)
	}()
	return m
}

// state is as ncclCommGetAsyncError tells it.
func (m *member) state() C.int {
	switch {
	case m.lost.Load():
		return 6
	case !m.joined.Load():
		return 7
	}
	return 0
}

// message returns what sends or receives one. It is called in the order of the messages.
func (m *member) message(rank int, op C.fake_op, closed <-chan struct{}) func() {
	bytes := int64(op.count) * plugin.DType(op.dtype).Bytes()
	if op.kind == C.FAKE_SEND {
		key := fmt.Sprintf("message %d from %d to %d", m.sent[op.root], rank, op.root)
		m.sent[op.root]++
		return func() {
			if m.put(key, 1, append([]byte(nil), memory(op.send, bytes)...), closed) {
				m.get(key+" received", closed)
			}
		}
	}
	key := fmt.Sprintf("message %d from %d to %d", m.received[op.root], op.root, rank)
	m.received[op.root]++
	return func() {
		data, ok := m.get(key, closed)
		switch {
		case !ok:
		case len(data) != int(bytes): // neither end ends, as with NCCL
			select {
			case <-m.stopped:
			case <-closed:
			}
		default:
			copy(memory(op.recv, bytes), data)
			m.put(key+" received", 1, nil, closed)
		}
	}
}

// contribution is a rank's part of a collective.
type contribution struct {
	Op     [unsafe.Sizeof(C.fake_op{})]byte
	Scalar float64
	Data   []byte
}

// gather gives this rank's part of a collective to all ranks, and returns those of all.
func (m *member) gather(number, rank, size int, own contribution, closed <-chan struct{}) ([]contribution, bool) {
	var b strings.Builder
	if err := gob.NewEncoder(&b).Encode(own); err != nil {
		return nil, false
	}
	key := func(r int) string { return fmt.Sprintf("collective %d of %d", number, r) }
	if !m.put(key(rank), size, []byte(b.String()), closed) {
		return nil, false
	}
	all := make([]contribution, size)
	for r := range all {
		data, ok := m.get(key(r), closed)
		if !ok || gob.NewDecoder(strings.NewReader(string(data))).Decode(&all[r]) != nil {
			return nil, false
		}
	}
	return all, true
}

// collectiveApart does one with ranks of other processes; false: it was given up.
func (c *communicator) collectiveApart(op C.fake_op, closed <-chan struct{}) bool {
	own := contribution{Op: *(*[unsafe.Sizeof(C.fake_op{})]byte)(unsafe.Pointer(&op))}
	for i, s := range c.spans(op) {
		if i == 0 && s[0] == uint64(op.send) {
			own.Data = append([]byte(nil), memory(op.send, int64(s[1]))...)
		}
	}
	if op.op >= 100 {
		machine.Lock()
		own.Scalar = c.scalars[op.op-100]
		machine.Unlock()
	}
	all, ok := c.apart.gather(c.number, c.rank, c.world.size, own, closed)
	if !ok {
		// As NCCL's kernels do, which an abort ends.
		select {
		case <-c.stopped:
		case <-closed:
		}
		return false
	}
	c.number++
	r := &round{ops: make([]C.fake_op, len(all)), scalars: make([]float64, len(all)), data: make([][]byte, len(all))}
	for rank, part := range all {
		r.ops[rank], r.scalars[rank], r.data[rank] = *(*C.fake_op)(unsafe.Pointer(&part.Op)), part.Scalar, part.Data
	}
	to, result := c.result(r)
	copy(to, result)
	return true
}

// input returns what a rank gives to a collective: bytes of its send memory, which is another process's where there is
// data.
func (r *round) input(rank int, bytes int64) []byte {
	if r.data == nil {
		return memory(r.ops[rank].send, bytes)
	}
	return r.data[rank][:bytes]
}
