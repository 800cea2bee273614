package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// withProcess joins ranks 0 and 2 here, with rank 1 in a process of its own.
func withProcess(t *testing.T, what string, heartbeat time.Duration) ([]*Session, *process) {
	t.Helper()
	id, root, err := NewID("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	p := start(t, what, append(rankEnv(1, 3, id.String()), "SHUNT_TEST_HEARTBEAT="+heartbeat.String())...)
	sessions := make([]*Session, 3)
	noErrors(t, each(2, func(i int) (err error) {
		c := Config{Rank: 2 * i, World: 3, ID: id, HaveID: true, Timeout: 20 * time.Second, Heartbeat: heartbeat,
			Logger: quiet}
		sessions[2*i], err = Join(t.Context(), c)
		return err
	}))
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { each(2, func(i int) error { return sessions[2*i].Close() }) })
	p.expect("joined 1 3")
	return sessions, p
}

// promptly bounds the time until a death is known that silence alone would reveal
// after ten seconds. On an idle machine it takes milliseconds.
const promptly = 2 * time.Second

// checkDeath checks that ranks 0 and 2 learn within limit that rank 1 died, in
// a collective and as a failure, and then agree on who is left.
func checkDeath(t *testing.T, s []*Session, pid int, limit time.Duration, strike func()) {
	t.Helper()
	errs := make([]error, 2)
	began := make([]time.Duration, 2)
	struck := time.Now()
	strike()
	each(2, func(i int) error {
		errs[i] = s[2*i].All().Barrier(t.Context(), "b")
		began[i] = time.Since(struck)
		return nil
	})
	t.Logf("noticed after %v and %v", began[0], began[1])
	same(t, plugin.PeerDied, errs)
	want := fmt.Sprintf("rank 1 (pid %d on host", pid)
	for i := range 2 {
		if errs[i] != nil && !strings.Contains(errs[i].Error(), want) {
			t.Errorf("rank %d: %v", 2*i, errs[i])
		}
		if began[i] > limit {
			t.Errorf("rank %d noticed after %v, limit %v", 2*i, began[i], limit)
		}
		if got := s[2*i].State(1); got != Dead {
			t.Errorf("rank %d: state %v", 2*i, got)
		}
		f := <-s[2*i].Failures()
		if f.Rank != 1 || f.PID != pid || f.Group != "" || f.Err.Code != plugin.PeerDied {
			t.Errorf("rank %d: %+v", 2*i, f)
		}
	}
	noErrors(t, each(2, func(i int) error {
		ranks, err := s[2*i].All().Survivors(t.Context(), "s")
		if err != nil || fmt.Sprint(ranks) != "[0 2]" {
			return fmt.Errorf("survivors %v, %w", ranks, err)
		}
		g, err := s[2*i].Group("after", []int{0, 2})
		if err != nil {
			return err
		}
		return g.Barrier(t.Context(), "b")
	}))
	if _, err := s[0].Group("with the dead", []int{0, 1}); err != nil {
		t.Error(err)
	}
}

func TestKilledRank(t *testing.T) {
	s, p := withProcess(t, "wait", 0)
	checkDeath(t, s, p.cmd.Process.Pid, promptly, func() {
		if err := p.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
	g, err := s[0].Group("late", []int{0, 1, 2}) // after the death
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Barrier(t.Context(), "b"); plugin.CodeOf(err) != plugin.PeerDied {
		t.Errorf("a new group with a dead rank: %v", err)
	}
}

func TestRankThatExitsWithoutGoodbye(t *testing.T) {
	s, p := withProcess(t, "leave", 0)
	checkDeath(t, s, p.cmd.Process.Pid, promptly, func() {})
}

// A forked child of the dead rank keeps its socket open, so the connection
// alone would not tell.
func TestKilledRankWhoseChildLivesOn(t *testing.T) {
	s, p := withProcess(t, "inherit", 0)
	word, number, _ := strings.Cut(p.line(), " ")
	child, err := strconv.Atoi(number)
	if word != "child" || err != nil {
		t.Fatal(word, number)
	}
	defer func() {
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}()
	checkDeath(t, s, p.cmd.Process.Pid, promptly, func() {
		if err := p.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
}

func TestSilentRank(t *testing.T) {
	const heartbeat = 200 * time.Millisecond
	s, p := withProcess(t, "wait", heartbeat)
	checkDeath(t, s, p.cmd.Process.Pid, 20*heartbeat, func() {
		if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
	})
}

func TestQuietSessionStaysAlive(t *testing.T) {
	const heartbeat = 200 * time.Millisecond
	s, p := withProcess(t, "wait", heartbeat) // those of one process are never silent
	select {
	case f := <-s[0].Failures():
		t.Errorf("%+v", f)
	case <-time.After(20 * heartbeat): // twice the silence that means death
	}
	if got := s[2].State(1); got != Alive {
		t.Errorf("state %v", got)
	}
	_ = p.cmd.Process.Kill() // or the store waits for it to leave
}

func TestKilledStore(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + dir + "/id"
	p := start(t, "wait", rankEnv(0, 3, url)...)
	sessions := make([]*Session, 3)
	noErrors(t, each(2, func(i int) (err error) {
		sessions[i+1], err = Join(t.Context(), Config{Rank: i + 1, World: 3, URL: url, Timeout: 20 * time.Second,
			Logger: quiet})
		return err
	}))
	if t.Failed() {
		t.FailNow()
	}
	p.expect("joined 0 3")
	waiting := make([]error, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		each(2, func(i int) error { waiting[i] = sessions[i+1].All().Barrier(t.Context(), "b"); return nil })
	}()
	struck := time.Now()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	t.Logf("noticed after %v", time.Since(struck))
	if since := time.Since(struck); since > promptly {
		t.Errorf("noticed after %v", since)
	}
	for i, err := range waiting {
		if plugin.CodeOf(err) != plugin.PeerDied || !strings.Contains(err.Error(),
			fmt.Sprintf("rank 0 (pid %d on host", p.cmd.Process.Pid)) {
			t.Errorf("rank %d: %v", i+1, err)
		}
		f := <-sessions[i+1].Failures()
		if f.Rank != 0 || f.PID != p.cmd.Process.Pid || f.Err.Code != plugin.PeerDied || sessions[i+1].State(0) != Dead {
			t.Errorf("rank %d: %+v", i+1, f)
		}
		began := time.Now()
		if err := sessions[i+1].Close(); err != nil || time.Since(began) > promptly {
			t.Errorf("close: %v after %v", err, time.Since(began))
		}
	}
	// The dead job's file is no obstacle to the next one.
	_ = p.cmd.Wait()
	if _, err := os.Stat(dir + "/id"); err != nil {
		t.Fatalf("the file of a killed job: %v", err)
	}
	noErrors(t, each(2, func(rank int) error {
		s, err := Join(t.Context(), Config{Rank: rank, World: 2, URL: url, Timeout: 20 * time.Second, Logger: quiet})
		if err != nil {
			return err
		}
		return s.Close()
	}))
	if _, err := os.Stat(dir + "/id"); !os.IsNotExist(err) {
		t.Errorf("the file of a job that has ended: %v", err)
	}
}

// Ranks that end at different times see no false death, though rank 0, whose
// process runs the store, is the first to close.
func TestLateGoodbye(t *testing.T) {
	s, p := withProcess(t, "barrier", 0)
	noErrors(t, each(2, func(i int) error {
		if err := s[2*i].All().Barrier(t.Context(), "b"); err != nil {
			return err
		}
		return s[2*i].Close()
	}))
	p.expect("done")
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSurvivorsWhileMoreDie(t *testing.T) {
	s, p := withProcess(t, "wait", 0)
	result := make(chan error, 2)
	for _, rank := range []int{0, 2} {
		go func() {
			ranks, err := s[rank].All().Survivors(t.Context(), "s")
			if err == nil && fmt.Sprint(ranks) != "[0 2]" {
				err = fmt.Errorf("survivors %v", ranks)
			}
			result <- err
		}()
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	noErrors(t, []error{<-result, <-result})
}

func TestWhileAlive(t *testing.T) {
	s, p := withProcess(t, "wait", 0)
	ctx, cancel := s[0].All().WhileAlive(t.Context())
	defer cancel()
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); plugin.CodeOf(cause) != plugin.PeerDied || !strings.Contains(cause.Error(), "rank 1") {
		t.Error(cause)
	}
	for range 100 { // a rank that is known to be dead is asked for nothing
		late, cancel := s[0].All().WhileMemberRuns(t.Context(), 1)
		if late.Err() == nil {
			t.Error("the context has not ended")
		}
		cancel()
	}
}

// stuck is a log handler that blocks until it is closed.
type stuck chan struct{}

func (s stuck) Enabled(context.Context, slog.Level) bool { return true }

func (s stuck) Handle(context.Context, slog.Record) error {
	<-s
	return nil
}

func (s stuck) WithAttrs([]slog.Attr) slog.Handler { return s }

func (s stuck) WithGroup(string) slog.Handler { return s }

// The program's default log handler may block: the store logs a rank's death and tells it all the same.
func TestDeathIsToldWhileTheLogHandlerBlocks(t *testing.T) {
	before, h := slog.Default(), make(stuck)
	slog.SetDefault(slog.New(h))
	defer func() {
		close(h)
		slog.SetDefault(before)
		log.SetOutput(os.Stderr) // what SetDefault has changed too
		log.SetFlags(log.LstdFlags)
	}()
	s, p := withProcess(t, "wait", 0)
	checkDeath(t, s, p.cmd.Process.Pid, promptly, func() {
		if err := p.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
	})
}

// A program that ends as soon as it learns of a death may end the store with it: the others have learned of the death
// by then, and not only of that end.
func TestDeathIsToldToOthersFirst(t *testing.T) {
	url := fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t))
	var ranks []*process
	for rank, what := range []string{"failure", "failure", "wait"} {
		ranks = append(ranks, start(t, what, append(rankEnv(rank, 3, url), "SHUNT_FAILPOINTS=rendezvous.tell[0]=delay(50ms)")...))
	}
	for rank, p := range ranks {
		p.expect(fmt.Sprintf("joined %d 3", rank))
	}
	if err := ranks[2].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for rank, p := range ranks[:2] {
		if line := p.line(); !strings.HasPrefix(line, "failure 2 ") {
			t.Errorf("rank %d says %q", rank, line)
		}
	}
}

// A rank that reads nothing delays the messages to ranks of the store's process once, and not each of them.
func TestRankThatTakesNothingHoldsUpOnce(t *testing.T) {
	st := &store{}
	near, far := net.Pipe()
	conn := newFrameConn(near, bufio.NewReader(near), secret{}, nonce{}, nonce{})
	conn.sends = conn.toClient
	own, stuck := newMember(st, conn, &message{}, true), newMember(st, nil, &message{}, false)
	st.done.Add(1)
	go own.writer()
	began := time.Now()
	for range 50 {
		tellAll(frame{kind: msgEvent}, []*member{stuck, own})
	}
	f := newFrameConn(far, bufio.NewReader(far), secret{}, nonce{}, nonce{})
	f.receives = f.toClient
	for range 50 {
		if _, _, err := f.read(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < ownLast || took > 20*ownLast {
		t.Errorf("it took %v", took)
	}
	own.finish()
	close(own.read)
	st.done.Wait()
}

// The end of a rank is told with its number in the group, as the group's own errors are, whatever waited for it.
func TestEndsAreNumberedAsTheGroups(t *testing.T) {
	t.Parallel()
	s, others := someElsewhere(t, 4, 200*time.Millisecond, 2)
	of := func(code plugin.Code, what string, err error, want int, text string) {
		t.Helper()
		wants(t, 3, err, code, text)
		if e, ok := errors.AsType[*plugin.Error](err); !ok || e.Rank != want {
			t.Errorf("%s: %+v, want rank %d", what, err, want)
		}
	}
	place := func(what string, err error, want int, text string) {
		t.Helper()
		of(plugin.PeerDied, what, err, want, text)
	}
	g, err := s[3].Group("before", []int{2, 1, 3})
	require.NoError(t, err)
	alive, err := s[3].Group("alive", []int{1, 3})
	require.NoError(t, err)
	_, err = s[1].Group("before", []int{2, 1, 3})
	require.NoError(t, err)
	ctx, cancel := g.WhileAlive(t.Context())
	defer cancel()
	waits := make(chan error, 1)
	go func() { waits <- g.Barrier(t.Context(), "wait") }()
	others.kill(0)
	place("a group that waits", <-waits, 0, `rank 0 of group "before" is gone: rank 2 (pid `)
	<-ctx.Done()
	place("a context", context.Cause(ctx), 0, `rank 0 of group "before" is gone: rank 2 (pid `)
	for _, ranks := range [][]int{{2, 3, 1}, {3, 2}, {3, 1, 0, 2}} {
		later, err := s[3].Group(fmt.Sprint("after, ", ranks), ranks)
		require.NoError(t, err)
		at := slices.Index(ranks, 2)
		place("a new group", later.Barrier(t.Context(), "meet"), at, fmt.Sprintf("rank %d of group %q is gone: rank 2 (pid ",
			at, fmt.Sprint("after, ", ranks)))
	}
	lives, end := alive.WhileAlive(t.Context())
	defer end()
	awaits := make(chan error, 1)
	go func() { awaits <- alive.Barrier(t.Context(), "wait") }()
	for s[3].waiting() == 0 {
		runtime.Gosched()
	}
	require.NoError(t, s[3].Close())
	<-lives.Done()
	_, none := s[3].Group("closed", []int{1, 3})
	for what, err := range map[string]error{"a wait": <-awaits, "a call": alive.Barrier(t.Context(), "late"),
		"a context": context.Cause(lives), "a new group": none} {
		of(plugin.Closed, what, err, 1, "the session of rank 3 is closed")
	}
}
