package memory

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestMain(m *testing.M) {
	if os.Getenv("SHUNT_TEST_SHARE_PROCESS") != "" {
		os.Exit(shareProcess())
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	goleak.VerifyTestMain(m)
}

// each runs f for every rank at once and returns what each returned.
func each(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Go(func() { errs[rank] = f(rank) })
	}
	wg.Wait()
	return errs
}

func noErrors(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// join joins n ranks of this process.
func join(t testing.TB, n int) []*bootstrap.Session {
	t.Helper()
	id, root, err := bootstrap.NewID("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	sessions := make([]*bootstrap.Session, n)
	noErrors(t, each(n, func(rank int) (err error) {
		sessions[rank], err = bootstrap.Join(t.Context(),
			bootstrap.Config{Rank: rank, World: n, ID: id, HaveID: true, Timeout: 15 * time.Second})
		return err
	}))
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { each(n, func(rank int) error { return sessions[rank].Close() }) })
	return sessions
}

func shares(t testing.TB, n int) []*Share {
	t.Helper()
	sessions := join(t, n)
	shares := make([]*Share, n)
	noErrors(t, each(n, func(rank int) (err error) {
		shares[rank], err = newShare(t.Context(), sessions[rank].All())
		return err
	}))
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, s := range shares {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return shares
}

func segment(t testing.TB, bytes int64) *Segment {
	t.Helper()
	s, err := NewSegment("shunt-test", bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.CloseFD() })
	return s
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// leaveNothing closes shares, which ends what they still serve, and reports descriptors that were opened since there
// were so many.
func leaveNothing(t testing.TB, before int, shares []*Share) {
	t.Helper()
	for _, s := range shares {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if want, now := before-len(shares), openFiles(t); now != want { // each has closed its listener
		t.Errorf("%d descriptors are open, want %d", now, want)
	}
}

func TestSegmentIsSharedAndOutlivesItsDescriptor(t *testing.T) {
	s := segment(t, 10000)
	a, err := s.Map()
	if err != nil {
		t.Fatal(err)
	}
	b, err := MapHandle(s.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CloseFD(); err != nil {
		t.Fatal(err)
	}
	if a.Bytes() != 10000 || len(b.Slice()) != 10000 || a.Base() == b.Base() {
		t.Fatalf("%d and %d bytes at %p and %p", a.Bytes(), b.Bytes(), a.Base(), b.Base())
	}
	a.Slice()[9999] = 42
	if b.Slice()[9999] != 42 || b.Slice()[0] != 0 {
		t.Error("two mappings of one segment differ")
	}
	for range 2 {
		if err := errors.Join(a.Close(), b.Close(), s.CloseFD()); err != nil {
			t.Error(err)
		}
	}
	if a.Base() != nil || a.Bytes() != 0 {
		t.Error("a closed mapping still has an address")
	}
}

func TestControlPage(t *testing.T) {
	p, err := NewControlPage(0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.CloseFD()
	m, err := MapHandle(p.Region().Handle)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Bytes() != ControlPageBytes || uintptr(m.Base())%ControlPageBytes != 0 {
		t.Errorf("%d bytes at %p", m.Bytes(), m.Base())
	}
}

func TestMapOffset(t *testing.T) {
	s := segment(t, 20000)
	whole, err := s.Map()
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	for i := range whole.Slice() {
		whole.Slice()[i] = byte(i % 251)
	}
	for _, offset := range []int64{0, 1, 4095, 4096, 8193, 19999} {
		h := s.Handle()
		h.Offset = offset
		m, err := MapHandle(h)
		if err != nil {
			t.Fatalf("offset %d: %v", offset, err)
		}
		if m.Bytes() != 20000-offset || *(*byte)(m.Base()) != byte(offset%251) ||
			*(*byte)(unsafe.Add(m.Base(), m.Bytes()-1)) != byte(19999%251) {
			t.Errorf("offset %d: %d bytes, wrong contents", offset, m.Bytes())
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestMapHandleRefusals(t *testing.T) {
	s := segment(t, 8192)
	memfd := func(flags int, size int64, seals int) int {
		fd, err := unix.MemfdCreate("bad", flags)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if seals != 0 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
				t.Fatal(err)
			}
		}
		return fd
	}
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pipe[0]); unix.Close(pipe[1]) })
	good := s.Handle()
	for name, c := range map[string]struct {
		change func(*plugin.Handle)
		code   plugin.Code
		text   string
	}{
		"none":       {func(h *plugin.Handle) { h.Kind = plugin.HandleKindNone }, plugin.Unsupported, "not exported"},
		"vmm":        {func(h *plugin.Handle) { h.Kind = plugin.HandleKindCudaVmm }, plugin.Unsupported, "cuda_vmm"},
		"ipc":        {func(h *plugin.Handle) { h.Kind = plugin.HandleKindCudaIpc }, plugin.Unsupported, "cuda_ipc"},
		"unknown":    {func(h *plugin.Handle) { h.Kind = 77 }, plugin.Unsupported, "unknown(77)"},
		"no fd":      {func(h *plugin.Handle) { h.FD = -1 }, plugin.Unsupported, "another host"},
		"empty":      {func(h *plugin.Handle) { h.Bytes = 0 }, plugin.InvalidArgument, "nothing to map"},
		"negative":   {func(h *plugin.Handle) { h.Bytes = -1 }, plugin.Protocol, "-1 bytes"},
		"offset":     {func(h *plugin.Handle) { h.Offset = 8193 }, plugin.Protocol, "offset 8193"},
		"before":     {func(h *plugin.Handle) { h.Offset = -4096 }, plugin.Protocol, "offset -4096"},
		"overflow":   {func(h *plugin.Handle) { h.Offset, h.Bytes = 1<<62, 1<<62+4096 }, plugin.Protocol, "offset"},
		"generation": {func(h *plugin.Handle) { h.Generation = 0 }, plugin.Protocol, "generation"},
		"data":       {func(h *plugin.Handle) { h.Data = make([]byte, plugin.MaxHandleData+1) }, plugin.Protocol, "data"},
		"short file": {func(h *plugin.Handle) { h.Bytes = 8193 }, plugin.Protocol,
			"promises 8193 bytes and its file holds 8192"},
		"short memfd": {func(h *plugin.Handle) { h.FD = memfd(unix.MFD_ALLOW_SEALING, 100, 0) }, plugin.Protocol,
			"holds 100"},
		"sealed write": {func(h *plugin.Handle) { h.FD = memfd(unix.MFD_ALLOW_SEALING, 8192, unix.F_SEAL_WRITE) },
			plugin.Protocol, "sealed against writing"},
		"pipe":   {func(h *plugin.Handle) { h.FD = pipe[0] }, plugin.Protocol, "not a memfd"},
		"closed": {func(h *plugin.Handle) { h.FD = 1 << 20 }, plugin.System, "bad file descriptor"},
	} {
		h := good
		c.change(&h)
		m, err := MapHandle(h)
		if m != nil || plugin.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v (%v), want %v with %q", name, err, plugin.CodeOf(err), c.code, c.text)
		}
	}
	if _, err := NewSegment("none", 0); plugin.CodeOf(err) != plugin.InvalidArgument {
		t.Errorf("a segment of 0 bytes: %v", err)
	}
}

// A file that its owner cuts short under a mapping kills the process that touches it. So what
// can be cut short is refused, and what is mapped cannot be.
func TestNothingThatCanShrinkIsMapped(t *testing.T) {
	memfd := func(flags, seals int) func() (int, error) {
		return func() (int, error) {
			fd, err := unix.MemfdCreate("peer", flags|unix.MFD_CLOEXEC)
			if err == nil && seals != 0 {
				_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
			}
			return fd, err
		}
	}
	file := func(dir string) func() (int, error) {
		return func() (int, error) {
			return unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		}
	}
	for name, c := range map[string]struct {
		open   func() (int, error)
		mapped bool
	}{
		"memfd that can be sealed": {memfd(unix.MFD_ALLOW_SEALING, 0), true},
		"memfd sealed against shrinking": {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL),
			true},
		"memfd that cannot be sealed":              {memfd(0, 0), false},
		"memfd sealed against nothing but sealing": {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SEAL), false},
		"file of a disk":                           {file(t.TempDir()), false},
		"file of tmpfs":                            {file("/dev/shm"), false},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := c.open()
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Ftruncate(fd, 4096); err != nil {
				t.Fatal(err)
			}
			m, err := MapHandle(plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: 1, Bytes: 4096, FD: fd})
			if err == nil {
				defer m.Close()
				if err := unix.Ftruncate(fd, 0); !errors.Is(err, unix.EPERM) {
					t.Errorf("cutting it short: %v", err)
				}
				touch(t, m)
			}
			if (err == nil) != c.mapped || (err != nil && plugin.CodeOf(err) != plugin.Protocol) {
				t.Errorf("mapped: %v, want %v: %v", err == nil, c.mapped, err)
			}
		})
	}
}

// touch writes to a mapping, and reports the fault that would end the process.
func touch(t *testing.T, m *Mapping) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			t.Errorf("SIGBUS: %v", fault)
		}
	}()
	m.Slice()[4095] = 1
}
