package badinput

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/tests/internal/job"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// Strangers talk to the job's store while the ranks join and run: noise,
// nothing at all, a length that promises gigabytes. No rank may notice.
func TestStrangersAtTheRendezvousAreIgnored(t *testing.T) {
	p := two(t)
	made := 0
	for made < 100 { // a job is short; the next one meets more of them
		made += pestered(t, p)
	}
}

// pestered runs one job among strangers and returns how many there were.
func pestered(t *testing.T, p *pool.Pool) (made int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil { // free for rank 0 to take
		t.Fatal(err)
	}
	payload, err := json.Marshal(request{Request: job.Request{Transport: "builtin:shm", ID: "tcp://" + address}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := p.Run(t.Context(), pool.Case{Handler: "badinput calls", Payloads: [][]byte{payload},
		Timeout: 60 * time.Second,
		During:  func(ctx context.Context, _ []int) { made = pester(ctx, address, 400) }})
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	for rank, o := range result.Outcomes {
		var verdicts []verdict
		if err := json.Unmarshal(o.Payload, &verdicts); err != nil {
			t.Fatal(err)
		}
		for _, v := range verdicts {
			if v.After != "" {
				t.Errorf("rank %d, after %s: %s", rank, v.Name, v.After)
			}
		}
	}
	return made
}

// pester makes connections until it has made enough or ctx ends, and returns
// how many it made. The store decides what becomes of them.
func pester(ctx context.Context, address string, times int) (made int) {
	random := rand.New(rand.NewPCG(1, 2))
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	dialer := net.Dialer{Timeout: time.Second}
	for made < times && ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			continue // rank 0 does not listen yet, or no longer
		}
		made++
		open = append(open, conn)
		switch made % 4 {
		case 0: // silence
		case 1:
			noise := make([]byte, 1+random.IntN(4096))
			for i := range noise {
				noise[i] = byte(random.Uint32())
			}
			_, _ = conn.Write(noise)
		case 2:
			_, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		case 3:
			_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", address)
			_ = conn.Close()
		}
	}
	return made
}
