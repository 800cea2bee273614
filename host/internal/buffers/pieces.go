package buffers

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// Memory by handle, of one piece or of several that an allocator has mapped
// behind each other: expandable segments grow by mapping further pieces, and
// shrink by unmapping some. What a buffer spans is exported as one; peers map it
// in one stretch. Each piece is a descriptor; what fits into one message is
// fetched together, under a tag of its own.

// maxPieces is the most handles of one export. Each takes a
// descriptor of this process while peers fetch, and of theirs while they map.
const maxPieces = 512

// sharePieces publishes chunks to peers as one export.
func (t *Registry) sharePieces(at int, s *pageEntry, chunks []cuda.Chunk) (export, error) {
	e := export{base: chunks[0].Address, generation: s.generation}
	for _, m := range chunks {
		if m.Device != t.gpu.Ordinal {
			return export{}, plugin.Errorf(plugin.Unsupported, "%#x is memory of device %d, not of %d", uint64(m.Address),
				m.Device, t.gpu.Ordinal)
		}
		e.bytes += m.Bytes
		e.pieces, e.ids = append(e.pieces, m.Address), append(e.ids, m.BufferID)
	}
	s.kind, s.base, s.bytes, s.pieces = plugin.HandleKindCudaVmm, e.base, e.bytes, len(chunks)
	if t.share == nil {
		return e, nil
	}
	e.shared = true
	if err := t.shareDescriptors(at, s.generation, chunks); err != nil {
		t.unshare(at, &e)
		return export{}, withoutDescriptors(err, len(chunks))
	}
	return e, nil
}

// withoutDescriptors names what a failure to share pieces is most likely due to.
func withoutDescriptors(err error, pieces int) error {
	if limit, known := openFiles(); known && pieces != 1 {
		return plugin.Errorf(plugin.CodeOf(err), "memory in pieces, of which each needs a descriptor, while this process may have %d files open: %w", limit, err)
	}
	return err
}

// parts returns the number of messages for the descriptors of an export, and the number
// of descriptors: one for each piece, before them one with the lengths of the pieces if
// there are several.
func parts(pieces int) (messages, descriptors int) {
	descriptors = pieces
	if pieces > 1 {
		descriptors++
	}
	return (descriptors + memory.MaxShared - 1) / memory.MaxShared, descriptors
}

// partTag names a message of an export's descriptors.
func partTag(label string, export int, generation uint64, part int) string {
	return fmt.Sprintf("%s.%d", exportTag(label, export, generation), part)
}

// shareDescriptors lets peers fetch the descriptors of pieces. What was pageEntry before a
// failure is taken back by unshare.
func (t *Registry) shareDescriptors(at int, generation uint64, chunks []cuda.Chunk) error {
	messages, descriptors := parts(len(chunks))
	extra := descriptors - len(chunks)
	for part := range messages {
		var fds []int
		for i := part * memory.MaxShared; i < min((part+1)*memory.MaxShared, descriptors); i++ {
			if i >= extra {
				fds = append(fds, chunks[i-extra].FD)
				continue
			}
			fd, err := lengths(chunks)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }() // the share holds a copy
			fds = append(fds, fd)
		}
		if err := t.share.Publish(partTag(t.Label, at, generation, part), fds); err != nil {
			return err
		}
	}
	return nil
}

// unshare closes the descriptors that were published. t.mu is held.
func (t *Registry) unshare(at int, e *export) {
	if !e.shared {
		return
	}
	messages, _ := parts(len(e.pieces))
	for part := range messages {
		t.share.Withdraw(partTag(t.Label, at, e.generation, part))
	}
	e.shared = false
}

// lengths returns a memory file with the lengths of pieces.
func lengths(chunks []cuda.Chunk) (int, error) {
	var b []byte
	for _, m := range chunks {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Bytes))
	}
	fd, err := unix.MemfdCreate("shunt-pieces", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, plugin.Errorf(plugin.System, "memfd_create: %w", err)
	}
	if n, err := unix.Pwrite(fd, b, 0); n != len(b) {
		_ = unix.Close(fd)
		return -1, plugin.Errorf(plugin.System, "writing %d lengths of pieces: %w", len(chunks), err)
	}
	return fd, nil
}

// readLengths reads what a peer wrote with lengths; the bytes may be anything.
func readLengths(b []byte, pieces int, total int64) ([]int64, error) {
	if pieces < 1 || pieces > maxPieces || len(b) != 8*pieces {
		return nil, plugin.Errorf(plugin.Protocol, "a peer sent %d bytes of lengths for %d pieces", len(b), pieces)
	}
	list, left := make([]int64, pieces), total
	for i := range list {
		n := binary.LittleEndian.Uint64(b[8*i:])
		if n == 0 || left < 0 || n > uint64(left) {
			return nil, plugin.Errorf(plugin.Protocol, "piece %d of %d has %d bytes, of %d in all", i, pieces, n, total)
		}
		list[i] = int64(n)
		left -= int64(n)
	}
	if left != 0 {
		return nil, plugin.Errorf(plugin.Protocol, "%d pieces lack %d of %d bytes", pieces, left, total)
	}
	return list, nil
}

// openPieces maps a peer's pieces behind each other.
func (t *Registry) openPieces(ctx context.Context, rank, at int, s pageEntry) (io.Closer, cuda.Ptr, error) {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // the mapping needs them no longer
		}
	}()
	messages, descriptors := parts(s.pieces)
	for part := range messages {
		within, cancel := context.WithTimeout(ctx, t.silent[rank].patience())
		got, err := t.fetch(within, rank, partTag(t.Label, at, s.generation, part),
			min(descriptors-part*memory.MaxShared, memory.MaxShared))
		cancel()
		if err != nil {
			if limit, known := openFiles(); known && s.pieces > 1 {
				err = plugin.Errorf(plugin.CodeOf(err), "message %d of %d with descriptors of %d pieces, while this process may have %d files open: %w", part+1, messages, s.pieces, limit, err)
			}
			return nil, 0, err
		}
		fds = append(fds, got...)
	}
	list, handles := []int64{s.bytes}, fds
	if s.pieces > 1 {
		b := make([]byte, 8*s.pieces)
		n, err := unix.Pread(fds[0], b, 0)
		if err != nil {
			return nil, 0, plugin.Errorf(plugin.Protocol, "reading the lengths of pieces: %w", err)
		}
		if list, err = readLengths(b[:n], s.pieces, s.bytes); err != nil {
			return nil, 0, err
		}
		handles = fds[1:]
	}
	m, err := memory.MapDevicePieces(t.gpu.Driver, t.gpu.Context, t.gpu.Ordinal, handles, list)
	if err != nil {
		return nil, 0, err
	}
	return m, m.Address(), nil
}

// spanned returns which pieces of an export lie in an address range.
func (e *export) spanned(p cuda.Ptr, bytes int64) (from, to int) {
	for lo, hi := 0, len(e.pieces); lo < hi; { // the last piece that begins at or before p
		if mid := (lo + hi) / 2; e.pieces[mid] <= p {
			from, lo = mid, mid+1
		} else {
			hi = mid
		}
	}
	to = from
	for to < len(e.pieces) && e.pieces[to] < p+cuda.Ptr(bytes) {
		to++
	}
	return from, to
}

// supersede withdraws exports of pieces that another one, known to all peers,
// holds as a whole: a segment has grown. t.mu is held.
func (t *Registry) supersede(by int) {
	e := &t.exports[by]
	for i := range t.exports[:t.high] {
		old := &t.exports[i]
		if i == by || old.window || len(old.explicit) > 0 || old.leaving != staying || !e.holds(old.base, old.bytes) {
			continue
		}
		if err := t.withdraw(i); err != nil {
			t.Logger.Warn("a buffer that lies in a longer one could not be withdrawn", "communicator", t.Label, "rank", t.Rank,
				"reason", err)
		}
	}
}

// openFiles returns the most descriptors that this process may have.
func openFiles() (limit uint64, known bool) {
	var r unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r)
	return r.Cur, err == nil
}
