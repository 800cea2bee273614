package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// Where the caller's memory may lie, and how far apart its blocks: right beside addresses that must not be touched, and
// more bytes from its beginning than 32 bits count.

// elsewhere runs an operation on memory of another place. Each buffer's blocks are copied to the addresses that place
// gives, and back afterwards, so that the case is checked as every other.
func (s *stage) elsewhere(c *Case, place func(p *prepared) (send, recv []byte, err error)) error {
	list, err := s.prepare(s.comm, []*Case{c})
	if err != nil {
		return err
	}
	p := list[0]
	send, recv, err := place(p)
	if err != nil {
		return err
	}
	l := p.layout
	moveBlocks(send, p.send.data, c, p.op.SendDispls, l.input, true)
	p.op.Send, p.op.Recv = unsafe.Pointer(unsafe.SliceData(send)), unsafe.Pointer(unsafe.SliceData(recv))
	if err := s.rank.notOffered(s.comm, s.comm.Do(&p.op), c); err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	moveBlocks(recv, p.recv.data, c, p.op.RecvDispls, l.output, false)
	if err := p.verify(); err != nil {
		return fmt.Errorf("%s: %w", c.Name(), err)
	}
	return nil
}

// moveBlocks copies blocks between a buffer, where they are packed, and memory where they are at displacements; nil
// displacements are those of the buffer.
func moveBlocks(far, near []byte, c *Case, displs []int64, blocks []block, out bool) {
	size := c.DType.Bytes()
	for i, b := range blocks {
		at := b.at
		if displs != nil {
			at = displs[i]
		}
		a, n := far[at*size:(at+b.count)*size], near[b.at*size:(b.at+b.count)*size]
		if out {
			copy(a, n)
		} else {
			copy(n, a)
		}
	}
}

// pageEnd runs collectives on memory whose last byte, and then whose first, is beside an address that must not be
// touched. A rank that reads past the caller's memory dies of it, as it does where no page follows.
func pageEnd(_ context.Context, s *stage) error {
	collectives, err := s.someWhole()
	if err != nil {
		return err
	}
	for i, collective := range collectives {
		if collective == plugin.Barrier {
			continue
		}
		for _, last := range []bool{true, false} {
			c := s.with(i, collective, s.c.Count)
			c.Split = Even
			c.Root = i % c.World
			var walls []*walled
			err := s.elsewhere(c, func(p *prepared) (send, recv []byte, err error) {
				for _, at := range []struct {
					memory *[]byte
					bytes  int64
				}{{&send, int64(len(p.send.data))}, {&recv, int64(len(p.recv.data))}} {
					w, err := newWalled(at.bytes, last)
					if err != nil {
						return nil, nil, err
					}
					walls = append(walls, w)
					*at.memory = w.memory
				}
				return send, recv, nil
			})
			for _, w := range walls {
				err = errors.Join(err, w.close())
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// walled is memory between two pages that must not be touched.
type walled struct{ all, memory []byte }

// newWalled makes memory that ends at its last page's end or begins at its first page's beginning.
func newWalled(bytes int64, last bool) (*walled, error) {
	page := int64(os.Getpagesize())
	pages := (bytes + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, int(pages+2*page), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	w := &walled{all: all, memory: all[page : page+bytes]}
	if last {
		w.memory = all[page+pages-bytes : page+pages]
	}
	if pages == 0 {
		return w, nil
	}
	return w, unix.Mprotect(all[page:page+pages], unix.PROT_READ|unix.PROT_WRITE)
}

func (w *walled) close() error { return unix.Munmap(w.all) }

// farBlocks runs collectives whose last block lies 4 GiB behind the others: offsets of bytes that are computed in 32
// bits end in the first blocks. No more memory is touched than the blocks have.
func farBlocks(_ context.Context, s *stage) error {
	const far = 4 << 30
	for i, collective := range s.whole() {
		if !collective.Varying() {
			continue
		}
		c := s.with(i, collective, s.c.Count)
		c.Split, c.Displ, c.Root = Even, Packed, i%c.World
		size := c.DType.Bytes()
		var mapped [][]byte
		err := s.elsewhere(c, func(p *prepared) (send, recv []byte, err error) {
			for _, at := range []struct {
				memory *[]byte
				displs *[]int64
				bytes  int
			}{{&send, &p.op.SendDispls, len(p.send.data)}, {&recv, &p.op.RecvDispls, len(p.recv.data)}} {
				room := at.bytes
				if *at.displs != nil {
					moved := append([]int64(nil), *at.displs...)
					moved[len(moved)-1] += far / size
					*at.displs, room = moved, room+far
				}
				m, err := unix.Mmap(-1, 0, room+1, unix.PROT_READ|unix.PROT_WRITE,
					unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
				if err != nil {
					return nil, nil, absent("%d bytes of addresses cannot be mapped: %v", room, err)
				}
				mapped = append(mapped, m)
				*at.memory = m
			}
			return send, recv, nil
		})
		for _, m := range mapped {
			err = errors.Join(err, unix.Munmap(m))
		}
		if err != nil {
			return fmt.Errorf("with the last block 4 GiB behind the others: %w", err)
		}
	}
	return nil
}
