package conformance

import (
	"bytes"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
)

// guard is the number of bytes before and after every buffer that must not change.
const guard = 256

// arena is one rank's memory for the buffers of a case: mapped, so that a
// collector never moves it and misaligned addresses are exact, and reused, so
// that a case costs what it touches. With a device, memory is an image of device
// memory, and operations are given addresses of the device.
type arena struct {
	memory []byte
	used   int64

	device *device.Device
	image  *device.Image
	shared bool // device memory is made to be shared
}

const arenaLimit = 24 << 30

// reset forgets all buffers and makes room for the given number of bytes.
func (a *arena) reset(need int64) error {
	a.used = 0
	if int64(len(a.memory)) >= need {
		return nil
	}
	if need > arenaLimit {
		return fmt.Errorf("a case of %d bytes is over the limit of %d", need, int64(arenaLimit))
	}
	if err := a.close(); err != nil {
		return err
	}
	size := max(need, 1<<20)
	if a.device != nil {
		size += size / 2 // allocating is slow
		var err error
		allocate := a.device.NewImage
		if a.shared {
			allocate = a.device.NewSharedImage
		}
		if a.image, err = allocate(size); err != nil {
			return fmt.Errorf("%d bytes for buffers: %w", size, err)
		}
		a.memory = a.image.Bytes
		return nil
	}
	memory, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("mapping %d bytes for buffers: %w", size, err)
	}
	a.memory = memory
	return nil
}

func (a *arena) close() error {
	if a.memory == nil {
		return nil
	}
	if a.image != nil {
		err := a.image.Free()
		a.memory, a.image = nil, nil
		return err
	}
	err := unix.Munmap(a.memory)
	a.memory = nil
	return err
}

// push copies all buffers to the device, in stream order.
func (a *arena) push(s cuda.Stream) error {
	if a.used == 0 {
		return nil
	}
	return a.image.Part(0, a.used).Push(s)
}

// pull copies all buffers back, in stream order.
func (a *arena) pull(s cuda.Stream) error {
	if a.used == 0 {
		return nil
	}
	return a.image.Part(0, a.used).Pull(s)
}

// show makes a buffer of someone else's device memory, with an image in the
// arena.
func (a *arena) show(b *buffer, address unsafe.Pointer, bytes int64) error {
	start := (a.used + 63) &^ 63
	if start+bytes > int64(len(a.memory)) {
		return fmt.Errorf("the image of %d bytes of buffer %s does not fit into %d", bytes, b.name, len(a.memory))
	}
	a.used = start + bytes
	b.image = a.image.Part(start, bytes).At(cuda.Ptr(uintptr(address)))
	b.all = b.image.Bytes
	return nil
}

// buffer is a run of bytes with guards around it. all covers the guards too.
type buffer struct {
	name  string
	all   []byte
	data  []byte
	salt  byte
	dtype plugin.DType

	image *device.Image // of all; nil on host memory
}

// noisePeriod is a table of bytes that differ from neighbour to neighbour and
// from zero; buffers are filled with it before a case.
const noisePeriod = 251

func noiseTable(salt byte) []byte {
	b := make([]byte, noisePeriod)
	for i := range b {
		b[i] = byte(mix(uint64(salt)<<8|uint64(i))) | 1
	}
	return b
}

// buffer carves out room for count elements whose address is shift elements
// above a multiple of 64 bytes, filled with noise.
func (a *arena) buffer(name string, dtype plugin.DType, count, shift int64, salt byte) (*buffer, error) {
	size := dtype.Bytes()
	start := (a.used + 63) &^ 63
	from := start + guard + shift*size
	end := from + count*size + guard
	if end > int64(len(a.memory)) {
		return nil, fmt.Errorf("buffer %s of %d elements does not fit into %d bytes", name, count, len(a.memory))
	}
	a.used = end
	b := &buffer{name: name, all: a.memory[start:end], data: a.memory[from : end-guard], salt: salt, dtype: dtype}
	if a.image != nil {
		b.image = a.image.Part(start, end-start)
	}
	tile(b.all, noiseTable(salt))
	return b, nil
}

// need returns the number of bytes that a buffer takes of an arena.
func need(dtype plugin.DType, count, shift int64) int64 {
	return 64 + 2*guard + (count+shift)*dtype.Bytes()
}

// pointer returns the address of the element at index; null for an empty buffer at
// its start would hide a wrong address, so an empty buffer has one too.
func (b *buffer) pointer(index int64) unsafe.Pointer {
	offset := int64(cap(b.all)) - int64(cap(b.data)) + index*b.dtype.Bytes()
	if b.image != nil {
		return b.image.Pointer(offset)
	}
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.all)), offset)
}

// push copies the buffer to the device, and pull copies it back, in stream
// order; on host memory there is nothing to do.
func (b *buffer) push(s cuda.Stream) error {
	if b.image == nil {
		return nil
	}
	return b.image.Push(s)
}

func (b *buffer) pull(s cuda.Stream) error {
	if b.image == nil {
		return nil
	}
	return b.image.Pull(s)
}

// put fills a block.
func (b *buffer) put(at block) {
	size := b.dtype.Bytes()
	tile(b.data[at.at*size:(at.at+at.count)*size], at.table)
}

// check compares the whole buffer, guards and gaps included, with blocks and
// noise.
func (b *buffer) check(c *Case, expected []block) error {
	size := b.dtype.Bytes()
	head := int64(len(b.all)) - int64(len(b.data)) - guard
	noise := noiseTable(b.salt)
	covered := make([]bool, len(expected))
	at := int64(0) // within data, in bytes
	for range expected {
		// The next block by displacement; there are few.
		next := -1
		for i, e := range expected {
			if !covered[i] && (next < 0 || e.at < expected[next].at || e.at == expected[next].at &&
				e.count < expected[next].count) {
				next = i
			}
		}
		covered[next] = true
		e := expected[next]
		if err := b.checkNoise(noise, head+at, head+e.at*size, head); err != nil {
			return err
		}
		if err := b.checkBlock(c, e, next); err != nil {
			return err
		}
		at = (e.at + e.count) * size
	}
	if err := b.checkNoise(noise, head+at, int64(len(b.all)), head); err != nil {
		return err
	}
	return b.checkNoise(noise, 0, head, head)
}

// checkNoise compares all[from:to) with the noise that was there.
func (b *buffer) checkNoise(noise []byte, from, to, head int64) error {
	for i := from; i < to; {
		phase := i % noisePeriod
		n := min(to-i, noisePeriod-phase)
		if !bytes.Equal(b.all[i:i+n], noise[phase:phase+n]) {
			for k := range n {
				if b.all[i+k] != noise[phase+k] {
					return fmt.Errorf("%s buffer: byte %d was overwritten with 0x%02x; it is %s", b.name, i+k-head, b.all[i+k],
						b.where(i+k-head))
				}
			}
		}
		i += n
	}
	return nil
}

func (b *buffer) where(offset int64) string {
	switch {
	case offset < 0:
		return fmt.Sprintf("%d bytes in front of the buffer", -offset)
	case offset >= int64(len(b.data)):
		return fmt.Sprintf("%d bytes behind the buffer's end", offset-int64(len(b.data)))
	}
	return fmt.Sprintf("within the buffer's %d bytes, where the operation must not write", len(b.data))
}

// checkBlock compares a block with its table.
func (b *buffer) checkBlock(c *Case, e block, number int) error {
	if e.count == 0 {
		return nil
	}
	size := b.dtype.Bytes()
	data := b.data[e.at*size : (e.at+e.count)*size]
	chunk := int64(len(e.table))
	for at := int64(0); at < int64(len(data)); at += chunk {
		n := min(chunk, int64(len(data))-at)
		if bytes.Equal(data[at:at+n], e.table[:n]) {
			continue
		}
		for i := int64(0); i < n; i += size {
			got, want := loadBits(data[at+i:], size), loadBits(e.table[i:], size)
			if got == want || c.sameSpecial(got, want) {
				continue
			}
			return fmt.Errorf("%s buffer: element %d (of block %d: %d of %d) is %s, want %s%s", b.name,
				e.at+(at+i)/size, number, (at+i)/size, e.count, format(b.dtype, got), format(b.dtype, want),
				b.hint(data, e, at+i, got))
		}
	}
	return nil
}

// sameSpecial treats every not-a-number alike, and the two zeros, where a case
// reduces special values: IEEE 754 leaves payload and sign open.
func (c *Case) sameSpecial(got, want uint64) bool {
	if c.Family != Special || !c.Collective.Reduces() || !isFloat(c.DType) {
		return false
	}
	g, w := floatValue(c.DType, got), floatValue(c.DType, want)
	return g == w || g != g && w != w
}

// hint says more about a wrong element where something can be said.
func (b *buffer) hint(data []byte, e block, at int64, got uint64) string {
	size := b.dtype.Bytes()
	head := int64(len(b.all)) - int64(len(b.data)) - guard
	noise := make([]byte, size)
	for i := range size {
		noise[i] = noiseTable(b.salt)[(head+e.at*size+at+i)%noisePeriod]
	}
	wrong := int64(0)
	for i := at; i < int64(len(data)); i += size {
		if loadBits(data[i:], size) != loadBits(e.table[i%int64(len(e.table)):], size) {
			wrong++
		}
	}
	text := fmt.Sprintf("; %d elements of the block are wrong", wrong)
	if loadBits(noise, size) == got {
		text += "; the element was never written"
	}
	return text
}

// tile fills b with repetitions of table.
func tile(b, table []byte) {
	n := copy(b, table)
	for n > 0 && n < len(b) {
		// Copies a multiple of the table, except at the end.
		n += copy(b[n:], b[:n])
	}
}
