package pool

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func init() {
	Handle("echo", func(_ context.Context, w *Worker, payload []byte) ([]byte, error) {
		fmt.Println("noise on stdout")
		return fmt.Appendf(nil, "%d/%d %s", w.Rank, w.World, payload), nil
	})
	Handle("random", func(_ context.Context, w *Worker, _ []byte) ([]byte, error) {
		return binary.LittleEndian.AppendUint64(nil, w.Rand.Uint64()), nil
	})
	Handle("error on 1", func(_ context.Context, w *Worker, _ []byte) ([]byte, error) {
		fmt.Fprintf(os.Stderr, "rank %d was here\n", w.Rank)
		if w.Rank == 1 {
			return nil, errors.New("one does not like it")
		}
		return nil, nil
	})
	Handle("panic", func(context.Context, *Worker, []byte) ([]byte, error) { panic("at the disco") })
	Handle("hang on 0", func(_ context.Context, w *Worker, _ []byte) ([]byte, error) {
		if w.Rank == 0 {
			select {}
		}
		return nil, nil
	})
	Handle("until deadline", func(ctx context.Context, w *Worker, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	Handle("die on 1", func(_ context.Context, w *Worker, _ []byte) ([]byte, error) {
		if w.Rank == 1 {
			fmt.Fprintln(os.Stderr, "last words")
			return nil, unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		return nil, nil
	})
	Handle("pid", func(context.Context, *Worker, []byte) ([]byte, error) {
		return strconv.AppendInt(nil, int64(os.Getpid()), 10), nil
	})
	Handle("remember", func(_ context.Context, w *Worker, payload []byte) ([]byte, error) {
		before, _ := w.State.(string)
		w.State = string(payload)
		return []byte(before), nil
	})
	Handle("too much", func(context.Context, *Worker, []byte) ([]byte, error) { return make([]byte, MaxPayload+1), nil })
	Handle("descriptors", func(context.Context, *Worker, []byte) ([]byte, error) {
		_, marked := os.LookupEnv(marker)
		return fmt.Appendf(nil, "%v", marked), nil
	})
}

func TestMain(m *testing.M) {
	Main()
	if os.Getenv("POOLTEST_PARENT") != "" {
		parentForOrphanTest()
		return
	}
	goleak.VerifyTestMain(m)
}

func newPool(t *testing.T, o Options) *Pool {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the pool: %v", err)
		}
	})
	return p
}

func run(t *testing.T, p *Pool, c Case) *Result {
	t.Helper()
	if c.Payloads == nil {
		c.Payloads = [][]byte{nil}
	}
	if c.Timeout == 0 {
		c.Timeout = 20 * time.Second
	}
	r, err := p.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryRankReturnsItsOwnPayload(t *testing.T) {
	p := newPool(t, Options{World: 3})
	if p.PIDs() != nil {
		t.Fatal("processes run before the first case")
	}
	r := run(t, p, Case{Handler: "echo", Payloads: [][]byte{[]byte("a"), []byte("b"), []byte("c")}})
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	for rank, o := range r.Outcomes {
		if want := fmt.Sprintf("%d/3 %c", rank, 'a'+rank); string(o.Payload) != want || o.Rank != rank {
			t.Errorf("rank %d returned %q, want %q", rank, o.Payload, want)
		}
		if o.Time <= 0 || o.Time > r.Time {
			t.Errorf("rank %d took %v of %v", rank, o.Time, r.Time)
		}
	}
}

func TestProcessesStayFromCaseToCase(t *testing.T) {
	p := newPool(t, Options{World: 2})
	first := run(t, p, Case{Handler: "remember", Payloads: [][]byte{[]byte("x")}})
	second := run(t, p, Case{Handler: "remember", Payloads: [][]byte{[]byte("y")}})
	if string(first.Outcomes[1].Payload) != "" || string(second.Outcomes[1].Payload) != "x" {
		t.Errorf("state %q, then %q", first.Outcomes[1].Payload, second.Outcomes[1].Payload)
	}
	if p.Starts() != 1 {
		t.Errorf("started %d times", p.Starts())
	}
}

func TestSeedIsResetBeforeEachCase(t *testing.T) {
	p := newPool(t, Options{World: 2})
	a := run(t, p, Case{Handler: "random", Seed: 7})
	b := run(t, p, Case{Handler: "random", Seed: 7})
	c := run(t, p, Case{Handler: "random", Seed: 8})
	if !bytes.Equal(a.Outcomes[0].Payload, b.Outcomes[0].Payload) {
		t.Error("the same seed gave other numbers")
	}
	if bytes.Equal(a.Outcomes[0].Payload, c.Outcomes[0].Payload) ||
		bytes.Equal(a.Outcomes[0].Payload, a.Outcomes[1].Payload) {
		t.Error("another seed or rank gave the same numbers")
	}
}

func TestErrorFailsTheCaseAndKeepsTheProcesses(t *testing.T) {
	p := newPool(t, Options{World: 2})
	r := run(t, p, Case{Handler: "error on 1"})
	err := r.Err()
	if err == nil || !strings.Contains(err.Error(), "rank 1: one does not like it") {
		t.Fatalf("error %v", err)
	}
	if r.Respawn || r.Outcomes[0].Error != "" {
		t.Errorf("rank 0 failed too, or the processes were replaced: %+v", r)
	}
	if err := run(t, p, Case{Handler: "echo"}).Err(); err != nil {
		t.Error(err)
	}
	if p.Starts() != 1 {
		t.Errorf("started %d times", p.Starts())
	}
}

func TestDeathIsNamedWithEveryRanksOutput(t *testing.T) {
	p := newPool(t, Options{World: 3})
	before := run(t, p, Case{Handler: "pid"})
	r := run(t, p, Case{Handler: "die on 1"})
	err := r.Err()
	if err == nil || !strings.Contains(err.Error(), "rank 1: process was killed by signal killed") ||
		!strings.Contains(err.Error(), "last words") {
		t.Fatalf("error %v", err)
	}
	if !r.Respawn {
		t.Error("the processes were not replaced")
	}
	for _, o := range before.Outcomes {
		assertGone(t, string(o.Payload))
	}
	if err := run(t, p, Case{Handler: "echo"}).Err(); err != nil {
		t.Errorf("the case after the death: %v", err)
	}
	if p.Starts() != 2 {
		t.Errorf("started %d times", p.Starts())
	}
}

func TestTimeoutShowsWhereTheRankIsStuck(t *testing.T) {
	p := newPool(t, Options{World: 2, Stderr: 64 << 10})
	r := run(t, p, Case{Handler: "hang on 0", Timeout: 300 * time.Millisecond})
	err := r.Err()
	if err == nil || !strings.Contains(err.Error(), "rank 0: no reply within 300ms") ||
		!strings.Contains(err.Error(), "pool_test.go") {
		t.Fatalf("error %v", err)
	}
	if !r.Respawn || r.Outcomes[1].Error != "" {
		t.Errorf("rank 1 failed too, or the processes were kept: %+v", r.Outcomes[1])
	}
}

func TestStoppedRankIsKilled(t *testing.T) {
	p := newPool(t, Options{World: 2, Grace: 100 * time.Millisecond})
	r := run(t, p, Case{Handler: "until deadline", Timeout: 400 * time.Millisecond,
		During: func(_ context.Context, pids []int) {
			if err := unix.Kill(pids[1], unix.SIGSTOP); err != nil {
				t.Error(err)
			}
		}})
	if !strings.Contains(r.Outcomes[1].Error, "no reply") || !r.Respawn {
		t.Errorf("outcome %+v", r.Outcomes[1])
	}
}

func TestOtherRanksGetAGracePeriodOnly(t *testing.T) {
	p := newPool(t, Options{World: 2, Grace: 100 * time.Millisecond})
	start := time.Now()
	r := run(t, p, Case{Handler: "die on 1", Timeout: time.Minute})
	if r.Outcomes[1].Error == "" {
		t.Fatal("no error")
	}
	r = run(t, p, Case{Handler: "until deadline", Timeout: time.Minute, During: func(_ context.Context, pids []int) {
		if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}})
	if !strings.Contains(r.Outcomes[1].Error, "of another rank's failure") {
		t.Errorf("rank 1: %q", r.Outcomes[1].Error)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestPanicIsFatal(t *testing.T) {
	p := newPool(t, Options{World: 1})
	r := run(t, p, Case{Handler: "panic"})
	if !strings.Contains(r.Outcomes[0].Error, "panic: at the disco") ||
		!strings.Contains(r.Outcomes[0].Error, "worker.go") || !r.Respawn {
		t.Errorf("outcome %+v", r.Outcomes[0])
	}
}

func TestLimitsAndMisuse(t *testing.T) {
	p := newPool(t, Options{World: 2})
	if r := run(t, p, Case{Handler: "too much"}); !strings.Contains(r.Outcomes[0].Error, "at most") {
		t.Errorf("outcome %q", r.Outcomes[0].Error)
	}
	if r := run(t, p, Case{Handler: "nobody"}); !strings.Contains(r.Outcomes[0].Error, `no handler named "nobody"`) {
		t.Errorf("outcome %q", r.Outcomes[0].Error)
	}
	ctx := context.Background()
	if _, err := p.Run(ctx, Case{Handler: "echo", Payloads: make([][]byte, 3), Timeout: time.Second}); err == nil {
		t.Error("three payloads for two ranks")
	}
	if _, err := p.Run(ctx, Case{Handler: "echo", Payloads: make([][]byte, 1)}); err == nil {
		t.Error("no timeout")
	}
	if _, err := New(Options{}); err == nil {
		t.Error("world 0")
	}
	if r := run(t, p, Case{Handler: "descriptors"}); string(r.Outcomes[0].Payload) != "false" {
		t.Error("a worker's children would think that they are workers")
	}
}

func TestSetupRunsOnEveryStart(t *testing.T) {
	var count int
	p := newPool(t, Options{World: 2, Setup: func() (string, [][]byte, error) {
		count++
		return "remember", [][]byte{fmt.Appendf(nil, "setup %d", count)}, nil
	}})
	if r := run(t, p, Case{Handler: "remember"}); string(r.Outcomes[1].Payload) != "setup 1" {
		t.Errorf("state %q", r.Outcomes[1].Payload)
	}
	run(t, p, Case{Handler: "die on 1"})
	if r := run(t, p, Case{Handler: "remember"}); string(r.Outcomes[1].Payload) != "setup 2" {
		t.Errorf("state %q", r.Outcomes[1].Payload)
	}
}

func TestFailedSetupIsAnErrorOfThePool(t *testing.T) {
	p := newPool(t, Options{World: 2, Setup: func() (string, [][]byte, error) { return "error on 1", [][]byte{nil}, nil }})
	_, err := p.Run(context.Background(), Case{Handler: "echo", Payloads: [][]byte{nil}, Timeout: time.Second})
	if err == nil || !strings.Contains(err.Error(), "one does not like it") {
		t.Errorf("error %v", err)
	}
	if p.PIDs() != nil {
		t.Error("processes are left")
	}
}

func TestCancelledRunReturnsAtOnce(t *testing.T) {
	p := newPool(t, Options{World: 2})
	ctx, cancel := context.WithCancel(context.Background())
	_, err := p.Run(ctx, Case{Handler: "until deadline", Payloads: [][]byte{nil}, Timeout: time.Minute,
		During: func(context.Context, []int) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestCloseEndsEveryProcess(t *testing.T) {
	p, err := New(Options{World: 3})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, p, Case{Handler: "pid"})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Outcomes {
		assertGone(t, string(o.Payload))
	}
	if _, err := p.Run(context.Background(), Case{}); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// parentForOrphanTest starts a pool, prints its processes and waits to be
// killed.
func parentForOrphanTest() {
	p, err := New(Options{World: 2})
	if err != nil {
		panic(err)
	}
	r, err := p.Run(context.Background(), Case{Handler: "pid", Payloads: [][]byte{nil}, Timeout: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s %s\n", r.Outcomes[0].Payload, r.Outcomes[1].Payload)
	_, _ = p.Run(context.Background(), Case{Handler: "hang on 0", Payloads: [][]byte{nil}, Timeout: time.Hour})
}

func TestKilledParentLeavesNoOrphan(t *testing.T) {
	parent := exec.Command("/proc/self/exe")
	parent.Env = append(os.Environ(), "POOLTEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var a, b string
	if _, err := fmt.Fscan(out, &a, &b); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	assertGone(t, a)
	assertGone(t, b)
}

// assertGone waits for the end of a process that is not our child, or is
// reaped already.
func assertGone(t *testing.T, pid string) {
	t.Helper()
	id, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(id, 0)
	if errors.Is(err, syscall.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000); n != 1 || err != nil {
		t.Errorf("process %s still runs (%d, %v)", pid, n, err)
	}
}

func TestFramesSurviveTheWire(t *testing.T) {
	in := &frame{Kind: frameResponse, Flags: flagError, Sequence: 1 << 40, Seed: 9, Time: time.Second, Name: "n",
		Payload: []byte{0, 1}, Error: "e"}
	b, err := in.encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := readFrame(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(*in) != fmt.Sprint(*out) {
		t.Errorf("%+v became %+v", in, out)
	}
	for n := range b {
		_, err := readFrame(bytes.NewReader(b[:n]))
		if n == 0 && err != io.EOF || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	for _, at := range []int{0, 4, 5, 7, 31, 35, 39} {
		bad := bytes.Clone(b)
		bad[at] = 0xff
		if _, err := readFrame(bytes.NewReader(bad)); !errors.Is(err, errFrame) {
			t.Errorf("byte %d wrong: %v", at, err)
		}
	}
	if _, err := (&frame{Payload: make([]byte, MaxPayload+1)}).encode(); err == nil {
		t.Error("a payload over the limit was encoded")
	}
}

func FuzzFrame(f *testing.F) {
	b, err := (&frame{Kind: frameRequest, Time: 1, Name: "x", Payload: []byte("y"), Error: "z"}).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:10])
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := got.encode()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, b[:len(again)]) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

func FuzzMarker(f *testing.F) {
	f.Add("0/1")
	f.Add("3/2")
	f.Fuzz(func(t *testing.T, text string) {
		rank, world, err := parseMarker(text)
		if err == nil && (rank < 0 || rank >= world) {
			t.Errorf("%q gave rank %d of %d", text, rank, world)
		}
	})
}

func BenchmarkCase(b *testing.B) {
	for _, world := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("world=%d", world), func(b *testing.B) {
			p, err := New(Options{World: world})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = p.Close() }()
			for b.Loop() {
				if _, err := p.Run(context.Background(), Case{Handler: "pid", Payloads: [][]byte{nil},
					Timeout: time.Minute}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
