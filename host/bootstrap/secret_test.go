package bootstrap

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A secret of few bits is not to be had from the store id at the speed of a hash,
// and there is a warning of it.
func TestWeakSecrets(t *testing.T) {
	weak, err := parseMeeting("tcp://10.0.0.1:1234", "summer")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	other, err := parseMeeting("tcp://10.0.0.1:1234", "winter")
	if err != nil || other.secret == weak.secret || other.name != weak.name {
		t.Errorf("%v, %v", other, err)
	}
	if guess := time.Since(began); guess < 5*time.Millisecond {
		t.Errorf("a guess costs %v", guess)
	}
	for text, strong := range map[string]bool{
		"": false, "summer": false, strings.Repeat("a", 64): false, "0123456789012345678901234567890": false,
		"8f14e45fceea167a5a36dedd4bea2543": true, "kX9vQ2mLr8TzWb4NcY7pHs": true,
	} {
		if (atMostBits(text) >= wantBits) != strong {
			t.Errorf("%q has %.0f bits", text, atMostBits(text))
		}
		var log bytes.Buffer
		c := Config{World: 1, URL: "unix://@x", Secret: text, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if err := c.complete(); err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(log.String(), "SHUNT_SECRET has"); warned != (text != "" && !strong) {
			t.Errorf("%q: %q", text, log.String())
		}
	}
}

// A job without a secret that listens on the network is warned of, by rank 0.
func TestJobsWithoutSecretAreWarnedOf(t *testing.T) {
	for url, want := range map[string]bool{
		"tcp://0.0.0.0:%d": true, "tcp://[::]:%d": true, "tcp://0.0.0.0:%d?job=a": true, "tcp://127.0.0.1:%d": false,
		"tcp://0.0.0.0:%d?secret=8f14e45fceea167a5a36dedd4bea2543": false, "unix://@open%d": false,
		"tcp://0.0.0.0:%d?key=8f14e45fceea167a5a36dedd4bea2543": false,
	} {
		var log bytes.Buffer
		s, err := Join(t.Context(), Config{World: 1, URL: fmt.Sprintf(url, freePort(t)),
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(url, err)
		}
		if warned := strings.Contains(log.String(), "set SHUNT_SECRET"); warned != want {
			t.Errorf("%s: %q", url, log.String())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever strangers do, the log grows by a line in ten seconds.
func TestWarningsOfStrangersAreThrottled(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	var w throttle
	for range 10000 {
		w.warn(logger, "dropped a connection")
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 {
		t.Errorf("%d lines", lines)
	}
	w.last = w.last.Add(-2 * quietFor)
	w.warn(logger, "dropped a connection")
	if !strings.Contains(log.String(), "suppressed=9999") {
		t.Error(log.String())
	}
}

// strangers is a listener that accepts some of them.
type strangers struct {
	net.Listener
	left   int
	accept func() (net.Conn, error)
}

func (s *strangers) Accept() (net.Conn, error) {
	if s.left--; s.left < 0 {
		return nil, net.ErrClosed
	}
	return s.accept()
}

// The listener writes one line about many strangers, whatever is wrong with them.
func TestListenerThrottlesWarnings(t *testing.T) {
	l, err := net.Listen("unix", "@")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	unknown, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	unknown.Close() // so its user cannot be found
	says := func(b []byte) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			here, stranger := net.Pipe()
			go func() {
				_, _ = stranger.Write(b)
				stranger.Close()
			}()
			return here, nil
		}
	}
	for name, accept := range map[string]func() (net.Conn, error){
		"of an unknown user": func() (net.Conn, error) { return unknown, nil },
		"half a greeting":    says(make([]byte, greetingBytes/2)),
		"no greeting":        says(make([]byte, greetingBytes)),
		"not accepted":       func() (net.Conn, error) { return nil, syscall.ECONNABORTED },
	} {
		var log bytes.Buffer
		h := &hub{listener: &strangers{l, 20, accept}, logger: slog.New(slog.NewTextHandler(&log, nil))}
		h.done.Add(1)
		go h.accept()
		h.done.Wait()
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%s: %d lines, want 1:\n%s", name, lines, log.String())
		}
	}
}
