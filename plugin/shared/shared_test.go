package shared

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
	"github.com/shunt-ccl/shunt/plugin/noexec/noexectest"
	"github.com/shunt-ccl/shunt/plugin/shared/internal/rawload"
)

// modeEnv has the test binary load objects and see whether it still preempts;
// objectEnv names the object.
const (
	modeEnv   = "SHUNT_TEST_SHARED"
	objectEnv = "SHUNT_TEST_OBJECT"
)

var dir string // of what is built

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		os.Exit(loadAndPreempt(mode))
	}
	var err error
	if dir, err = os.MkdirTemp("", "shared-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// probeObject is the probe transport as a shared object, built once.
var probeObject = sync.OnceValues(func() (string, error) {
	path := filepath.Join(dir, "probe.so")
	out, err := builttest.Command("go", "build", "-buildmode=c-shared", "-o", path, "./testdata/probe").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func openProbe(t *testing.T) plugin.Transport {
	t.Helper()
	path, err := probeObject()
	require.NoError(t, err)
	transport, err := Open(path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return transport
}

func openConfig(options ...string) plugin.OpenConfig {
	config := plugin.OpenConfig{Communicator: 0xC0FFEE, Rank: 1, World: 4, Device: -1, Options: map[string]string{}}
	for i := 0; i+1 < len(options); i += 2 {
		config.Options[options[i]] = options[i+1]
	}
	return config
}

var allReduce = plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 4, Hosts: 1, Rank: 1,
	Bytes: 1024}

// Texts end within the arrays that carry them: an algorithm's name is as long as it may be, and a reason is cut between
// characters.
func TestLongestTexts(t *testing.T) {
	loaded, local := openProbe(t), probe.Transport{}
	want, got := local.Supports(plugin.Request{World: 1006}), loaded.Supports(plugin.Request{World: 1006})
	require.NoError(t, got.Validate())
	require.Equal(t, want.Algorithms, got.Algorithms)
	require.Equal(t, strings.TrimSuffix(want.Reason, "é"), got.Reason) // a zero ends it
	tooLong := plugin.Request{World: 1005}
	require.ErrorContains(t, local.Supports(tooLong).Validate(), "algorithm name of 64 bytes, want 1 to 63")
	require.Contains(t, loaded.Supports(tooLong).Reason, "algorithm name of 64 bytes, want 1 to 63")
}

// The host cannot tell a transport in a shared object from one linked in.
func TestSharedIsAsTheTransportItself(t *testing.T) {
	loaded, local := openProbe(t), probe.Transport{}
	require.Equal(t, local.Info(), loaded.Info())
	require.Equal(t, local.Supports(allReduce), loaded.Supports(allReduce))
	send := plugin.Request{Collective: plugin.Send, World: 2}
	require.Equal(t, local.Supports(send), loaded.Supports(send))
	for _, read := range []bool{false, true} {
		broadcast := plugin.Request{Collective: plugin.Broadcast, World: 2, PeerRead: read}
		require.Equal(t, read, len(loaded.Supports(broadcast).Algorithms) == 1)
		gather := plugin.Request{Collective: plugin.AllGather, World: 2, Symmetric: read}
		require.Equal(t, read, len(loaded.Supports(gather).Algorithms) == 1)
		counted := plugin.Request{Collective: plugin.AllToAllV, World: 2, DeviceCounts: read}
		require.Equal(t, read, len(loaded.Supports(counted).Algorithms) == 1)
	}

	e, err := loaded.Open(context.Background(), openConfig())
	require.NoError(t, err)
	defer e.Close()
	require.Len(t, e.Regions(), 2)
	require.Equal(t, []byte("probe"), e.Regions()[1].Handle.Data)
	require.Equal(t, []plugin.Image{{Name: "probe.ptx", Data: []byte("// no code")}}, e.Images())
	private := e.Regions()[0]
	memory, err := unix.Mmap(private.Handle.FD, 0, int(private.Bytes), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(memory)
	require.Equal(t, byte(probe.Pattern), memory[0])

	want, err := probe.Plan(allReduce)
	require.NoError(t, err)
	got, err := e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))

	here, err := loaded.Open(context.Background(), openConfig(probe.OptionPlan, "here"))
	require.NoError(t, err)
	defer here.Close()
	want, err = probe.PlanHere(allReduce)
	require.NoError(t, err)
	got, err = here.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))

	b, err := e.Allocate(context.Background(), 9, 5000)
	require.NoError(t, err)
	require.Equal(t, int64(8192), b.Bytes)
	require.NoError(t, e.Free(context.Background(), 9))
	require.ErrorIs(t, e.Free(context.Background(), 9), plugin.InvalidArgument)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	_, err = e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.ErrorIs(t, err, plugin.Closed)
}

// A buffer that the host cannot use goes back to the object that made it.
func TestInvalidBuffersAreGivenBack(t *testing.T) {
	ctx := context.Background()
	for _, how := range []string{"id", "role", "short"} {
		e := openWith(t, probe.OptionBuffer, how)
		_, err := e.Allocate(ctx, 9, 5000)
		require.ErrorIs(t, err, plugin.Protocol, how)
		require.ErrorContains(t, err, "probe: allocate buffer 9 of 5000 bytes on rank 1: asked for buffer 9", how)
		require.ErrorContains(t, e.Free(ctx, 9), "buffer 9 does not exist", how)
		require.NoError(t, e.Close())
	}
}

// Whatever the communicator ended with gets to the object, and the object's view of whose fault it is back.
func TestAbortArrives(t *testing.T) {
	e := openWith(t)
	require.NoError(t, e.(plugin.Checker).Check())
	e.(plugin.Aborter).Abort("rank 3 has left")
	_, err := e.(plugin.Exchanger).Publish(context.Background(), plugin.Exchange{})
	require.ErrorIs(t, err, plugin.Aborted)
	require.ErrorContains(t, err, "rank 3 has left")
	var checked *plugin.Error
	require.ErrorAs(t, e.(plugin.Checker).Check(), &checked)
	require.Equal(t, plugin.Aborted, checked.Code)
	require.Equal(t, 2, checked.Rank)
	require.Contains(t, checked.Message, "rank 3 has left")
	require.NoError(t, e.Close())
	e.(plugin.Aborter).Abort("it is closed")
	require.NoError(t, e.(plugin.Checker).Check())
}

// What close has to say is kept, though the endpoint is gone.
func TestAFailedCloseIsExplained(t *testing.T) {
	err := openWith(t, probe.OptionClose, "the device is gone").Close()
	require.Error(t, err)
	require.ErrorContains(t, err, "the device is gone")
}

func TestSameFileIsTheSameTransport(t *testing.T) {
	first, second := openProbe(t), openProbe(t)
	require.Same(t, first, second)
}

func TestOpenWithoutAnEndpoint(t *testing.T) {
	opener := openProbe(t)
	for how, what := range map[string]string{"none": "neither an endpoint nor an error",
		"endpoint": "a nil *probe.endpoint and no error"} {
		_, err := opener.Open(context.Background(), openConfig(probe.OptionNil, how))
		require.ErrorIs(t, err, plugin.Protocol)
		require.EqualError(t, err, "probe: open on rank 1: the transport's Open returned "+what)
	}
}

func TestErrorsCarryCodeAndMessage(t *testing.T) {
	loaded := openProbe(t)
	_, err := loaded.Open(context.Background(), openConfig(probe.OptionFail, "no huge pages left"))
	require.ErrorIs(t, err, plugin.OutOfMemory)
	require.EqualError(t, err, "probe: open on rank 1: no huge pages left")
	_, err = loaded.Open(context.Background(), openConfig(probe.OptionFail, "probe: open on rank 1: no huge pages left"))
	require.EqualError(t, err, "probe: open on rank 1: no huge pages left") // said once, also by a transport that says it
	_, err = loaded.Open(context.Background(), openConfig(probe.OptionPanic, "index out of range"))
	require.ErrorIs(t, err, plugin.Internal)
	require.ErrorContains(t, err, "the transport panicked: index out of range")
	require.Contains(t, loaded.Supports(plugin.Request{World: 1004}).Reason, "the transport panicked")

	e, err := loaded.Open(context.Background(), openConfig(probe.OptionPlan, "error"))
	require.NoError(t, err)
	_, err = e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.ErrorContains(t, err, "a nil *plugin.Error as its error")
	require.NoError(t, e.Close())
	e, err = loaded.Open(context.Background(), openConfig(probe.OptionPlan, "index"))
	require.NoError(t, err)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, stop := context.WithTimeout(context.Background(), 0)
	defer stop()
	for ctx, code := range map[context.Context]plugin.Code{canceled: plugin.Aborted, expired: plugin.Timeout} {
		_, err := loaded.Open(ctx, openConfig())
		require.ErrorIs(t, err, ctx.Err())
		require.Equal(t, code, plugin.CodeOf(err))
		_, err = e.Prepare(ctx, allReduce, "ring")
		require.ErrorIs(t, err, ctx.Err())
		require.Equal(t, code, plugin.CodeOf(err))
	}
	_, err = e.Prepare(context.Background(), allReduce, "ring")
	require.ErrorIs(t, err, plugin.Unsupported)
	require.ErrorContains(t, err, `algorithm "ring" is not the probe's`)
	_, err = e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.ErrorIs(t, err, plugin.Protocol)
	require.NoError(t, e.Close())
}

// A cycle makes an image of 64 KiB and plans of as much, so that one kind of leak exceeds what the heaps of two
// runtimes vary by. Beside other work they may vary by more, but do not grow every time, as they do by what leaks.
func TestEndpointsLeakNothing(t *testing.T) {
	loaded := openProbe(t)
	cycle := func() {
		e, err := loaded.Open(context.Background(), openConfig(probe.OptionImage, "65536"))
		require.NoError(t, err)
		for range 50 {
			_, err = e.Prepare(context.Background(), allReduce, probe.Algorithm)
			require.NoError(t, err)
		}
		_, err = e.Allocate(context.Background(), 5, 1<<20)
		require.NoError(t, err)
		require.NoError(t, e.Close())
	}
	memfds := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		for _, e := range entries {
			if name, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(name, "memfd:") {
				n++
			}
		}
		return n
	}
	for range 50 {
		cycle()
	}
	const cycles, limit = 200, 24 << 10 // bytes a cycle
	fds, grown := memfds(), int64(limit)
	for try := 0; try < 5 && grown >= limit; try++ {
		memory := resident(t)
		for range cycles {
			cycle()
		}
		grown = (resident(t) - memory) / cycles
	}
	require.Equal(t, fds, memfds())
	require.Less(t, grown, int64(limit), "bytes a cycle, five times in turn")
}

// Images are tens of MB: what endpoints have alike is there once, and what they have not is each one's.
func TestEndpointsShareTheirImages(t *testing.T) {
	loaded := openProbe(t)
	open := func(bytes string) []byte {
		e, err := loaded.Open(context.Background(), openConfig(probe.OptionImage, bytes))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
		for _, i := range e.Images() {
			if len(i.Data) > 1000 {
				return i.Data
			}
		}
		t.Fatalf("no image of %s bytes: %d", bytes, len(e.Images()))
		return nil
	}
	first, second, longer, third := open("65536"), open("65536"), open("131072"), open("65536")
	require.Same(t, &first[0], &second[0])
	require.Len(t, longer, 131072)
	require.Equal(t, first, third)
}

func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var size, pages int64
	_, err = fmt.Sscan(string(text), &size, &pages)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

func TestRefusedObjectsSayWhy(t *testing.T) {
	for _, flaw := range ctransport.Refused() {
		t.Run(flaw.Name, func(t *testing.T) {
			path, err := ctransport.BuildBad(dir, flaw.Name)
			require.NoError(t, err)
			_, err = Open(path, nil)
			require.ErrorIs(t, err, plugin.PluginRejected)
			require.ErrorContains(t, err, flaw.Wrong)
			require.ErrorContains(t, err, path)
		})
	}
	for path, want := range map[string]string{dir + "/absent.so": "no such file", dir: "is not a regular file"} {
		_, err := Open(path, nil)
		require.ErrorIs(t, err, plugin.PluginRejected)
		require.ErrorContains(t, err, want)
	}
}

func TestObjectWhereNothingMayRun(t *testing.T) {
	path := noexectest.Copy(t, "/bin/true") // it is refused before it is looked at
	_, err := Open(path, nil)
	require.ErrorIs(t, err, plugin.PluginRejected)
	require.ErrorContains(t, err, path+": its file system is mounted noexec; ")
}

func TestMisbehavingObjectsAreCaught(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	for _, flaw := range ctransport.Misbehaving() {
		t.Run(flaw.Name, func(t *testing.T) {
			path, err := ctransport.BuildBad(dir, flaw.Name)
			require.NoError(t, err)
			transport, err := Open(path, logger)
			require.NoError(t, err)
			if s := transport.Supports(allReduce); len(s.Algorithms) == 0 {
				require.Contains(t, s.Reason, flaw.Wrong)
				return
			}
			e, err := transport.Open(context.Background(), openConfig())
			if err == nil {
				defer e.Close()
				_, err = e.Prepare(context.Background(), allReduce, "direct")
			}
			require.ErrorContains(t, err, flaw.Wrong)
		})
	}
	for _, name := range ctransport.Accepted() {
		path, err := ctransport.BuildBad(dir, name)
		require.NoError(t, err)
		transport, err := Open(path, logger)
		require.NoError(t, err)
		e, err := transport.Open(context.Background(), openConfig())
		require.NoError(t, err)
		_, err = e.Allocate(context.Background(), 3, 1)
		require.ErrorIs(t, err, plugin.Unsupported, "the table has no allocate")
		_, err = e.Prepare(context.Background(), allReduce, "direct")
		require.NoError(t, err)
		require.NoError(t, e.Close())
	}
}

func FuzzCheckHead(f *testing.F) {
	f.Add(uint64(0x315854544e554853), uint32(1), uint32(0), uint64(184), uint64(184))
	f.Add(uint64(0x315854544e554853), uint32(1), uint32(9), uint64(1)<<63, uint64(0))
	f.Fuzz(func(t *testing.T, magic uint64, major, minor uint32, structBytes, symbolBytes uint64) {
		n, err := checkHead(magic, major, minor, structBytes, symbolBytes)
		if err == nil && (n > tableBytes[len(tableBytes)-1] || n > structBytes || (symbolBytes != 0 && n > symbolBytes) ||
			n < tableBytes[0]) {
			t.Fatalf("reads %d of %d bytes, the symbol has %d", n, structBytes, symbolBytes)
		}
	})
}

// Loading Go objects must not end the preemption of call-free loops here: a
// loop that makes no call would hold up every garbage collection.
func TestPreemptionSurvivesGoObjects(t *testing.T) {
	path, err := probeObject()
	require.NoError(t, err)
	for mode, want := range map[string]string{"shared": "preempted", "raw": "stuck"} {
		t.Run(mode, func(t *testing.T) {
			self, err := os.Executable()
			require.NoError(t, err)
			c := exec.Command(self)
			c.Env = append(os.Environ(), modeEnv+"="+mode, objectEnv+"="+path)
			out, err := c.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, want, string(out))
		})
	}
}

// loadAndPreempt loads copies of an object, a loop spinning beside, and prints
// whether a collection can still stop a loop without calls.
func loadAndPreempt(mode string) int {
	fail := func(err error) int {
		fmt.Println(err)
		return 1
	}
	runtime.GOMAXPROCS(4)
	content, err := os.ReadFile(os.Getenv(objectEnv))
	if err != nil {
		return fail(err)
	}
	dir, err := os.MkdirTemp("", "objects-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	copies := map[string]int{"shared": 5, "raw": 1}[mode]
	for i := range copies {
		path := filepath.Join(dir, fmt.Sprintf("%d.so", i))
		if err := os.WriteFile(path, content, 0o755); err != nil {
			return fail(err)
		}
		if mode == "raw" {
			if !rawload.Load(path, "shunt_transport_v1_ready") {
				return fail(fmt.Errorf("cannot load %s", path))
			}
			continue
		}
		transport, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			return fail(err)
		}
		// The object's own runtime must be preempted, too: it collects here.
		transport.Supports(allReduce)
	}
	// Where the loop cannot be preempted, a collection stops the world for the
	// loop's whole length, so the loop has an end of its own.
	const turns = 1 << 31
	var spinning, ended atomic.Bool
	var result atomic.Uint64
	go func() {
		spinning.Store(true)
		x := uint64(1)
		for range turns { // compiles to a loop without a call
			x = x*6364136223846793005 + 1442695040888963407
		}
		result.Store(x)
		ended.Store(true)
	}()
	for !spinning.Load() {
		runtime.Gosched()
	}
	for range 20 {
		runtime.GC()
	}
	if ended.Load() {
		fmt.Print("stuck")
	} else {
		fmt.Print("preempted")
	}
	return 0
}

func TestTheBudgetOfMultiprocessorsArrives(t *testing.T) {
	config := openConfig(probe.OptionSMs, "")
	config.MaxSMs = 24
	_, err := openProbe(t).Open(context.Background(), config)
	require.ErrorContains(t, err, "24 multiprocessors")
}
