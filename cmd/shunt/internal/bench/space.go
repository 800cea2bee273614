package bench

import (
	"math"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// space holds a rank's buffers, and times operations on them:
// host memory and the clock, or a GPU's memory and its events.
type space interface {
	// stream returns the stream of the operations; nil for host memory.
	stream() host.Stream
	// buffer is the first bytes of a buffer of this rank's, for as long as no
	// more of it is asked for.
	buffer(which bufferName, bytes int64) (area, error)
	// fill writes a source's elements from index first on.
	fill(to area, p *pattern, s source, first int64) error
	// poison makes every byte one that no pattern has twice in a row.
	poison(to area) error
	// wrong counts the elements that are not the source's from index first on.
	wrong(have area, p *pattern, s source, first int64) (int64, error)
	// unpoisoned counts the bytes that poison did not leave.
	unpoisoned(have area) (int64, error)
	// spoil changes the memory where a failpoint asks for it.
	spoil(at area) error
	// write and read copy bytes to and from memory that no operation uses.
	write(to area, data []byte) error
	read(data []byte, from area) error
	// finish waits for every operation so far.
	finish() error
	// slots returns the number of slots that an operation of that size rotates over.
	slots(bytes int64) int
	// samples times candidates in turn, so that what else happens on the machine
	// happens to all of them.
	samples(r *rank, p *prepared, list []candidate) (iterations int, err error)
	close() error
}

// candidate is one way to do a prepared operation, and its times.
type candidate struct {
	name    string // "" is Shunt
	call    func(slot int) error
	slots   []slot    // its own memory; nil: the job's
	samples []float64 // microseconds of one operation, one for each batch
	rounds  int       // operations in all samples, where candidates differ in that
	covered int       // samples beside other work from beginning to end
	wrong   int64

	symmetric bool // an algorithm that needs symmetric memory
}

// bufferName tells a rank's buffers apart.
type bufferName int

const (
	sendBuffer bufferName = iota
	recvBuffer
	countBuffer
	meetBuffer
	buffers
)

// area is a part of a buffer.
type area struct {
	at    unsafe.Pointer
	bytes int64
}

// part returns a part of an area.
func (a area) part(offset, bytes int64) area {
	if bytes == 0 {
		return area{}
	}
	return area{unsafe.Add(a.at, offset), bytes}
}

// poisonByte fills memory that is going to be written.
const poisonByte = 0xA5

// hostSpace is host memory outside Go's heap. Its operations end before the
// call returns.
type hostSpace struct{ memory [buffers][]byte }

func (h *hostSpace) stream() host.Stream { return nil }
func (h *hostSpace) finish() error       { return nil }
func (h *hostSpace) slots(int64) int     { return 1 }

// view returns an area of host memory as bytes.
func (a area) view() []byte { return unsafe.Slice((*byte)(a.at), a.bytes) }

// buffer returns page-aligned memory, which grows as needed.
func (h *hostSpace) buffer(which bufferName, bytes int64) (area, error) {
	if int64(len(h.memory[which])) < bytes {
		if err := h.free(which); err != nil {
			return area{}, err
		}
		memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return area{}, plugin.Errorf(plugin.OutOfMemory, "buffer of %d bytes: %w", bytes, err)
		}
		h.memory[which] = memory
	}
	if bytes == 0 {
		return area{}, nil
	}
	return area{unsafe.Pointer(&h.memory[which][0]), bytes}, nil
}

func (h *hostSpace) free(which bufferName) error {
	memory := h.memory[which]
	h.memory[which] = nil
	if memory == nil {
		return nil
	}
	if err := unix.Munmap(memory); err != nil {
		return plugin.Errorf(plugin.System, "munmap: %w", err)
	}
	return nil
}

func (h *hostSpace) close() error {
	var err error
	for which := range h.memory {
		if freeErr := h.free(bufferName(which)); err == nil {
			err = freeErr
		}
	}
	return err
}

func (h *hostSpace) fill(to area, p *pattern, s source, first int64) error {
	p.fill(to.view(), s, first)
	return nil
}

func (h *hostSpace) poison(to area) error {
	memory := to.view()
	for i := range memory {
		memory[i] = poisonByte
	}
	return nil
}

func (h *hostSpace) wrong(have area, p *pattern, s source, first int64) (int64, error) {
	return p.wrong(have.view(), s, first), nil
}

func (h *hostSpace) unpoisoned(have area) (int64, error) {
	count := int64(0)
	for _, b := range have.view() {
		if b != poisonByte {
			count++
		}
	}
	return count, nil
}

func (h *hostSpace) write(to area, data []byte) error {
	copy(to.view(), data)
	return nil
}

func (h *hostSpace) read(data []byte, from area) error {
	copy(data, from.view())
	return nil
}

func (h *hostSpace) spoil(at area) error {
	corrupt.Corrupt(at.view())
	return nil
}

// batches is in how many parts the operations of a row are timed, each behind a
// barrier. The launcher takes the slowest rank of each and the median of them,
// so that what else runs on the machine spoils a batch and not the row.
const batches = 9

// maxIterations bounds the timing of small operations. Processors need some
// milliseconds to get up to speed.
const maxIterations = 200000

func (h *hostSpace) samples(r *rank, p *prepared, list []candidate) (int, error) {
	left := make([]int, len(list)) // of the operations of each candidate
	each := make([]int, len(list)) // in a batch
	for i := range list {
		n, err := h.calibrate(r, list[i].call)
		if err != nil {
			return 0, list[i].failed(p, err)
		}
		left[i], each[i] = n, max(n/batches, 1)
	}
	for slices.Max(left) > 0 {
		for i := range list {
			if left[i] <= 0 {
				continue
			}
			us, err := h.timed(r, list[i].call, each[i])
			if err != nil {
				return 0, list[i].failed(p, err)
			}
			list[i].samples = append(list[i].samples, us)
			list[i].rounds += each[i]
			left[i] -= each[i]
		}
	}
	return list[0].rounds, nil
}

// calibrate returns how often to run, as rank 0 decides.
func (h *hostSpace) calibrate(r *rank, call func(int) error) (int, error) {
	if r.config.Iterations > 0 {
		return r.config.Iterations, nil
	}
	memory, err := h.buffer(countBuffer, 8)
	if err != nil {
		return 0, err
	}
	n := (*int64)(memory.at)
	*n = 1
	again, least := false, math.Inf(1)
	for {
		us, err := h.timed(r, call, int(*n))
		if err != nil {
			return 0, err
		}
		least = min(least, us)
		spent, budget := us*float64(*n), float64(r.config.Budget.Microseconds())
		// A short run says little: try again with more until a tenth is spent, and
		// then once more, for a rank that was kept waiting makes all look slow.
		long := spent*10 >= budget || *n >= maxIterations/4
		done := long && again
		switch {
		case done:
			*n = min(max(int64(budget/max(least, 0.01)), 3), maxIterations)
		case long:
			again = true
		default:
			*n = min(max(*n*4, 3), maxIterations)
		}
		if done {
			*n = -*n
		}
		if err := r.meet.announced(h, n); err != nil {
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
func (h *hostSpace) timed(r *rank, call func(int) error, n int) (float64, error) {
	if err := r.meet.Barrier(nil); err != nil {
		return 0, err
	}
	began := time.Now()
	for range n {
		if err := call(0); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(began).Nanoseconds()) / 1e3 / float64(n), nil
}
