package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// defaultComms is the number of communicators of a soak unless a flag says otherwise.
const defaultComms = 30

var (
	loops = flag.Int("faults.loops", defaultLoops,
		"how often each process is killed; from 10 on, other faults are tried at every place too")
	calls      = flag.Int("faults.calls", 2000, "all_to_all_v calls of the soak test")
	comms      = flag.Int("faults.communicators", defaultComms, "communicators made and closed by the soak test")
	cudaPlugin = flag.String("faults.cudaipc", "", "binary of the cudaipc transport's process; built where it is needed and Go is there")
	seed       = flag.Uint64("faults.seed", uint64(time.Now().UnixNano()), "decides the moments of faults")
)

func TestMain(m *testing.M) {
	host.Register(shm.Transport{})
	machine.Register()
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
	// soon is the time within which every survivor must return an error that names the cause.
	soon = 2 * time.Second
)

var built string // directory of what build built

// build builds a main package, once.
func build(name, main string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		if _, err := exec.LookPath("go"); err != nil {
			return "", err
		}
		if built == "" {
			dir, err := os.MkdirTemp("", "faults-")
			if err != nil {
				return "", err
			}
			built = dir
		}
		path := filepath.Join(built, name)
		out, err := builttest.Command("go", "build", "-o", path, "github.com/shunt-ccl/shunt/"+main).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return path, nil
	})
}

var (
	buildShm     = build("shunt-transport-shm", "transports/shm/process")
	buildCudaipc = build("shunt-transport-cudaipc", "tests/internal/device/machine/process")
)

func processTransport(t *testing.T) (spec, path string) {
	t.Helper()
	return carried(t, buildShm)
}

// carried returns the spec of a plugin that is built now.
func carried(t *testing.T, build func() (string, error)) (spec, path string) {
	t.Helper()
	path, err := build()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no Go toolchain to build the plugin with: the command go is not installed")
	}
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

func newWorld(t *testing.T, size int) *world { return newWorldIn(t, size) }

// newWorldIn returns a world whose ranks see these variables too.
func newWorldIn(t *testing.T, size int, env ...string) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "f") //nolint:usetesting // short: paths of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	p, err := pool.New(pool.Options{World: size, KeepAfterDeath: true, Env: append(env, "TMPDIR="+dir)})
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

// meet returns a request with a rendezvous that has not been used.
func (w *world) meet(transport string, timeout time.Duration) request {
	w.joins++
	return request{
		Request: job.Request{Transport: transport, Timeout: timeout, ID: "file://" +
			filepath.Join(w.meets, fmt.Sprintf("meet-%d", w.joins))},
		Absent: -1, Limited: -1, Late: -1, Bytes: 1 << 20,
	}
}

// place is a transport and a kind of memory on which a fault is tried.
type place struct {
	transport string
	memory    plugin.MemoryKind
}

var onHost = place{transport: builtin}

func (p place) meet(w *world, timeout time.Duration) request {
	r := w.meet(p.transport, timeout)
	r.Memory = p.memory
	return r
}

// ask sends one request to every rank. A rank that died has no reply.
func (w *world) ask(handler string, r request, timeout time.Duration,
	during func(ctx context.Context, pids []int)) ([]*reply, *pool.Result) {
	w.t.Helper()
	result := w.raw(handler, r, timeout, during)
	replies := make([]*reply, len(result.Outcomes))
	for rank, o := range result.Outcomes {
		if o.Error != "" || o.Payload == nil {
			continue
		}
		replies[rank] = &reply{}
		if err := json.Unmarshal(o.Payload, replies[rank]); err != nil {
			w.t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return replies, result
}

// raw sends one request to every rank and leaves the replies to the caller. The
// request may be of a type that holds one.
func (w *world) raw(handler string, r any, timeout time.Duration,
	during func(ctx context.Context, pids []int)) *pool.Result {
	w.t.Helper()
	payload, err := json.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	result, err := w.pool.Run(context.Background(), pool.Case{Handler: handler, Payloads: [][]byte{payload},
		Timeout: timeout, During: during})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// mustAsk is ask where every rank must reply without an error.
func (w *world) mustAsk(handler string, r request, timeout time.Duration) []*reply {
	w.t.Helper()
	replies, result := w.ask(handler, r, timeout, nil)
	if err := result.Err(); err != nil {
		w.t.Fatal(err)
	}
	for rank, a := range replies {
		if a.Code != plugin.OK {
			w.t.Fatalf("rank %d: %s: %s", rank, a.Code, a.Message)
		}
	}
	return replies
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

// judge checks what the survivors of a fault returned.
func judge(t *testing.T, replies []*reply, result *pool.Result, dead int, code plugin.Code, mentions []string,
	since time.Time) {
	t.Helper()
	for rank, a := range replies {
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
func closing(t *testing.T, rank int, a *reply) {
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
