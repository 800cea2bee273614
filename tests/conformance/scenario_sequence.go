package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// whole returns every collective that all ranks call together.
func whole() []plugin.Collective {
	var list []plugin.Collective
	for _, v := range plugin.Collectives() {
		if !v.PointToPoint() {
			list = append(list, v)
		}
	}
	return list
}

func zeroMix(_ context.Context, s *stage) error {
	collectives, err := s.someWhole()
	if err != nil {
		return err
	}
	for step := range s.c.Repeat {
		for i, collective := range collectives {
			h := hash(s.c.Seed, uint64(step), uint64(i))
			if h%3 != 0 {
				continue
			}
			count := int64(0)
			if h>>8&1 != 0 {
				count = s.c.Count
			}
			c := s.with(step*100+i, collective, count)
			c.Root = int(h >> 16 % uint64(c.World))
			c.Split = []Split{Even, Single, Sparse}[h>>24%3]
			if err := s.run(step, s.comm, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func changingSplits(_ context.Context, s *stage) error {
	for step := range s.c.Repeat {
		h := hash(s.c.Seed, uint64(step))
		c := s.with(step, plugin.AllToAllV, int64(h%uint64(s.c.Count+1)))
		c.Split = []Split{Ragged, Sparse, Single, Even}[h>>32%4]
		c.Displ = []Displ{NoDispl, Gapped, Reversed, Packed}[h>>40%4]
		c.OnDevice = s.c.OnDevice
		if err := s.run(step, s.comm, c); err != nil {
			return err
		}
	}
	return nil
}

func changingRoots(_ context.Context, s *stage) error {
	rooted := []plugin.Collective{plugin.Broadcast, plugin.Reduce, plugin.Gather, plugin.Scatter, plugin.GatherV,
		plugin.ScatterV}
	for step := range s.c.Repeat {
		h := hash(s.c.Seed, uint64(step))
		c := s.with(step, rooted[h%uint64(len(rooted))], s.c.Count)
		if h>>48%3 == 0 {
			c.Collective = plugin.Broadcast // a fast root may run far ahead
		}
		c.Root = int(h >> 16 % uint64(c.World))
		s.dawdle()
		if err := s.run(step, s.comm, c); err != nil {
			return err
		}
	}
	return nil
}

func mixedSequence(_ context.Context, s *stage) error {
	collectives, err := s.someWhole()
	if err != nil {
		return err
	}
	for step := range s.c.Repeat {
		h := hash(s.c.Seed, uint64(step))
		c := s.with(step, collectives[h%uint64(len(collectives))], 0)
		c.DType = plugin.DTypes()[h>>8%12]
		c.Op = plugin.Ops()[h>>16%6]
		c.Count = int64(h >> 24 % uint64(s.c.Count+1))
		if h>>60&1 != 0 {
			c.Count %= 65 // half of them small
		}
		c.Root = int(h >> 32 % uint64(c.World))
		c.InPlace = canBeInPlace(c.Collective) && h>>40&1 != 0
		c.Split = []Split{Ragged, Even, Sparse, Single}[h>>44%4]
		c.Displ = []Displ{NoDispl, Gapped, Packed, Reversed}[h>>48%4]
		c.OnDevice = s.onDevice(c.Collective, h>>56)
		if h>>52&3 == 0 {
			s.dawdle()
		}
		if err := s.run(step, s.comm, c); err != nil {
			return err
		}
	}
	return nil
}

// barrierOrder lets every rank write the number of the round it is in into a
// page that all ranks share, before a barrier, and read those of all ranks afterwards.
func barrierOrder(_ context.Context, s *stage) error {
	path := filepath.Join(s.rank.dir, fmt.Sprintf("barrier-%x-%d", s.c.Seed, s.c.Set))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(64 * 1024); err != nil {
		return err
	}
	page, err := unix.Mmap(int(file.Fd()), 0, 64*1024, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(page)
	at := func(rank int) *atomic.Int64 { return (*atomic.Int64)(unsafe.Pointer(&page[64*rank])) }
	barrier := s.with(0, plugin.Barrier, 0)
	// The page may hold numbers of a run that failed.
	start := int64(0)
	for rank := range s.comm.World() {
		start = max(start, at(rank).Load())
	}
	if err := s.run(0, s.comm, barrier); err != nil { // all ranks have read the page
		return err
	}
	for step := range s.c.Repeat {
		s.dawdle()
		at(s.me).Store(start + int64(step) + 1)
		if err := s.run(step, s.comm, barrier); err != nil {
			return err
		}
		for rank := range s.comm.World() {
			if got, want := at(rank).Load(), start+int64(step)+1; got < want {
				return fmt.Errorf("left barrier %d when rank %d had only entered %d", want, rank, got)
			}
		}
		// No rank starts the next round before all have looked.
		if err := s.run(step, s.comm, barrier); err != nil {
			return err
		}
	}
	return nil
}
