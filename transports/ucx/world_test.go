package ucx_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/ucx"
	"github.com/shunt-ccl/shunt/transports/ucx/ucxtest"
)

func TestMain(m *testing.M) {
	host.Register(ucx.Transport{})
	pool.Handle("body", runBody)
	pool.Main() // ranks are copies of this binary
	os.Exit(m.Run())
}

// Bodies of tests: what a rank does. Its error is the rank's reply.
var bodies = map[string]func(ctx context.Context, c *host.Communicator, arguments []string) error{}

// Options that the ranks of a body join with, where they are others than usual.
var adjust = map[string]func(o *host.Options){}

type request struct {
	Body, ID  string
	Arguments []string
}

type reply struct {
	Code plugin.Code
	Text string
	Took time.Duration // from its start to its error
}

// runBody runs a body on a rank, on a host of its own.
func runBody(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	var r request
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	if err := os.Setenv("SHUNT_HOST_ID", fmt.Sprint("host", w.Rank)); err != nil {
		return nil, err
	}
	if r.Body == "no library" && w.Rank == 1 {
		if err := os.Setenv(ucx.Variable, "/nowhere/libucp.so.0"); err != nil {
			return nil, err
		}
	}
	var a reply
	began := time.Now()
	o := host.Options{Rank: w.Rank, World: w.World, ID: r.ID, Timeout: 10 * time.Second}
	if change := adjust[r.Body]; change != nil {
		change(&o)
	}
	c, err := host.Init(ctx, o)
	if err != nil {
		return json.Marshal(reply{plugin.CodeOf(err), err.Error(), time.Since(began)})
	}
	began = time.Now()
	if err := bodies[r.Body](ctx, c, r.Arguments); err != nil {
		a = reply{plugin.CodeOf(err), err.Error(), time.Since(began)}
	}
	if err := c.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// newWorld starts ranks, each as on a host of its own; run has them do a body.
func newWorld(t *testing.T, n int, env ...string) (run func(body string, arguments ...string) []reply) {
	t.Helper()
	if reason := ucxtest.Missing(); reason != "" {
		t.Skip(reason)
	}
	p, err := pool.New(pool.Options{World: n, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	dir, number := t.TempDir(), 0
	return func(body string, arguments ...string) []reply {
		t.Helper()
		number++
		id := "file://" + filepath.Join(dir, fmt.Sprint("id", number))
		payload, err := json.Marshal(request{body, id, arguments})
		if err != nil {
			t.Fatal(err)
		}
		result, err := p.Run(t.Context(), pool.Case{Handler: "body", Payloads: [][]byte{payload}, Timeout: 40 * time.Second})
		if err == nil {
			err = result.Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		replies := make([]reply, n)
		for rank, o := range result.Outcomes {
			if err := json.Unmarshal(o.Payload, &replies[rank]); err != nil {
				t.Fatal(err)
			}
		}
		return replies
	}
}

// guarded is memory between bytes that must not change.
type guarded []byte

const guard = 4096

func newGuarded(bytes int) guarded {
	g := make(guarded, bytes+2*guard)
	for i := range g {
		g[i] = 0xA5
	}
	return g
}

func (g guarded) pointer() unsafe.Pointer { return unsafe.Pointer(&g[guard]) }

func (g guarded) intact() bool {
	for i := range guard {
		if g[i] != 0xA5 || g[len(g)-1-i] != 0xA5 {
			return false
		}
	}
	return true
}
