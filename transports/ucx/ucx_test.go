package ucx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/transports/ucx/ucxtest"
)

// The engine passes on one host and on two, in both carriers that it has. Delays between hosts last their whole time,
// as no rank sees that the others wait, so their scenarios run on one.
func TestConformance(t *testing.T) {
	if reason := ucxtest.Missing(); reason != "" {
		t.Skip(reason)
	}
	object := t.TempDir() + "/libshunt_ucx.so"
	out, err := builttest.Command("go", "build", "-buildmode=c-shared", "-o", object, "./shared").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for transport, kept := range map[string]string{
		"builtin:ucx":      `^([^h]|hosts\d/([^lr]|re))`,
		"shared:" + object: `^(hosts2/)?(all_reduce|all_to_all_v|send_recv|barrier|abort).*(float32|barrier)`,
	} {
		t.Run(transport, func(t *testing.T) {
			conformance.Test(t, conformance.Config{Transport: transport, Worlds: []int{1, 3}, Hosts: []int{1, 2}, Short: true,
				MaxBytes: 8 << 20, MaxRounds: 4, Filter: regexp.MustCompile(kept)})
		})
	}
}

const most = 200000 // elements

// changes are the ways in which one rank's call can differ.
var changes = map[string]func(*host.Operation){
	"longer":     func(o *host.Operation) { o.Count = 2 * o.Count },
	"shorter":    func(o *host.Operation) { o.Count = o.Count / 2 },
	"in pieces":  func(o *host.Operation) { o.Count = most },
	"dtype":      func(o *host.Operation) { o.DType = plugin.Float16 },
	"op":         func(o *host.Operation) { o.Op = plugin.OpMax },
	"root":       func(o *host.Operation) { o.Root = 2 },
	"collective": func(o *host.Operation) { o.Collective, o.Count = plugin.ReduceScatter, 100 },
}

func init() { bodies["disagree"] = disagree }

// disagree makes calls that agree, of both kinds, then one that differs on rank 1.
func disagree(_ context.Context, c *host.Communicator, arguments []string) error {
	collective, err := plugin.ParseCollective(arguments[0])
	if err != nil {
		return err
	}
	calls, err := strconv.Atoi(strings.TrimPrefix(arguments[2], "new after "))
	if err != nil {
		return err
	}
	send, recv := newGuarded(most*4), newGuarded(3*most*4)
	op := host.Operation{Collective: collective, Count: 1000, DType: plugin.Float32, Op: plugin.OpSum,
		Send: send.pointer(), Recv: recv.pointer()}
	other := op
	changes[arguments[1]](&other)
	for range calls {
		err := c.Do(&op)
		if err == nil && !strings.HasPrefix(arguments[2], "new") {
			err = c.Do(&other)
		}
		if err != nil {
			return fmt.Errorf("a call that all agree on: %w", err)
		}
	}
	if c.Rank() == 1 {
		op = other
	}
	for err == nil { // a rank that got what it expected returns the error in its next call
		err = c.Do(&op)
	}
	if !send.intact() || !recv.intact() {
		return fmt.Errorf("bytes outside of the buffers have changed; the call ended with: %w", err)
	}
	return err
}

// All ranks return the error of calls that differ: in first calls, between calls whose plans are there, and where one
// has a plan and the other has not.
func TestRanksThatDisagreeAreTold(t *testing.T) {
	run := newWorld(t, 3)
	for _, collective := range []plugin.Collective{plugin.AllReduce, plugin.Broadcast, plugin.AllGather, plugin.Reduce} {
		for name := range changes {
			if (name == "op" && !collective.Reduces()) || (name == "root" && !collective.Rooted()) {
				continue
			}
			for _, calls := range []string{"0", "20", "new after 1"} {
				for rank, a := range run("disagree", collective.String(), name, calls) {
					assert.Equal(t, plugin.Mismatch, a.Code, "%s, %s after %s calls, rank %d: %s", collective, name, calls, rank,
						a.Text)
					assert.Less(t, a.Took, 5*time.Second)
				}
			}
		}
	}
}

// A rank without a library among ranks with one is named to all of them.
func TestRankWithoutALibraryIsNamed(t *testing.T) {
	for rank, a := range newWorld(t, 3)("no library") {
		assert.Equal(t, plugin.Unsupported, a.Code, "rank %d: %s", rank, a.Text)
		assert.Contains(t, a.Text, "ucx: rank 1 cannot use it: ")
		assert.Contains(t, a.Text, "/nowhere/libucp.so.0: no such file or directory")
		assert.Less(t, a.Took, 5*time.Second)
	}
}

func init() { bodies["fault"] = fault }

// fault recovers from a nil pointer after a call.
func fault(_ context.Context, c *host.Communicator, _ []string) (err error) {
	if err := c.Barrier(nil); err != nil {
		return err
	}
	defer func() {
		if recover() != nil {
			err = nil
		}
	}()
	var p *int
	*(*int)(unsafe.Add(unsafe.Pointer(p), 8)) = 1
	return errors.New("a nil pointer is no fault")
}

// UCX handles SIGSEGV and others itself where it may, and prints where a program ended. That would end a program of Go
// at a nil pointer that it recovers from, and take faults away from Python's faulthandler.
func TestSignalsStayTheProgramsOwn(t *testing.T) {
	for rank, a := range newWorld(t, 2)("fault") {
		assert.Equal(t, plugin.OK, a.Code, "rank %d: %s", rank, a.Text)
	}
}

func init() { bodies["leave"] = leave }

// leave has rank 0 send much and then call nothing until rank 1 has all of it.
func leave(ctx context.Context, c *host.Communicator, _ []string) error {
	const messages, bytes = 400, 8000
	memory := make([]byte, bytes)
	for range messages {
		var err error
		if c.Rank() == 0 {
			err = c.Send(unsafe.Pointer(&memory[0]), bytes, plugin.Uint8, 1, nil)
		} else {
			err = c.Recv(unsafe.Pointer(&memory[0]), bytes, plugin.Uint8, 0, nil)
		}
		if err != nil {
			return err
		}
	}
	_, err := c.Exchange(ctx, []byte{1}) // over the rendezvous
	return err
}

// A message leaves its sender, and reaches its receiver, also while the sender is in no call.
func TestMessagesLeaveWithoutTheirSender(t *testing.T) {
	// A small buffer of sockets: the last message does not fit.
	for rank, a := range newWorld(t, 2, "UCX_TLS=tcp", "UCX_TCP_SNDBUF=4k")("leave") {
		assert.Equal(t, plugin.OK, a.Code, "rank %d: %s", rank, a.Text)
	}
}

func init() {
	bodies["quiet"] = leave
	adjust["quiet"] = func(*host.Options) { // its standard error goes to a file
		fd, err := unix.Open(os.Getenv("QUIET"), unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, 0o600)
		if err == nil {
			err = unix.Dup3(fd, 2, 0)
		}
		if err != nil {
			panic(err)
		}
	}
}

// What this package asks of UCX is right in every configuration: jobs that do nothing wrong get no warning.
func TestUCXHasNothingToSay(t *testing.T) {
	for _, tls := range []string{"tcp", "tcp,sm,self", "all", "sm,self", "^tcp", "^cma"} {
		file := filepath.Join(t.TempDir(), "output")
		env := []string{"QUIET=" + file, "UCX_LOG_FILE=stderr", "UCX_TLS=" + tls, "UCX_MM_ERROR_HANDLING=y",
			"UCX_WARN_UNUSED_ENV_VARS=n"}
		for rank, a := range newWorld(t, 2, env...)("quiet") {
			assert.Equal(t, plugin.OK, a.Code, "%s, rank %d: %s", tls, rank, a.Text)
		}
		said, err := os.ReadFile(file)
		assert.NoError(t, err)
		assert.NotContains(t, string(said), "UCX", tls)
	}
}

func init() { bodies["abort"] = abort }

// abort has rank 2 abort while long messages are on their way, or one from rank 0 that is never received.
func abort(ctx context.Context, c *host.Communicator, arguments []string) error {
	const count = 16 << 20
	memory := newGuarded(4 * count)
	op := host.Operation{Collective: plugin.AllReduce, Send: memory.pointer(), Recv: memory.pointer(), Count: count,
		DType: plugin.Float32}
	if err := c.Do(&op); err != nil {
		return fmt.Errorf("a call before: %w", err)
	}
	if _, err := c.Exchange(ctx, []byte{1}); err != nil { // no rank is in it any more
		return err
	}
	switch {
	case arguments[0] != "send":
	case c.Rank() == 0:
		op.Collective, op.Root = plugin.Send, 1
	default:
		op = host.Operation{Collective: plugin.Barrier}
	}
	request, err := c.Start(&op)
	if c.Rank() == 2 {
		c.Abort("enough")
	}
	if err == nil { // else the abort was faster
		err = request.Wait(ctx)
	}
	// The others stay connected until rank 0's call has ended: it does not end because they close.
	if c.Rank() == 0 {
		err = errors.Join(err, os.WriteFile(arguments[1], nil, 0o600))
	}
	for ; ctx.Err() == nil; runtime.Gosched() {
		if _, missing := os.Stat(arguments[1]); missing == nil {
			break
		}
	}
	if !memory.intact() {
		return fmt.Errorf("bytes outside of the buffer have changed; the call ended with: %w", err)
	}
	return err
}

// An abort ends messages that are on their way, and releases their buffers.
func TestAbortDuringLongMessages(t *testing.T) {
	run := newWorld(t, 3)
	for i, way := range []string{"all_reduce", "send", "all_reduce", "send"} {
		for rank, a := range run("abort", way, filepath.Join(t.TempDir(), fmt.Sprint("ended", i))) {
			assert.Equal(t, plugin.Aborted, a.Code, "%s, rank %d: %s", way, rank, a.Text)
			assert.Less(t, a.Took, 8*time.Second)
		}
	}
}

func init() { bodies["close"] = closeEarly }

// closeEarly has rank 1 return, and so close, after calls of all ranks; the others go on.
func closeEarly(_ context.Context, c *host.Communicator, arguments []string) error {
	collective, err := plugin.ParseCollective(arguments[0])
	if err != nil {
		return err
	}
	count, err := strconv.ParseInt(arguments[1], 10, 64)
	if err != nil {
		return err
	}
	bytes := 4 * count * int64(c.World())
	memory := make([]byte, 2*bytes)
	op := host.Operation{Collective: collective, Count: count, DType: plugin.Float32, Send: unsafe.Pointer(&memory[0]),
		Recv: unsafe.Pointer(&memory[bytes])}
	if collective == plugin.Barrier {
		op = host.Operation{Collective: collective}
	}
	if collective == plugin.Recv {
		if err := c.Barrier(nil); err != nil || c.Rank() == 1 {
			return err
		}
	}
	for call := 0; err == nil && (call < 3 || c.Rank() != 1); call++ {
		if op.Root = 0; collective == plugin.Recv {
			op.Root = 1
		} else if collective.Rooted() { // all ranks wait for rank 1 at last
			op.Root = call % c.World()
		}
		err = c.Do(&op)
	}
	return err
}

// Ranks whose calls wait for one that has closed learn that within seconds, long before the timeout: also where their
// long messages to it end as if it had died.
func TestARankThatClosesIsNamedByOtherHosts(t *testing.T) {
	run := newWorld(t, 3)
	for _, collective := range []plugin.Collective{plugin.AllReduce, plugin.AllToAll, plugin.Broadcast, plugin.Recv,
		plugin.Barrier} {
		for _, count := range []string{"10", "1000003"} {
			for rank, a := range run("close", collective.String(), count) {
				if rank == 1 {
					assert.Equal(t, plugin.OK, a.Code, "%s of %s: %s", collective, count, a.Text)
					continue
				}
				assert.Equal(t, plugin.Closed, a.Code, "%s of %s, rank %d: %s", collective, count, rank, a.Text)
				assert.Contains(t, a.Text, "peer rank 1 (")
				assert.Less(t, a.Took, 8*time.Second)
			}
		}
	}
}

func init() { bodies["lengths"] = differInLength }

// differInLength has rank 0 send a message of one length, and rank 1 receive one of another; the communicator's next
// call tells rank 0.
func differInLength(_ context.Context, c *host.Communicator, arguments []string) error {
	bytes, err := strconv.ParseInt(arguments[c.Rank()], 10, 64)
	if err != nil {
		return err
	}
	memory := newGuarded(int(bytes))
	if c.Rank() == 0 {
		err = c.Send(memory.pointer(), bytes, plugin.Uint8, 1, nil)
	} else {
		err = c.Recv(memory.pointer(), bytes, plugin.Uint8, 0, nil)
	}
	if err == nil {
		err = c.Barrier(nil)
	}
	if !memory.intact() {
		return fmt.Errorf("bytes outside of the buffer have changed; the call ended with: %w", err)
	}
	return err
}

// Both ends of a message that differ in its length return both lengths, whichever way UCX moves it.
func TestLengthsOfAMessageAreNamed(t *testing.T) {
	run := newWorld(t, 2)
	for _, c := range [][2]string{{"4096", "8192"}, {"8192", "4096"}, {"1", "70000"}, {"70000", "1"},
		{"4000000", "4000001"}, {"4000001", "4000000"}} {
		for rank, a := range run("lengths", c[0], c[1]) {
			assert.Equal(t, plugin.Mismatch, a.Code, "%v, rank %d: %s", c, rank, a.Text)
			assert.Contains(t, a.Text, fmt.Sprintf("rank 0 sends %s bytes to rank 1, which expects %s;", c[0], c[1]))
		}
	}
}
