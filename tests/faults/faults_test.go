package faults

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/shm"
)

var (
	loops = flag.Int("faults.loops", 3, "how often each process is killed; from 10 on, other faults are tried at every place too")
	calls = flag.Int("faults.calls", 2000, "all_to_all_v calls of the soak test")
	comms = flag.Int("faults.communicators", 30, "communicators made and closed by the soak test")
	seed  = flag.Uint64("faults.seed", uint64(time.Now().UnixNano()), "decides the moments of faults")
)

func TestMain(m *testing.M) {
	host.Register(shm.Transport{})
	pool.Main()
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built != "" {
			_ = os.RemoveAll(built)
		}
		os.Exit(code)
	}))
}

const (
	builtin = "builtin:shm"
	// soon is how fast every survivor must have an error that names the cause.
	soon = 2 * time.Second
)

var built string // directory of what buildProcess built

// buildProcess builds the plugin binary of the shm transport, once.
var buildProcess = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "shunt-transport-shm")
	out, err := exec.Command("go", "build", "-o", path, "github.com/shunt-ccl/shunt/transports/shm/plugin").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func processTransport(t *testing.T) (spec, path string) {
	t.Helper()
	path, err := buildProcess()
	if err != nil {
		t.Fatal(err)
	}
	return "process:" + path, path
}

// world is a pool whose ranks meet at a fresh place each time, and keep their
// temporary files in a directory of their own.
type world struct {
	t     *testing.T
	pool  *pool.Pool
	dir   string // temporary files; must be empty at the end
	meets string // rendezvous files, which a killed rank 0 cannot remove
	joins int
}

func newWorld(t *testing.T, size int) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "f") //nolint:usetesting // short: paths of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.New(pool.Options{World: size, KeepAfterDeath: true, Env: []string{"TMPDIR=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, pool: p, dir: dir, meets: t.TempDir()}
	t.Cleanup(w.close)
	return w
}

// close ends the ranks. Then nothing of the world may be left: no process that
// runs this test's binary or one of the given ones, and no file.
func (w *world) close() { w.gone() }

func (w *world) gone(binaries ...string) {
	w.t.Helper()
	if w.pool == nil {
		return
	}
	if err := w.pool.Close(); err != nil {
		w.t.Errorf("closing the pool: %v", err)
	}
	w.pool = nil
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	deadline := time.Now().Add(soon)
	for {
		now, err := Survey(append(binaries, self), []string{w.dir})
		if err != nil {
			w.t.Fatal(err)
		}
		left := now.Since(System{})
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			w.t.Errorf("left behind: %v", left)
			break
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Error(err)
	}
}

// meet is a request with a rendezvous that nobody has used.
func (w *world) meet(transport string, timeout time.Duration) request {
	w.joins++
	return request{
		Transport: transport, Timeout: timeout, Absent: -1, Limited: -1, Bytes: 1 << 20,
		ID: "file://" + filepath.Join(w.meets, fmt.Sprintf("meet-%d", w.joins)),
	}
}

// ask sends one request to every rank. A rank that died has no answer.
func (w *world) ask(handler string, r request, timeout time.Duration, during func(ctx context.Context, pids []int)) ([]*answer, *pool.Result) {
	w.t.Helper()
	payload, err := json.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	result, err := w.pool.Run(context.Background(), pool.Case{Handler: handler, Payloads: [][]byte{payload}, Timeout: timeout, During: during})
	if err != nil {
		w.t.Fatal(err)
	}
	answers := make([]*answer, len(result.Outcomes))
	for rank, o := range result.Outcomes {
		if o.Error != "" || o.Payload == nil {
			continue
		}
		answers[rank] = &answer{}
		if err := json.Unmarshal(o.Payload, answers[rank]); err != nil {
			w.t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return answers, result
}

// mustAsk is ask where every rank must answer without an error.
func (w *world) mustAsk(handler string, r request, timeout time.Duration) []*answer {
	w.t.Helper()
	answers, result := w.ask(handler, r, timeout, nil)
	if err := result.Err(); err != nil {
		w.t.Fatal(err)
	}
	for rank, a := range answers {
		if a.Code != plugin.OK {
			w.t.Fatalf("rank %d: %s: %s", rank, a.Code, a.Message)
		}
	}
	return answers
}

// moment waits for a random time, up to a few milliseconds longer than a
// message of the traffic takes. It is the moment of a fault, not a
// synchronization: any moment must do.
func moment(ctx context.Context, random *rand.Rand) {
	timer := time.NewTimer(time.Duration(random.Int64N(int64(30 * time.Millisecond))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func random(t *testing.T) *rand.Rand {
	t.Logf("-faults.seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

// judge checks what the survivors of a fault answered.
func judge(t *testing.T, answers []*answer, result *pool.Result, dead int, code plugin.Code, mentions []string, since time.Time) {
	t.Helper()
	for rank, a := range answers {
		if rank == dead {
			continue
		}
		if a == nil {
			t.Errorf("survivor %d: %s\n%s", rank, result.Outcomes[rank].Error, result.Outcomes[rank].Stderr)
			continue
		}
		if a.Code != code {
			t.Errorf("survivor %d: code %s, want %s: %s", rank, a.Code, code, a.Message)
		}
		for _, text := range mentions {
			if !strings.Contains(a.Message, text) {
				t.Errorf("survivor %d: no %q in %q", rank, text, a.Message)
			}
		}
		if took := a.At.Sub(since); took > soon {
			t.Errorf("survivor %d: the error came after %v", rank, took)
		}
		if len(a.Leaks) > 0 {
			t.Errorf("survivor %d still holds %v", rank, a.Leaks)
		}
		closing(t, rank, a)
	}
}

// closing allows closing to say that a plugin is gone or had to be killed, as
// one whose machine is busy may have to, and nothing else.
func closing(t *testing.T, rank int, a *answer) {
	t.Helper()
	if a.Close == "" {
		return
	}
	if a.CloseCode != plugin.PluginDied && a.CloseCode != plugin.Timeout {
		t.Errorf("survivor %d: closing: %s: %s", rank, a.CloseCode, a.Close)
		return
	}
	t.Logf("survivor %d: closing: %s", rank, a.Close)
}

func TestKilledRankIsNamedByEverySurvivor(t *testing.T) {
	random := random(t)
	for _, size := range []int{2, 4} {
		t.Run(fmt.Sprintf("world=%d", size), func(t *testing.T) {
			for loop := range *loops {
				w := newWorld(t, size)
				r := w.meet(builtin, 20*time.Second)
				w.mustAsk("faults open", r, 30*time.Second)
				dead := random.IntN(size)
				var killed time.Time
				var pid int
				answers, result := w.ask("faults traffic", r, 15*time.Second, func(ctx context.Context, pids []int) {
					moment(ctx, random)
					killed, pid = time.Now(), pids[dead]
					if err := unix.Kill(pid, unix.SIGKILL); err != nil {
						t.Error(err)
					}
				})
				judge(t, answers, result, dead, plugin.PeerDied, []string{fmt.Sprintf("rank %d", dead), fmt.Sprint(pid)}, killed)
				w.close()
				if t.Failed() {
					t.Fatalf("loop %d, rank %d killed", loop, dead)
				}
			}
		})
	}
}

func TestKilledPluginIsNamedByEveryRank(t *testing.T) {
	random := random(t)
	spec, binary := processTransport(t)
	const size = 3
	for loop := range *loops {
		w := newWorld(t, size)
		r := w.meet(spec, 20*time.Second)
		plugins := w.mustAsk("faults open", r, 30*time.Second)
		owner := random.IntN(size)
		var killed time.Time
		answers, result := w.ask("faults traffic", r, 15*time.Second, func(ctx context.Context, _ []int) {
			moment(ctx, random)
			killed = time.Now()
			if err := unix.Kill(plugins[owner].Plugin, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		})
		judge(t, answers, result, -1, plugin.PluginDied, []string{fmt.Sprint(plugins[owner].Plugin), "shm", fmt.Sprintf("rank %d", owner)}, killed)
		w.gone(binary)
		if t.Failed() {
			t.Fatalf("loop %d, plugin of rank %d killed", loop, owner)
		}
	}
}

func TestKilledRankTakesItsPluginAlong(t *testing.T) {
	random := random(t)
	spec, binary := processTransport(t)
	for loop := range *loops {
		w := newWorld(t, 3)
		r := w.meet(spec, 20*time.Second)
		w.mustAsk("faults open", r, 30*time.Second)
		dead := random.IntN(3)
		var killed time.Time
		answers, result := w.ask("faults traffic", r, 15*time.Second, func(ctx context.Context, pids []int) {
			moment(ctx, random)
			killed = time.Now()
			// The process alone, not its group: its plugin must see to itself.
			if err := unix.Kill(pids[dead], unix.SIGKILL); err != nil {
				t.Error(err)
			}
		})
		judge(t, answers, result, dead, plugin.PeerDied, []string{fmt.Sprintf("rank %d", dead)}, killed)
		w.gone(binary)
		if t.Failed() {
			t.Fatalf("loop %d, rank %d killed", loop, dead)
		}
	}
}

func TestStoppedPluginIsReportedAndKilled(t *testing.T) {
	spec, binary := processTransport(t)
	w := newWorld(t, 2)
	r := w.meet(spec, 20*time.Second)
	plugins := w.mustAsk("faults open", r, 30*time.Second)
	var stopped time.Time
	answers, result := w.ask("faults traffic", r, 30*time.Second, func(context.Context, []int) {
		stopped = time.Now()
		if err := unix.Kill(plugins[1].Plugin, unix.SIGSTOP); err != nil {
			t.Error(err)
		}
	})
	for rank, a := range answers {
		if a == nil {
			t.Fatalf("rank %d: %v", rank, result.Err())
		}
		if a.Code != plugin.PluginDied || !strings.Contains(a.Message, fmt.Sprint(plugins[1].Plugin)) || !strings.Contains(a.Message, "does not answer") {
			t.Errorf("rank %d: %s: %s", rank, a.Code, a.Message)
		}
		if took := a.At.Sub(stopped); took > 5*time.Second {
			t.Errorf("rank %d: the error came after %v", rank, took)
		}
	}
	w.gone(binary)
}

func TestRankThatNeverJoinsIsNamed(t *testing.T) {
	for _, absent := range []int{0, 2} {
		t.Run(fmt.Sprintf("absent=%d", absent), func(t *testing.T) {
			w := newWorld(t, 3)
			r := w.meet(builtin, time.Second)
			r.Absent = absent
			start := time.Now()
			answers, result := w.ask("faults open", r, 20*time.Second, nil)
			if err := result.Err(); err != nil {
				t.Fatal(err)
			}
			for rank, a := range answers {
				if rank == absent {
					continue
				}
				if a.Code != plugin.Timeout || !strings.Contains(a.Message, fmt.Sprintf("rank %d", absent)) && !strings.Contains(a.Message, fmt.Sprintf("ranks %d", absent)) {
					t.Errorf("rank %d: %s: %s", rank, a.Code, a.Message)
				}
				if took := a.At.Sub(start); took < 500*time.Millisecond || took > time.Second+soon {
					t.Errorf("rank %d: the error came after %v", rank, took)
				}
				if len(a.Leaks) > 0 {
					t.Errorf("rank %d still holds %v", rank, a.Leaks)
				}
			}
		})
	}
}

func TestRankThatStaysOutOfACallIsNamed(t *testing.T) {
	w := newWorld(t, 3)
	r := w.meet(builtin, time.Second)
	w.mustAsk("faults open", r, 20*time.Second)
	r.Absent = 1
	start := time.Now()
	answers, result := w.ask("faults traffic", r, 5*time.Second, nil)
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	for rank, a := range answers {
		if a.Code != plugin.Timeout || !strings.Contains(a.Message, "rank 1") {
			t.Errorf("rank %d: %s: %s", rank, a.Code, a.Message)
		}
		if took := a.At.Sub(start); took > time.Second+soon {
			t.Errorf("rank %d: the error came after %v", rank, took)
		}
	}
}

// Every number of spare descriptors makes joining fail at another place, until
// there are enough. Wherever it is, all ranks must agree. Only a rank that
// cannot even open a socket has nobody to agree with; it is missed.
func TestDescriptorLimitIsAnAgreedError(t *testing.T) {
	w := newWorld(t, 3)
	failed := 0
	for spare := range 40 {
		if *loops < 10 && spare%4 != 0 {
			continue // a quick run
		}
		r := w.meet(builtin, 2*time.Second)
		r.Limited, r.Spare = spare%3, spare
		answers, result := w.ask("faults limit", r, 20*time.Second, nil)
		if err := result.Err(); err != nil {
			t.Fatalf("%d spare descriptors on rank %d: %v", spare, r.Limited, err)
		}
		alone := strings.HasPrefix(answers[r.Limited].Message, "rendezvous: ")
		for rank, a := range answers {
			if alone && rank != r.Limited && a.Code != plugin.Timeout {
				t.Errorf("%d spare descriptors on rank %d: rank %d has %s: %s", spare, r.Limited, rank, a.Code, a.Message)
			}
			if !alone && a.Code != answers[0].Code {
				t.Errorf("%d spare descriptors on rank %d: rank 0 has %s (%s), rank %d has %s (%s)",
					spare, r.Limited, answers[0].Code, answers[0].Message, rank, a.Code, a.Message)
			}
			if len(a.Leaks) > 0 {
				t.Errorf("%d spare descriptors on rank %d: rank %d still holds %v", spare, r.Limited, rank, a.Leaks)
			}
		}
		if answers[0].Code != plugin.OK {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no limit was low enough to fail")
	}
}

// flat fails when the second measurement of a soak exceeds the first.
func flat(t *testing.T, answers []*answer, growth int64) {
	t.Helper()
	for rank, a := range answers {
		t.Logf("rank %d: %d operations; %v, then %v", rank, a.Operations, a.Before, a.After)
		if more := a.After.Since(a.Before); len(more) > 0 {
			t.Errorf("rank %d holds more: %v", rank, more)
		}
		if grown := a.After.RSS - a.Before.RSS; grown > growth {
			t.Errorf("rank %d: resident memory grew by %d KiB", rank, grown>>10)
		}
		if a.After.Threads > a.Before.Threads+4 {
			t.Errorf("rank %d: %d threads, then %d", rank, a.Before.Threads, a.After.Threads)
		}
		if len(a.Leaks) > 0 {
			t.Errorf("rank %d still holds %v", rank, a.Leaks)
		}
	}
}

func TestSoakChangingSplits(t *testing.T) {
	w := newWorld(t, 4)
	r := w.meet(builtin, 30*time.Second)
	r.Rounds, r.Bytes = *calls, 64<<10
	flat(t, w.mustAsk("faults soak calls", r, time.Duration(*calls)*20*time.Millisecond+time.Minute), 1<<20)
}

func TestSoakCommunicators(t *testing.T) {
	w := newWorld(t, 3)
	r := w.meet(builtin, 30*time.Second)
	r.Rounds = *comms
	flat(t, w.mustAsk("faults soak communicators", r, time.Duration(*comms)*time.Second+time.Minute), 2<<20)
}

// Shared memory files do not come from /dev/shm, so containers with a tiny one
// work. The test gives a copy of itself one of a page, filled.
func TestFullDevShmDoesNotMatter(t *testing.T) {
	if os.Getenv("FAULTSTEST_TINY_SHM") != "" {
		if err := os.WriteFile("/dev/shm/fill", make([]byte, 64<<10), 0o600); err == nil {
			t.Fatal("/dev/shm is not full")
		}
		w := newWorld(t, 2)
		r := w.meet(builtin, 20*time.Second)
		r.Rounds, r.Bytes = 50, 1<<20
		w.mustAsk("faults soak calls", r, time.Minute)
		return
	}
	script := `mount -t tmpfs -o size=4k tmpfs /dev/shm && exec "$0" -test.run '^TestFullDevShmDoesNotMatter$' -test.v`
	probe := exec.Command("unshare", "-m", "true")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("no mount namespace may be made here (CAP_SYS_ADMIN): %v %s", err, out)
	}
	command := exec.Command("unshare", "-m", "sh", "-c", script, "/proc/self/exe")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command.Args[len(command.Args)-1] = exe
	command.Env = append(os.Environ(), "FAULTSTEST_TINY_SHM=1")
	out, err := command.CombinedOutput()
	if err != nil || !slices.Contains(strings.Fields(string(out)), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
