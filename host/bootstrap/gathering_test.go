package bootstrap

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// arriving returns a rank of a world that is not complete, once the store has taken it
// in.
func arriving(t *testing.T, url string, ranks ...int) *company {
	t.Helper()
	c := &company{t: t}
	for _, rank := range ranks {
		c.ranks = append(c.ranks, start(t, "barrier", append(rankEnv(rank, 4, url), "SHUNT_TEST_HEARTBEAT=200ms",
			"SHUNT_TEST_ADMITTED=1")...))
	}
	for _, p := range c.ranks {
		p.expect("admitted")
	}
	return c
}

// Rank 0 dies, or hangs, while others are waited for: those that have joined report it, and not a rank 0 that has not
// started.
func TestStoreIsLostWhileOthersAreWaitedFor(t *testing.T) {
	for _, fault := range []struct {
		signal syscall.Signal
		within time.Duration
		why    string
	}{{syscall.SIGKILL, 2 * time.Second, "its process has ended"},
		{syscall.SIGSTOP, 4 * time.Second, "no sign of life for 2s"}} {
		for how, url := range meetingPlaces(t) {
			t.Run(fmt.Sprint(how, " ", fault.signal), func(t *testing.T) {
				c := arriving(t, url+fmt.Sprint(int(fault.signal)), 0, 1, 3)
				c.signal(fault.signal, 0)
				began := time.Now()
				for _, p := range c.ranks[1:] {
					line := p.line()
					if !strings.Contains(line, fmt.Sprintf("rank 0 (pid %d", c.ranks[0].cmd.Process.Pid)) ||
						!strings.Contains(line, fault.why) {
						t.Errorf("a survivor says %q", line)
					}
				}
				if took := time.Since(began); took > fault.within {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
}

// A rank that hangs while others are waited for is found too.
func TestRankHangsWhileOthersAreWaitedFor(t *testing.T) {
	t.Parallel()
	c := arriving(t, meetingPlaces(t)["unix"], 0, 1, 3)
	c.stop(1)
	for _, p := range []*process{c.ranks[0], c.ranks[2]} {
		if line := p.line(); !strings.Contains(line, "rank 1 (pid") || !strings.Contains(line, "no sign of life for 2s") {
			t.Errorf("a survivor says %q", line)
		}
	}
}

// A rank with another secret gets an error as soon as it meets the store, which still waits for the rank with the right
// one.
func TestWrongSecret(t *testing.T) {
	for name, url := range map[string]string{"unix": fmt.Sprintf("unix://@shunt-secret-%d", os.Getpid()),
		"tcp": fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t))} {
		t.Run(name, func(t *testing.T) {
			rank := func(rank int, secret string) Config {
				return Config{Rank: rank, World: 2, URL: url, Secret: secret, Timeout: time.Minute, Logger: quiet}
			}
			done := make(chan []error, 1)
			go func() { done <- joinErrors(t, rank(0, "right")) }()
			_, err := Join(t.Context(), rank(1, "wrong"))
			if plugin.CodeOf(err) != plugin.Mismatch || !strings.Contains(err.Error(),
				"another secret: SHUNT_SECRET or secret= is not the same on all ranks") {
				t.Error(err)
			}
			noErrors(t, joinErrors(t, rank(1, "right")))
			noErrors(t, <-done)
		})
	}
}
