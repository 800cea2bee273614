package process

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
)

// The host cannot tell a transport in a process from the same one linked in.
func TestProcessIsAsTheTransportItself(t *testing.T) {
	c := start(t, "probe")
	remote, local := c.Transport(), probe.Transport{}
	info := local.Info()
	info.Features &^= plugin.FeatureRegistration // of memory that the plugin's process cannot reach
	require.NotEqual(t, info, local.Info())
	require.Equal(t, info, remote.Info())
	require.Equal(t, local.Supports(allReduce), remote.Supports(allReduce))
	for _, read := range []bool{false, true} {
		broadcast := plugin.Request{Collective: plugin.Broadcast, World: 2, PeerRead: read}
		require.Equal(t, read, len(remote.Supports(broadcast).Algorithms) == 1)
		gather := plugin.Request{Collective: plugin.AllGather, World: 2, Symmetric: read}
		require.Equal(t, read, len(remote.Supports(gather).Algorithms) == 1)
		counted := plugin.Request{Collective: plugin.AllToAllV, World: 2, DeviceCounts: read}
		require.Equal(t, read, len(remote.Supports(counted).Algorithms) == 1)
	}
	send := plugin.Request{Collective: plugin.Send, World: 2}
	require.Equal(t, local.Supports(send), remote.Supports(send))
	longest := plugin.Request{World: 1006}
	require.NoError(t, local.Supports(longest).Validate())
	require.Equal(t, local.Supports(longest), remote.Supports(longest))

	e := open(t, c)
	require.Len(t, e.Regions(), 2)
	require.Equal(t, plugin.RegionRoleScratch, e.Regions()[1].Role)
	require.Equal(t, []plugin.Image{{Name: "probe.ptx", Data: []byte("// no code")}}, e.Images())

	want, err := probe.Plan(allReduce)
	require.NoError(t, err)
	got, err := e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
	require.NoError(t, e.Close())
}

// Images are tens of MB, and each communicator has an endpoint: those of one digest cross once.
func TestImagesCrossOnce(t *testing.T) {
	const size = 16 << 20
	c := start(t, "probe")
	open := func(bytes int) (data []byte, allocated uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		config := plugin.OpenConfig{World: 1, Device: -1, Options: map[string]string{probe.OptionImage: strconv.Itoa(bytes)}}
		e, err := c.Transport().Open(context.Background(), config)
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
		require.Len(t, e.Images(), 1)
		require.Len(t, e.Images()[0].Data, bytes)
		return e.Images()[0].Data, after.TotalAlloc - before.TotalAlloc
	}
	first, allocated := open(size)
	require.Greater(t, allocated, uint64(size))
	second, allocated := open(size)
	require.Less(t, allocated, uint64(size)/16)
	require.Same(t, &first[0], &second[0])
	other, allocated := open(size + 1)
	require.Greater(t, allocated, uint64(size))
	require.NotSame(t, &first[0], &other[0])
}

func TestADigestIsThatOfTheImagesAlone(t *testing.T) {
	const zeros = "\x00\x00\x00\x00\x00\x00\x00\x00"
	a, b := []byte("ab"), []byte("ab")
	var d digests
	of := func(images ...plugin.Image) string { return string(d.digestOf(images)) }
	require.Empty(t, of())
	one := of(plugin.Image{Name: "n", Data: a})
	require.Equal(t, one, of(plugin.Image{Name: "n", Data: b})) // elsewhere, and the same
	require.Equal(t, one, of(plugin.Image{Name: "n", Data: a}))
	seen := map[string]bool{one: true}
	for _, images := range [][]plugin.Image{
		{{Name: "na", Data: a[1:]}}, {{Name: "n", Data: a[:1]}}, {{Name: "n", Data: []byte("ba")}},
		{{Name: "n", Data: a}, {Name: "m", Data: a}}, {{Name: "m", Data: a}, {Name: "n", Data: a}},
		// The same bytes in other parts:
		{{Name: "nab"}}, {{Name: "", Data: []byte("nab")}}, {{Name: "n"}, {Name: "ab"}}, {{Name: "n", Data: a}, {}},
		{{Name: "n", Data: a}, {}, {}}, {{Name: "nabmab"}}, {{Name: "nab", Data: []byte("mab")}},
		// Images hold zeros, as many as a length has bytes:
		{{Name: "n", Data: []byte("a" + zeros + "m" + zeros + "b")}}, {{Name: "n", Data: a[:1]}, {Name: "m", Data: a[1:]}},
		{{Name: "n" + zeros + "a", Data: []byte("m" + zeros + "b")}},
	} {
		digest := of(images...)
		require.False(t, seen[digest], "%v", images)
		seen[digest] = true
	}
}

// A digest of the plugin's is bounded, and what could not be fetched is asked for again.
func TestPublishedImages(t *testing.T) {
	var p published
	images := []plugin.Image{{Name: "n", Data: []byte{1}}}
	_, err := p.of(make([]byte, maxDigest+1), nil)
	require.Equal(t, plugin.Protocol, plugin.CodeOf(err))
	none, err := p.of(nil, nil)
	require.NoError(t, err)
	require.Empty(t, none)
	failed := errors.New("failed")
	_, err = p.of([]byte{1}, func() ([]plugin.Image, error) { return nil, failed })
	require.ErrorIs(t, err, failed)
	got, err := p.of([]byte{1}, func() ([]plugin.Image, error) { return images, nil })
	require.NoError(t, err)
	require.Equal(t, images, got)
	got, err = p.of([]byte{1}, nil)
	require.NoError(t, err)
	require.Equal(t, images, got)
}

func TestDescriptorsAreTheRegionsOwnMemory(t *testing.T) {
	c := start(t, "probe")
	e := open(t, c)
	private := e.Regions()[0]
	memory, err := unix.Mmap(private.Handle.FD, 0, int(private.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(memory)
	require.Equal(t, byte(probe.Pattern), memory[0])
	require.Equal(t, byte(0), memory[4096])

	b, err := e.Allocate(context.Background(), 9, 5000)
	require.NoError(t, err)
	require.Equal(t, plugin.RegionRoleBuffer, b.Role)
	require.Equal(t, int64(8192), b.Bytes)
	require.NoError(t, unix.Kill(c.PID(), unix.SIGKILL))
	<-c.Done()
	// Memory outlives the process that made it.
	buffer, err := unix.Mmap(b.Handle.FD, 0, int(b.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(buffer)
	buffer[5000] = 1
	require.Equal(t, byte(probe.Pattern), memory[1])
}

func TestEndpointsReleaseTheirDescriptors(t *testing.T) {
	c := start(t, "probe")
	cycle := func() {
		e, err := c.Transport().Open(context.Background(), openConfig())
		require.NoError(t, err)
		_, err = e.Allocate(context.Background(), 7, 1)
		require.NoError(t, err)
		_, err = e.Allocate(context.Background(), 8, 1)
		require.NoError(t, err)
		require.NoError(t, e.Free(context.Background(), 7))
		require.NoError(t, e.Close())
		_, err = c.Transport().Open(context.Background(), openConfig(probe.OptionFail, "no"))
		require.Error(t, err)
		_, err = c.Transport().Open(context.Background(), openConfig(probe.OptionFD, "99999999"))
		require.Error(t, err)
	}
	cycle()
	here, there := descriptors(t, os.Getpid()), descriptors(t, c.PID())
	for range 20 {
		cycle()
	}
	require.Equal(t, here, descriptors(t, os.Getpid()))
	require.Equal(t, there, descriptors(t, c.PID()))
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + itoa(pid) + "/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestOpenWithoutAnEndpoint(t *testing.T) {
	opener := start(t, "probe").Transport()
	for how, what := range map[string]string{"none": "neither an endpoint nor an error",
		"endpoint": "a nil *probe.endpoint and no error"} {
		_, err := opener.Open(context.Background(), openConfig(probe.OptionNil, how))
		require.ErrorIs(t, err, plugin.Protocol)
		require.EqualError(t, err, "probe: open on rank 1: the transport's Open returned "+what)
	}
}

func TestErrorsCarryCodeRankAndMessage(t *testing.T) {
	c := start(t, "probe")
	_, err := c.Transport().Open(context.Background(), openConfig(probe.OptionFail, "no huge pages left"))
	var e *plugin.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, plugin.OutOfMemory, e.Code)
	require.Equal(t, 3, e.Rank)
	require.Equal(t, "probe: open on rank 1: no huge pages left", e.Message)
	_, err = c.Transport().Open(context.Background(), openConfig(probe.OptionFail, e.Message))
	require.EqualError(t, err, e.Message) // said once, also by a transport that says it

	ep := open(t, c)
	_, err = ep.Prepare(context.Background(), allReduce, "ring")
	require.ErrorIs(t, err, plugin.Unsupported)
	require.ErrorContains(t, err, `probe: prepare all_reduce/ring on rank 1: algorithm "ring" is not the probe's`)
	require.ErrorIs(t, ep.Free(context.Background(), 77), plugin.InvalidArgument)
	require.NoError(t, ep.Close())
	_, err = ep.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.ErrorIs(t, err, plugin.Closed)

	failing := open(t, c, probe.OptionClose, "the device is gone")
	require.ErrorContains(t, failing.Close(), "the device is gone")
	require.NoError(t, failing.Close(), "the second Close has nothing to do")
}

func TestPanicOfATransportIsAnErrorOfTheCall(t *testing.T) {
	c := start(t, "probe")
	_, err := c.Transport().Open(context.Background(), openConfig(probe.OptionPanic, "index out of range"))
	require.ErrorIs(t, err, plugin.Internal)
	require.ErrorContains(t, err, "the transport panicked: index out of range")
	require.Contains(t, c.Transport().Supports(plugin.Request{World: 1004}).Reason, "the transport panicked")
	require.NoError(t, open(t, c).Close(), "the plugin serves on")
}

// A transport that calls t.FailNow fails the call, not its caller's patience.
func TestGoexitOfATransportIsAnErrorOfTheCall(t *testing.T) {
	c := start(t, "Goexit")
	const want = "the transport ended its goroutine (runtime.Goexit"
	require.Contains(t, c.Transport().Supports(allReduce).Reason, want)
	e := open(t, c)
	for range 2 { // the endpoint is free again
		_, err := e.Prepare(t.Context(), allReduce, probe.Algorithm)
		require.ErrorIs(t, err, plugin.Internal)
		require.ErrorContains(t, err, "probe: prepare all_reduce/one_shot on rank 1: "+want)
	}
	require.NoError(t, e.Close())
}

func TestHostileRepliesAreRejected(t *testing.T) {
	c := start(t, "probe")
	for world, want := range map[int]string{
		1001: "latency NaN",
		1002: "reason has 65536 bytes, want at most 512",
		1003: "1000 algorithms, want at most 32",
		1005: "algorithm name of 64 bytes, want 1 to 63",
	} {
		s := c.Transport().Supports(plugin.Request{World: world})
		require.Empty(t, s.Algorithms)
		require.Contains(t, s.Reason, want)
	}
	for option, want := range map[string]string{
		"steps":  "32769 steps, want at most 32768",
		"index":  "operand out of range",
		"other":  "plan another is for another algorithm, want one_shot",
		"native": "native functions",
		"many":   "temporaries, at most 32768",
		"nil":    "no plan",
		"error":  "a nil *plugin.Error as its error",
	} {
		e := open(t, c, probe.OptionPlan, option)
		_, err := e.Prepare(context.Background(), allReduce, probe.Algorithm)
		require.ErrorContains(t, err, want, option)
		require.NoError(t, e.Close())
	}
	_, err := c.Transport().Open(context.Background(), openConfig(probe.OptionTwice, ""))
	require.EqualError(t, err, "probe: open on rank 1: region 1 has id 0")
	_, err = c.Transport().Open(context.Background(), openConfig(probe.OptionFD, "1000000"))
	require.ErrorIs(t, err, plugin.Protocol)
	require.ErrorContains(t, err, "its memfd has 65536 bytes, its handle says 1000000")
	require.NoError(t, c.Err())
}

func TestCallsEndWithTheirContext(t *testing.T) {
	c := start(t, "probe")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Transport().Open(ctx, openConfig(probe.OptionHang, ""))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, plugin.Timeout)

	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	_, err = c.Transport().Open(ctx, openConfig(probe.OptionHang, ""))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, plugin.Aborted)
	require.NoError(t, c.Err(), "the plugin lives on")
	require.NoError(t, open(t, c).Close())
}

// late is a context whose deadline has passed before its timer has run.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestWhoeverNoticesTheEndOfACallFirst(t *testing.T) {
	c := start(t, "probe")
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Hour))
	defer cancel()
	lives := late{context.Background()}
	require.NoError(t, lives.Err())
	byPlugin := func(code plugin.Code) error { return toRPC(plugin.Errorf(code, "open was given up")) }
	for name, the := range map[string]struct {
		given context.Context
		reply error
		want  error
		code  plugin.Code
		text  string
	}{
		"the host, deadline": {expired, status.FromContextError(context.DeadlineExceeded).Err(),
			context.DeadlineExceeded, plugin.Timeout, "open: plugin probe (pid "},
		"the host, canceled": {canceled, status.FromContextError(context.Canceled).Err(),
			context.Canceled, plugin.Aborted, "open: the caller gave the call up"},
		"the plugin, deadline": {lives, byPlugin(plugin.Timeout), context.DeadlineExceeded,
			plugin.Timeout, "open: open was given up"},
		"the plugin, deadline, no code": {expired, byPlugin(plugin.Internal), context.DeadlineExceeded,
			plugin.Timeout, "open: open was given up"},
		"the plugin, canceled": {canceled, byPlugin(plugin.Aborted), context.Canceled, plugin.Aborted,
			"open: open was given up"},
		"the plugin, canceled, called late": {canceled, byPlugin(plugin.Timeout), context.Canceled, plugin.Aborted,
			"open was given up"},
		"gRPC of the plugin, deadline": {lives, status.Error(codes.DeadlineExceeded, "too late"),
			context.DeadlineExceeded, plugin.Timeout, ") did not respond within "},
		"the carrier's wait for a descriptor": {canceled,
			plugin.Errorf(plugin.Timeout, "waiting for a descriptor: %w", context.Canceled), context.Canceled, plugin.Aborted,
			"open: the caller gave the call up"},
		"a verdict that has nothing to do with it": {expired, byPlugin(plugin.OutOfMemory), plugin.OutOfMemory,
			plugin.OutOfMemory, "open: open was given up"},
		"the plugin, and nothing has ended": {context.Background(), byPlugin(plugin.Timeout), plugin.Timeout, plugin.Timeout,
			"open: open was given up"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.call(the.given, "open", func(context.Context) error { return the.reply })
			require.ErrorIs(t, err, the.want)
			require.Equal(t, the.code, plugin.CodeOf(err))
			require.ErrorContains(t, err, the.text)
			if the.want == plugin.OutOfMemory || the.given == context.Background() {
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
}

func TestSupportsIsAskedOnce(t *testing.T) {
	c := start(t, "probe")
	r := allReduce
	want := c.Transport().Supports(r)
	require.NoError(t, c.Close())
	r.Rank = 3
	require.Equal(t, want, c.Transport().Supports(r), "the result does not depend on the rank")
	r.Bytes = math.MaxInt64
	require.Contains(t, c.Transport().Supports(r).Reason, "is closed")
}

func TestSupportCacheIsBounded(t *testing.T) {
	var s supportCache
	for i := range 3 * maxSupports {
		s.put(plugin.Request{Bytes: int64(i)}, plugin.Support{Reason: "no"})
		require.LessOrEqual(t, len(s.known), maxSupports)
	}
}

func TestTheBudgetOfMultiprocessorsArrives(t *testing.T) {
	config := openConfig(probe.OptionSMs, "")
	config.MaxSMs = 24
	_, err := start(t, "probe").Transport().Open(context.Background(), config)
	require.ErrorContains(t, err, "24 multiprocessors")
}
