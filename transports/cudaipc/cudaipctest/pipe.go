package cudaipctest

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/plugin"
)

// Each ordered pair of ranks has a pipe in each part of the receiver's region: how many bytes
// were put in and how many taken out, and a ring. Counters only grow.
const (
	ringBytes = 32 << 10
	pipeBytes = 128 + ringBytes
)

// pipe returns the pipe from one rank to another, wherever it is called from.
func (c *call) pipe(from, to int) uint64 { return c.region[to] + c.pipes + uint64(from)*pipeBytes }

// push puts as much of b as there is room for into the pipe to a peer.
func (c *call) push(peer int, b []byte) int {
	if len(b) == 0 {
		return 0 // and the peer's memory need not be there
	}
	p := c.pipe(c.rank, peer)
	put := atomic.LoadUint64(word(p))
	n := min(len(b), ringBytes-int(put-atomic.LoadUint64(word(p+64))))
	for i := 0; i < n; {
		at := int((put + uint64(i)) % ringBytes)
		i += copy(memory(p+128+uint64(at), int64(ringBytes-at)), b[i:n])
	}
	if n > 0 {
		atomic.StoreUint64(word(p), put+uint64(n)) // release: what was copied is there
	}
	return n
}

// pull takes as much as there is for b out of the pipe from a peer.
func (c *call) pull(peer int, b []byte) int {
	if len(b) == 0 {
		return 0
	}
	p := c.pipe(peer, c.rank)
	taken := atomic.LoadUint64(word(p + 64))
	n := min(len(b), int(atomic.LoadUint64(word(p))-taken)) // acquire
	for i := 0; i < n; {
		at := int((taken + uint64(i)) % ringBytes)
		i += copy(b[i:n], memory(p+128+uint64(at), int64(ringBytes-at)))
	}
	if n > 0 {
		atomic.StoreUint64(word(p+64), taken+uint64(n))
	}
	return n
}

// exchange sends out[p] to and fills in[p] from every peer p, all at once.
func (c *call) exchange(out, in [maxRanks][]byte) {
	c.exchangeThen(out, in, func(int) []byte { return nil })
}

// exchangeThen is exchange; when in[p] is full, the buffer that then(p) returns is
// filled.
func (c *call) exchangeThen(out, in [maxRanks][]byte, then func(p int) []byte) {
	for {
		left, moved, waits := 0, false, c.rank
		for p := range c.world {
			if p == c.rank {
				continue
			}
			if n := c.push(p, out[p]); n > 0 {
				out[p], moved = out[p][n:], true
			}
			if n := c.pull(p, in[p]); n > 0 {
				in[p], moved = in[p][n:], true
				if len(in[p]) == 0 {
					in[p] = then(p)
				}
			}
			if len(out[p])+len(in[p]) > 0 {
				left, waits = left+1, p
			}
		}
		switch {
		case c.lost:
			return
		case left == 0:
			c.moved()
			return
		case moved:
			c.moved()
		case c.over(waits):
			return
		}
	}
}

// lengths are the lengths of the messages between this rank and every peer, as they
// move before them: what is sent, and what is filled and then compared.
type lengths struct{ out, in [maxRanks][]byte }

func (c *call) lengths(sends, recvs [maxRanks]int64) (l lengths) {
	for p := range c.world {
		if p != c.rank && sends[p] > 0 {
			l.out[p] = binary.LittleEndian.AppendUint64(nil, uint64(sends[p]))
		}
		if p != c.rank && recvs[p] > 0 {
			l.in[p] = make([]byte, 8)
		}
	}
	return l
}

// compare gives up where a peer's message is not as long as it should be.
func (c *call) compare(p int, length []byte, want int64) {
	if theirs := binary.LittleEndian.Uint64(length); theirs != uint64(want) {
		c.contradict(plugin.FaultLength, p, [3]uint64{uint64(want)}, [3]uint64{theirs})
		c.lost = true
	}
}

// messages exchanges messages, each behind its length. Empty ones are not sent.
func (c *call) messages(out, in [maxRanks][]byte) {
	var sends, recvs [maxRanks]int64
	for p := range c.world {
		sends[p], recvs[p] = int64(len(out[p])), int64(len(in[p]))
	}
	l := c.lengths(sends, recvs)
	for p := range c.world {
		out[p] = append(l.out[p], out[p]...)
	}
	c.exchangeThen(out, l.in, func(p int) []byte {
		body := in[p]
		if body != nil {
			c.compare(p, l.in[p], recvs[p])
		}
		in[p] = nil
		return body
	})
}

// everyone returns the same buffer for every peer.
func (c *call) everyone(b []byte) (all [maxRanks][]byte) {
	for p := range c.world {
		all[p] = b
	}
	return all
}

// rows returns world buffers of n bytes.
func (c *call) rows(n int64) (all [maxRanks][]byte) {
	for p := range c.world {
		all[p] = make([]byte, n)
	}
	return all
}

// agree exchanges with every peer what is called, and gives up where a peer calls something else.
func (c *call) agree(bytes int64) {
	word := c.word | plugin.CallWord(bytes)
	own, all := binary.LittleEndian.AppendUint64(nil, uint64(word)), c.rows(8)
	c.exchange(c.everyone(own), all)
	for p := range c.world {
		if theirs := binary.LittleEndian.Uint64(all[p]); p != c.rank && !c.lost && theirs != uint64(word) {
			c.contradict(plugin.FaultCall, p, [3]uint64{uint64(word)}, [3]uint64{theirs})
			c.lost = true
		}
	}
}

// meet returns once every rank has called it.
func (c *call) meet() { c.exchange(c.everyone([]byte{1}), c.rows(1)) }
