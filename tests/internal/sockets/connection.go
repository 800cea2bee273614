package sockets

import (
	"context"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
)

// peer is the connection to a rank. Messages of a direction are in the order of the
// calls, as plans for one peer and direction are.
type peer struct {
	rank int
	conn net.Conn
}

// dial connects to the ranks before this one and waits for those behind it.
func (e *endpoint) dial(ctx context.Context, cards []card) error {
	me := e.config.Rank
	defer interrupt(ctx, e.listener.(*net.TCPListener))()
	for rank := range me {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", cards[rank].Address)
		if err == nil {
			_, err = conn.Write(append(append([]byte(nil), cards[rank].Key...), byte(me)))
		}
		if err != nil {
			return &plugin.Error{Code: plugin.System, Rank: rank,
				Message: fmt.Sprintf("sockets: connecting to rank %d at %s: %v", rank, cards[rank].Address, err)}
		}
		e.peers[rank] = &peer{rank, conn}
	}
	for missing := e.config.World - me - 1; missing > 0; {
		conn, err := e.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return plugin.Errorf(plugin.CodeOf(err), "sockets: rank %d: %d ranks have not connected: %w", me, missing, err)
		}
		hello := make([]byte, len(e.key)+1)
		stop := interrupt(ctx, conn)
		_, err = io.ReadFull(conn, hello)
		stop()
		rank := int(hello[len(e.key)])
		if err != nil || subtle.ConstantTimeCompare(hello[:len(e.key)], e.key) != 1 || rank <= me || rank >= e.config.World ||
			e.peers[rank] != nil {
			conn.Close() // a stranger
			continue
		}
		e.peers[rank] = &peer{rank, conn}
		missing--
	}
	return nil
}

// interrupt ends what waits on a connection, or for one, when the context ends, unless stop is called before.
func interrupt(ctx context.Context, c interface{ SetDeadline(time.Time) error }) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// Commands. The arguments of send and recv are a peer, an offset of staging memory, the
// bytes of this message, those of all, and the tag; of exchange a tag table's offset.
const (
	opSend = iota + 1
	opRecv
	opExchange
	opRound // exchange, of which the arguments say what its table does: tags, totals out and in of each rank, round
)

// header stands before every message: the receiver's tag, the bytes that follow, and the
// bytes of all messages of this operation to this rank.
const headerBytes = 24

// do runs a command.
func (e *endpoint) do(ctx context.Context, c *ring.Command) error {
	stop := context.AfterFunc(ctx, func() {
		for _, p := range e.peers {
			if p != nil {
				_ = p.conn.SetDeadline(time.Unix(1, 0))
			}
		}
	})
	defer stop()
	switch c.Operation {
	case opSend, opRecv:
		rank := int(c.Args[0])
		if rank < 0 || rank >= len(e.peers) || e.peers[rank] == nil {
			return plugin.Errorf(plugin.InvalidArgument, "sockets: there is no connection from rank %d to rank %d",
				e.config.Rank, rank)
		}
		c.WaitsFor(rank)
		return e.move(ctx, e.peers[rank], c.Operation == opSend, c.Args[1], c.Args[2], c.Args[3], c.Args[4])
	case opRound:
		e.fill(c.Args)
		return e.exchange(ctx, c)
	case opExchange:
		return e.exchange(ctx, c)
	}
	return plugin.Errorf(plugin.Internal, "sockets: there is no command %d", c.Operation)
}

// exchange sends to and receives from every peer at the same time what the table says.
func (e *endpoint) exchange(ctx context.Context, c *ring.Command) error {
	var wait sync.WaitGroup
	errs := make([]error, 2*len(e.peers))
	waits := make([]bool, len(e.peers))
	var mu sync.Mutex
	ended := func(rank int) { // names a peer that is still waited for
		mu.Lock()
		defer mu.Unlock()
		waits[rank] = false
		for r, w := range waits {
			if w {
				c.WaitsFor(r)
				return
			}
		}
	}
	for rank, p := range e.peers {
		if p == nil {
			continue
		}
		out, in := e.entry(rank, false), e.entry(rank, true)
		if in.bytes >= 0 {
			waits[rank] = true
			c.WaitsFor(rank)
		}
		wait.Add(2)
		go func() {
			defer wait.Done()
			if out.bytes >= 0 {
				errs[2*rank] = e.move(ctx, p, true, int64(slotOf(len(e.peers), rank, slotOut)), out.bytes, out.total, c.Args[rank])
			}
		}()
		go func() {
			defer wait.Done()
			if in.bytes >= 0 {
				errs[2*rank+1] = e.move(ctx, p, false, int64(slotOf(len(e.peers), rank, slotIn)), in.bytes, in.total,
					c.Args[e.config.Rank])
			}
			ended(rank)
		}()
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// move sends or receives one message.
func (e *endpoint) move(ctx context.Context, p *peer, send bool, at, bytes, total, tag int64) error {
	e.leak()
	staging := e.ring.Staging()
	if at < 0 || bytes < 0 || at+bytes > int64(len(staging)) {
		return plugin.Errorf(plugin.Internal, "sockets: %d bytes at %d of staging memory", bytes, at)
	}
	data := staging[at : at+bytes]
	mine := [3]int64{tag, bytes, total}
	var h [headerBytes]byte
	if send {
		for i, v := range mine {
			binary.LittleEndian.PutUint64(h[8*i:], uint64(v))
		}
		buffers := net.Buffers{h[:], data}
		_, err := buffers.WriteTo(p.conn)
		return e.lost(ctx, p, "sending to", err)
	}
	if _, err := io.ReadFull(p.conn, h[:]); err != nil {
		return e.lost(ctx, p, "receiving from", err)
	}
	var theirs [3]int64
	for i := range theirs {
		theirs[i] = int64(binary.LittleEndian.Uint64(h[8*i:]))
	}
	switch {
	case e.is("any_length") && theirs[2] != total:
		_, err := io.CopyN(io.Discard, p.conn, theirs[1])
		return e.lost(ctx, p, "receiving from", err)
	case theirs[0] != tag:
		return &plugin.Error{Code: plugin.Mismatch, Rank: p.rank,
			Message: fmt.Sprintf("rank %d sent rank %d a message of another operation than rank %d has called", p.rank,
				e.config.Rank, e.config.Rank)}
	case theirs[2] != total || theirs[1] != bytes:
		return &plugin.Error{Code: plugin.Mismatch, Rank: p.rank,
			Message: fmt.Sprintf("rank %d sent rank %d a message of %d bytes, and rank %d expects %d", p.rank, e.config.Rank,
				theirs[2], e.config.Rank, total)}
	}
	_, err := io.ReadFull(p.conn, data)
	return e.lost(ctx, p, "receiving from", err)
}

// lost words the failure of a connection.
func (e *endpoint) lost(ctx context.Context, p *peer, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	code := plugin.System
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || isReset(err) {
		code = plugin.PeerDied
	}
	return &plugin.Error{Code: code, Rank: p.rank, Message: fmt.Sprintf("%s rank %d at %s: %v", what, p.rank,
		p.conn.RemoteAddr(), err)}
}
