package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// joinErrors joins with each of the configs at once and closes what came of it.
func joinErrors(t *testing.T, configs ...Config) []error {
	t.Helper()
	sessions := make([]*Session, len(configs))
	errs := each(len(configs), func(i int) (err error) {
		c := configs[i]
		c.Logger = quiet
		sessions[i], err = Join(t.Context(), c)
		return err
	})
	each(len(configs), func(i int) error {
		if sessions[i] != nil {
			return sessions[i].Close()
		}
		return nil
	})
	return errs
}

func newID(t *testing.T) UniqueID {
	t.Helper()
	id, root, err := NewID("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return id
}

// freePort returns a TCP port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestJoinByEveryKindOfPlace(t *testing.T) {
	text := newID(t).String()
	places := map[string]string{
		"id":         text,
		"tcp":        fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t)),
		"tcp name":   fmt.Sprintf("tcp://localhost:%d?secret=x&job=y", freePort(t)),
		"tcp ports":  fmt.Sprintf("tcp://127.0.0.1:%d-%d", 41000, 41063),
		"unix":       fmt.Sprintf("unix://@shunt-test-%d", os.Getpid()),
		"file":       "file://" + t.TempDir() + "/id",
		"this alone": "",
	}
	for name, url := range places {
		for _, dial := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/dial=%v", name, dial), func(t *testing.T) {
				world := 3
				switch name {
				case "this alone":
					world = 1
				case "id":
					url = newID(t).String()
				}
				if dial {
					dialing(t)
				}
				for range 3 { // a place serves one job after another; an id only one
					noErrors(t, each(world, func(rank int) error {
						if rank == 0 { // the others come early
							runtimeYield()
						}
						s, err := Join(t.Context(), Config{Rank: rank, World: world, URL: url, Timeout: 10 * time.Second, Logger: quiet})
						if err != nil {
							return err
						}
						return errors.Join(s.All().Barrier(t.Context(), "b"), s.Close())
					}))
					if name == "id" {
						break
					}
				}
			})
		}
	}
}

func runtimeYield() {
	timer := time.NewTimer(5 * time.Millisecond)
	<-timer.C
}

func TestTwoJobsInOneRangeOfPorts(t *testing.T) {
	dialing(t)
	noErrors(t, each(6, func(i int) error {
		s, err := Join(t.Context(), Config{Rank: i / 2, World: 3, URL: fmt.Sprintf("tcp://127.0.0.1:42000-42007?job=%d", i%2),
			Timeout: 10 * time.Second, Logger: quiet})
		if err != nil {
			return err
		}
		all, err := s.All().AllGather(t.Context(), "job", []byte{byte(i % 2)})
		if err == nil && parts(all) != parts([][]byte{{byte(i % 2)}, {byte(i % 2)}, {byte(i % 2)}}) {
			err = fmt.Errorf("jobs %v met", all)
		}
		return errors.Join(err, s.Close())
	}))
}

func TestRanksThatDisagreeAboutTheWorld(t *testing.T) {
	id := newID(t)
	errs := joinErrors(t,
		Config{Rank: 0, World: 3, ID: id, HaveID: true, Timeout: 5 * time.Second},
		Config{Rank: 1, World: 3, ID: id, HaveID: true, Timeout: 5 * time.Second},
		Config{Rank: 2, World: 4, ID: id, HaveID: true, Timeout: 5 * time.Second})
	same(t, plugin.Mismatch, errs)
	if !strings.Contains(errs[0].Error(), "disagree about the world size") {
		t.Error(errs[0])
	}
}

func TestRankThatJoinsTwice(t *testing.T) {
	id := newID(t)
	c := Config{World: 3, ID: id, HaveID: true, Timeout: 5 * time.Second}
	d := c
	d.Rank = 1
	errs := joinErrors(t, c, d, d)
	same(t, plugin.Mismatch, errs)
	if !strings.Contains(errs[0].Error(), "rank 1 joined twice") {
		t.Error(errs[0])
	}
}

func TestMissingRanksAreNamed(t *testing.T) {
	id := newID(t)
	errs := joinErrors(t,
		Config{Rank: 0, World: 5, ID: id, HaveID: true, Timeout: 5 * time.Second},
		Config{Rank: 3, World: 5, ID: id, HaveID: true, Timeout: time.Second}) // the shortest timeout decides
	same(t, plugin.Timeout, errs)
	if !strings.Contains(errs[0].Error(), "3 of 5 ranks have not joined") ||
		!strings.Contains(errs[0].Error(), "ranks 1, 2, 4") {
		t.Error(errs[0])
	}
}

func TestNoStore(t *testing.T) {
	for _, url := range []string{fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t)), "unix://@shunt-nobody", "file://" +
		t.TempDir() + "/nothing"} {
		errs := joinErrors(t, Config{Rank: 1, World: 2, URL: url, Timeout: 50 * time.Millisecond})
		if plugin.CodeOf(errs[0]) != plugin.Timeout || !strings.Contains(errs[0].Error(),
			"rank 1 of 2 did not find the job's store") || !strings.Contains(errs[0].Error(), "last attempt") {
			t.Errorf("%s: %v", url, errs[0])
		}
	}
}

// Errors of several ports are one line, which says the same thing once.
func TestErrorsOfSeveralPorts(t *testing.T) {
	taken, ports := make([]net.Listener, 0, 3), 0
	for first := 20000; len(taken) < 3; first += 3 { // in a row
		for _, l := range taken {
			l.Close()
		}
		taken, ports = taken[:0], first
		for port := first; port < first+3; port++ {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				taken = append(taken, l)
			}
		}
	}
	for _, l := range taken {
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(conn, strings.Repeat("something else", 100))
				conn.Close()
			}
		}()
	}
	url := fmt.Sprintf("tcp://127.0.0.1:%d-%d", ports, ports+2)
	errs := joinErrors(t, Config{Rank: 1, World: 2, URL: url, Timeout: time.Second},
		Config{Rank: 0, World: 2, URL: url, Timeout: time.Second})
	for rank, want := range map[int]string{0: "(wrong magic)", 1: fmt.Sprintf(":%d: bind: ", ports+2)} {
		if text := errs[rank].Error(); strings.Count(text, want) > 1 || strings.Contains(text, "\n") {
			t.Errorf("%q", text)
		}
	}
}

func TestCancelledJoin(t *testing.T) {
	id := newID(t)
	ctx, cancel := context.WithCancel(t.Context())
	errs := each(2, func(rank int) error {
		if rank == 1 {
			runtimeYield()
			cancel()
			return nil
		}
		_, err := Join(ctx, Config{Rank: 0, World: 2, ID: id, HaveID: true, Logger: quiet})
		return err
	})
	if plugin.CodeOf(errs[0]) != plugin.Aborted {
		t.Error(errs[0])
	}
}

// That ranks did not meet is an error in the log, unless one of them meant to leave.
func TestARankThatStopsJoiningIsNoErrorInTheLog(t *testing.T) {
	for code, want := range map[plugin.Code]string{plugin.Aborted: "", plugin.Timeout: "joining failed"} {
		var log bytes.Buffer
		st := newStore(secret{3}, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		st.mu.Lock()
		st.failJoin(&plugin.Error{Code: code, Message: "rank 1 is not here"})
		st.mu.Unlock()
		if text := log.String(); !strings.Contains(text, want) || (want == "") != (text == "") {
			t.Errorf("%v: %q", code, text)
		}
	}
}

func TestRankThatDiesWhileOthersJoin(t *testing.T) {
	id := newID(t)
	p := start(t, "wait", rankEnv(1, 3, id.String())...)
	go func() {
		// It has connected once the store knows it.
		st := lookup(id.secret.id())
		for {
			st.mu.Lock()
			there := st.members != nil && st.members[1] != nil
			changed := st.changed
			st.mu.Unlock()
			if there {
				break
			}
			<-changed
		}
		_ = p.cmd.Process.Kill()
	}()
	errs := joinErrors(t, Config{Rank: 0, World: 3, ID: id, HaveID: true, Timeout: 10 * time.Second})
	if plugin.CodeOf(errs[0]) != plugin.PeerDied || !strings.Contains(errs[0].Error(),
		fmt.Sprintf("rank 1 (pid %d", p.cmd.Process.Pid)) {
		t.Error(errs[0])
	}
}

func TestLateRankIsToldNoByACompleteJob(t *testing.T) {
	id, root, err := NewID("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s, err := Join(t.Context(), Config{World: 1, ID: id, HaveID: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	errs := joinErrors(t, Config{Rank: 0, World: 1, ID: id, HaveID: true, Timeout: 5 * time.Second})
	if plugin.CodeOf(errs[0]) != plugin.Mismatch || !strings.Contains(errs[0].Error(), "whose 1 ranks are complete") {
		t.Error(errs[0])
	}
}

func TestInvalidConfigs(t *testing.T) {
	id := newID(t)
	for name, c := range map[string]Config{
		"rank":      {Rank: 2, World: 2, ID: id, HaveID: true},
		"negative":  {Rank: -1, World: 2, ID: id, HaveID: true},
		"world":     {World: plugin.MaxWorld + 1, ID: id, HaveID: true},
		"timeout":   {World: 1, Timeout: -1},
		"silence":   {World: 1, Heartbeat: time.Second, Silence: time.Second},
		"no id":     {World: 2, HaveID: true},
		"no place":  {World: 2},
		"scheme":    {World: 2, URL: "http://here"},
		"text":      {World: 2, URL: "somewhere"},
		"cut id":    {World: 2, URL: id.String()[:50]},
		"relative":  {World: 2, URL: "file://here"},
		"no port":   {World: 2, URL: "tcp://host"},
		"port":      {World: 2, URL: "tcp://host:70000"},
		"range":     {World: 2, URL: "tcp://host:10-5"},
		"wide":      {World: 2, URL: "tcp://host:1-1000"},
		"v6":        {World: 2, URL: "tcp://::1:5"},
		"path":      {World: 2, URL: "unix:///tmp/socket"},
		"parameter": {World: 2, URL: "tcp://host:5?port=3"},
		"long":      {World: 2, URL: "file:///" + strings.Repeat("x", maxURL)},
	} {
		c.Logger = quiet
		if _, err := Join(t.Context(), c); plugin.CodeOf(err) != plugin.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := NewID("256.0.0.1:0"); plugin.CodeOf(err) != plugin.System {
		t.Errorf("listening nowhere: %v", err)
	}
}

// Strangers that flood the store, send garbage or say nothing neither stop a
// job from joining nor stay.
func TestStrangers(t *testing.T) {
	dialing(t)
	id := newID(t)
	at := id.Addresses()[0].String()
	silent := make([]net.Conn, 0, mostUnverified()+50)
	defer func() {
		for _, c := range silent {
			c.Close()
		}
	}()
	for range cap(silent) {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	stop := make(chan struct{})
	var attack sync.WaitGroup
	for i := range 4 {
		attack.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", at)
				if err != nil {
					continue
				}
				b := encodeGreeting(id.secret.id(), storeID{}, nonce{})
				switch r.IntN(3) {
				case 0: // the right greeting, no proof
					_, _ = c.Write(b)
					_, _ = c.Write(make([]byte, proofBytes))
				case 1:
					b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
					_, _ = c.Write(b)
				case 2:
					_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: none of yours\r\n\r\n"))
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
		})
	}
	noErrors(t, each(3, func(rank int) error {
		s, err := Join(t.Context(), Config{Rank: rank, World: 3, ID: id, HaveID: true, Timeout: 10 * time.Second,
			Logger: quiet})
		if err != nil {
			return err
		}
		return errors.Join(s.All().Barrier(t.Context(), "b"), s.Close())
	}))
	close(stop)
	attack.Wait()
}

// A rank that is in may still send nonsense; it alone is the loser.
func TestMalformedMessageOfARank(t *testing.T) {
	for name, b := range map[string]frame{
		"unknown kind":    {kind: 99},
		"unknown group":   (&message{Kind: msgOp, Group: 7, Tag: "x"}).frame(),
		"for a rank":      (&message{Kind: msgResult, Tag: "x"}).frame(),
		"short":           {kind: msgOp, head: []byte{1}},
		"unknown root":    (&message{Kind: msgOp, Op: opRoot, Root: 2, Tag: "x"}).frame(),
		"unknown cancel":  (&message{Kind: msgCancel, Group: 7, Tag: "x", Err: rankError(plugin.Closed, 1, "closed")}).frame(),
		"group twice":     (&message{Kind: msgGroup, Ranks: []int{0, 1}}).frame(),
		"group of others": (&message{Kind: msgGroup, Group: 5, Key: "k", Ranks: []int{0}}).frame(),
	} {
		t.Run(name, func(t *testing.T) {
			s := joinAll(t, 2, nil)
			if err := s[1].link.Load().write(b); err != nil {
				t.Fatal(err)
			}
			err := s[0].All().Barrier(t.Context(), "b")
			if plugin.CodeOf(err) != plugin.PeerDied || !strings.Contains(err.Error(), "rank 1") ||
				!strings.Contains(err.Error(), "malformed") {
				t.Error(err)
			}
		})
	}
}

func TestTamperedFrame(t *testing.T) {
	dialing(t)
	s := joinAll(t, 2, nil)
	s[1].link.Load().mu.Lock()
	s[1].link.Load().sendSeq++ // as if a frame had been left out
	s[1].link.Load().mu.Unlock()
	errs := each(2, func(rank int) error { return s[rank].All().Barrier(t.Context(), "b") })
	if plugin.CodeOf(errs[0]) != plugin.PeerDied || !strings.Contains(errs[0].Error(), "not authentic") {
		t.Error(errs[0])
	}
}
