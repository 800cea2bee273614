package bootstrap

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// claims sets the time that a complete job waits for other claims of its ranks.
func claims(t *testing.T, d time.Duration) {
	old := claimTime
	claimTime = d
	t.Cleanup(func() { claimTime = old })
}

// candidate is a rank on its way into a store, with the parent process that a test chooses.
type candidate struct {
	f     *frameConn
	reply *message // the last word: welcome or refuse
}

// parentOf returns a parent process of this system.
func parentOf(pid int) processID {
	return processID{boot: thisProcess().boot, pid: 1000 + pid, start: "1"}
}

// comes lets a rank of a world of two come to a store, and waits until the store has decided about it, or waits for
// others.
func comes(t *testing.T, r *Root, rank, pid int, parent processID, rival bool) *candidate {
	f, err := greet(r.store.connect(), r.store.secret, storeID{}, time.Now().Add(30*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	process := parentOf(pid)
	hello := message{Kind: msgHello, Member: Member{rank, pid, "host"}, World: 2, Left: time.Hour, Heartbeat: time.Second,
		Silence: time.Hour, Process: process, Parent: parent, Rival: rival}
	require.NoError(t, f.write(hello.frame()))
	c := &candidate{f: f}
	c.until(t, msgAdmit)
	return c
}

// until reads until a message of the kind, or the last word.
func (c *candidate) until(t *testing.T, kind msgKind) {
	for c.reply == nil {
		require.NoError(t, c.f.limitReads(30*time.Second))
		m, err := c.f.receive()
		require.NoError(t, err)
		if m.Kind == msgWelcome || m.Kind == msgRefuse {
			c.reply = m
		}
		if m.Kind == kind {
			return
		}
	}
}

// openRoot opens the store of a meeting place that names no job.
func openRoot(t *testing.T) *Root {
	r, err := newRoot(secret(newNonce()), storeID{1}, nil, quiet)
	require.NoError(t, err)
	r.store.mu.Lock()
	r.store.anyJob, r.store.parent = true, parentOf(1)
	r.store.mu.Unlock()
	t.Cleanup(func() {
		r.store.stop()
		r.store.done.Wait()
	})
	return r
}

// Ranks of two jobs that come to one store in any order never make a world together. Where each job's ranks have a
// parent process of their own the first job meets, unless the other's rank 0 finds one of its ranks there. With one
// parent for all, a rank of the other job that comes to it before its own cannot be told from them.
func TestTwoJobsNeverMix(t *testing.T) {
	claims(t, time.Hour)
	orders := [][]string{{"A1", "B0", "B1"}, {"A1", "B1", "B0"}, {"B0", "A1", "B1"}, {"B0", "B1", "A1"},
		{"B1", "A1", "B0"}, {"B1", "B0", "A1"}}
	for _, c := range []struct {
		name    string
		parents map[string]int
		meets   []bool // whether A does, in each of the orders
	}{
		{"siblings", map[string]int{"A0": 1, "A1": 1, "B0": 2, "B1": 2}, []bool{true, true, true, true, true, false}},
		{"by hand", map[string]int{"A0": 1, "A1": 2, "B0": 3, "B1": 4}, make([]bool, 6)},
		{"one parent", map[string]int{"A0": 1, "A1": 1, "B0": 1, "B1": 1}, []bool{true, true, false, false}},
		{"the other is by hand", map[string]int{"A0": 1, "A1": 1, "B0": 2, "B1": 3},
			[]bool{true, true, true, false, true, false}},
	} {
		for i, order := range orders[:len(c.meets)] {
			t.Run(c.name+" "+strings.Join(order, " "), func(t *testing.T) {
				r, came := openRoot(t), map[string]*candidate{}
				for pid, who := range append([]string{"A0"}, order...) {
					came[who] = comes(t, r, int(who[1]-'0'), pid, parentOf(c.parents[who]), who == "B0")
				}
				for who, of := range came {
					of.until(t, msgWelcome)
					if c.meets[i] && who[0] == 'A' {
						require.Equal(t, msgWelcome, of.reply.Kind, "%s: %v", who, of.reply.Err)
						continue
					}
					require.Equal(t, msgRefuse, of.reply.Kind, who)
					if !of.reply.Retry {
						require.ErrorContains(t, of.reply.Err, useTwoPlaces, who)
					}
				}
				require.False(t, came["B0"].reply.Retry)
			})
		}
	}
}

// A store that has met another job lingers although as many ranks have come as are in its world: they may be the
// other's. Ranks that contradict each other within one job are no other job.
func TestLingeringForRanksHiddenByAnotherJobs(t *testing.T) {
	for name, c := range map[string]struct {
		place storeID
		rival bool
		waits bool
	}{
		"two rank 0s of a file":            {storeID{}, true, true},
		"a rank twice, of a file or an id": {storeID{}, false, false},
		"a rank twice, of an address":      {storeID{1}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := openRoot(t)
			r.store.mu.Lock()
			r.store.name, r.store.anyJob = c.place, false
			r.store.mu.Unlock()
			comes(t, r, 0, 0, parentOf(1), false)
			comes(t, r, 0, 1, parentOf(1), c.rival)
			comes(t, r, 1, 2, parentOf(1), false)
			r.store.mu.Lock()
			require.Equal(t, failed, r.store.phase)
			r.store.arrived = r.store.world
			r.store.mu.Unlock()
			limit := 30 * time.Second
			if c.waits {
				limit = 50 * time.Millisecond
			}
			began := time.Now()
			r.store.linger(limit)
			require.Equal(t, c.waits, time.Since(began) >= limit)
		})
	}
}

// A world whose ranks may be of two jobs begins when nobody has claimed a rank for a while, and at once where it is
// certain.
func TestWorldsThatMayBeMixed(t *testing.T) {
	for name, c := range map[string]struct {
		parent  processID
		anyJob  bool
		certain bool
	}{
		"siblings":       {parentOf(1), true, true},
		"another parent": {parentOf(2), true, false},
		"another host":   {processID{boot: "another", pid: 7, start: "1"}, true, true},
		"a named job":    {parentOf(2), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			claims(t, time.Hour)
			r := openRoot(t)
			r.store.anyJob = c.anyJob
			first := comes(t, r, 0, 1, parentOf(1), false)
			if !c.certain {
				claims(t, time.Millisecond)
			}
			f, err := greet(r.store.connect(), r.store.secret, storeID{}, time.Now().Add(30*time.Second))
			require.NoError(t, err)
			defer f.Close()
			process := parentOf(2)
			process.boot = c.parent.boot
			require.NoError(t, f.write((&message{Kind: msgHello, Member: Member{1, 2, "host"}, World: 2, Left: time.Hour,
				Heartbeat: time.Second, Silence: time.Hour, Process: process, Parent: c.parent}).frame()))
			first.until(t, msgWelcome)
			require.Equal(t, msgWelcome, first.reply.Kind)
		})
	}
}

// A rank 0 may open its store beside one of its own program, or of a job that is ending.
func TestRankZeroBesideAnotherStore(t *testing.T) {
	timeout := rankError(plugin.Timeout, 1, "it has not come")
	for name, c := range map[string]struct {
		pid   int
		end   func(*Root)
		retry bool
	}{
		"of another job":                   {9, func(*Root) {}, false},
		"of the same program":              {2, func(*Root) {}, true},
		"of a job that is ending":          {9, func(r *Root) { r.closed = true }, true},
		"of a job that has failed to join": {9, func(r *Root) { r.store.phase, r.store.failure = failed, timeout }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := openRoot(t)
			comes(t, r, 0, 1, parentOf(1), false)
			comes(t, r, 1, 2, parentOf(1), false).until(t, msgWelcome)
			r.mu.Lock()
			r.store.mu.Lock()
			c.end(r)
			r.store.mu.Unlock()
			r.mu.Unlock()
			rival := comes(t, r, 0, c.pid, parentOf(3), true)
			require.Equal(t, msgRefuse, rival.reply.Kind)
			require.Equal(t, c.retry, rival.reply.Retry)
		})
	}
}

// masterEnv is the environment of a rank that torch's env:// would start.
func masterEnv(rank, port int) []string {
	return []string{fmt.Sprint("RANK=", rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port),
		"SHUNT_TIMEOUT=60s"}
}

// A second job at the MASTER_PORT of one that runs fails on all ranks at once, with an error that names both, and the
// first one goes on.
func TestASecondJobAtOneMasterPort(t *testing.T) {
	port := freePort(t)
	a := []*process{start(t, "wait", masterEnv(0, port)...), start(t, "wait", masterEnv(1, port)...)}
	for rank, p := range a {
		p.expect(fmt.Sprintf("joined %d 2", rank))
	}
	began := time.Now()
	first := 0
	for rank := range 2 { // the second one when the first has ended
		p := start(t, "wait", masterEnv(rank, port)...)
		if rank == 0 {
			first = p.cmd.Process.Pid
		}
		line := p.line()
		require.Contains(t, line, "error ")
		for _, want := range []string{useTwoPlaces, fmt.Sprintf("pid %d ", a[0].cmd.Process.Pid),
			fmt.Sprintf("pid %d ", first)} {
			require.Contains(t, line, want, "rank %d", rank)
		}
		_ = p.cmd.Wait()
	}
	require.Less(t, time.Since(began), 30*time.Second)
	for _, p := range a {
		p.stdin.Close()
	}
	for _, p := range a {
		p.expect("done")
	}
}

// A rank 0 that waits at a place fails together with another that comes, as nobody can tell their ranks apart.
func TestTwoRankZerosAtOneMasterPort(t *testing.T) {
	port := freePort(t)
	first := start(t, "wait", append(masterEnv(0, port), "SHUNT_TEST_ADMITTED=1")...)
	first.expect("admitted")
	for _, p := range []*process{start(t, "wait", masterEnv(0, port)...), first} {
		require.Contains(t, p.line(), useTwoPlaces)
	}
}

// Ranks that have different parents meet by a MASTER_PORT alone too, and again while the first communicator is open.
func TestMeetingTwiceAtOneMasterPort(t *testing.T) {
	claims(t, time.Millisecond)
	port := freePort(t)
	for _, v := range masterEnv(0, port) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	for _, v := range []string{"SHUNT_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "TORCHELASTIC_RUN_ID"} {
		t.Setenv(v, "")
	}
	for range 2 {
		p := start(t, "barrier", masterEnv(1, port)...)
		s, err := Join(t.Context(), Config{URL: "env", Logger: quiet})
		require.NoError(t, err)
		defer s.Close()
		p.expect("joined 1 2")
		require.NoError(t, s.All().Barrier(short(t, 30*time.Second), "b"))
		p.expect("done")
	}
}

// A second job with the file of one that waits is told apart from it: the first one fails too, or takes none of its
// ranks.
func TestASecondJobWithOneFile(t *testing.T) {
	url := "file://" + t.TempDir() + "/id"
	began := make(chan *Session, 1)
	errs := make(chan error, 1)
	came := make(chan bool, 1)
	old := admitted
	admitted = func() { came <- true }
	t.Cleanup(func() { admitted = old })
	go func() {
		s, err := Join(t.Context(), Config{Rank: 0, World: 2, URL: url, Timeout: time.Minute, Logger: quiet})
		began <- s
		errs <- err
	}()
	<-came
	require.Contains(t, start(t, "wait", rankEnv(0, 2, url)...).line(), "in use by a job whose rank 0 is process")
	require.Contains(t, start(t, "wait", rankEnv(1, 2, url)...).line(), useTwoPlaces) // has the parent of the other rank 0
	s, err := Join(t.Context(), Config{Rank: 1, World: 2, URL: url, Timeout: time.Minute, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, <-errs)
	sessions := []*Session{s, <-began}
	noErrors(t, each(2, func(i int) error { return sessions[i].Close() }))
}

// What listens at a place of rank 0 and says nothing delays it for a while only.
func TestSilentListenerBelowRankZero(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if port > 65000 {
		t.Fatalf("the system gave port %d", port)
	}
	p := []*process{start(t, "barrier", masterEnv(0, port-1)...), start(t, "barrier", masterEnv(1, port-1)...)}
	for rank := range p {
		p[rank].expect(fmt.Sprintf("joined %d 2", rank))
		p[rank].expect("done")
	}
}

// A store that has failed for two jobs stays for a while, to tell a rank 0 that is still to come.
func TestAFailedMeetingOfTwoJobsLingers(t *testing.T) {
	claims(t, time.Hour)
	r, all := openRoot(t), []*candidate(nil)
	for pid, rank := range []int{0, 1, 1} {
		all = append(all, comes(t, r, rank, pid, parentOf(1+pid), false))
	}
	for _, c := range all {
		c.until(t, msgWelcome)
		c.f.Close()
	}
	began := time.Now()
	require.NoError(t, r.Close())
	require.GreaterOrEqual(t, time.Since(began), lingerTimeFail)
}
