package bootstrap

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A join that waits says what for, long before its deadline: the rank that runs the store which ranks are missing, and
// a rank that has not found it where it looks.
func TestJoiningSaysWhatItWaitsFor(t *testing.T) {
	before := patience
	patience = 20 * time.Millisecond
	t.Cleanup(func() { patience = before })
	for rank, want := range []string{`msg="rendezvous: ranks have not joined yet" missing="rank 1" world=2`,
		`msg="rendezvous: this rank has not found the job's store yet" rank=1 place=unix://@`} {
		read, write := io.Pipe()
		url := "unix://@" + strings.ReplaceAll(t.Name(), "/", "-") + string(rune('0'+rank))
		ended := make(chan error, 2)
		join := func(rank int, logger *slog.Logger) {
			s, err := Join(context.Background(),
				Config{Rank: rank, World: 2, URL: url, Timeout: 2 * time.Minute, Logger: logger})
			if err == nil {
				err = s.Close()
			}
			ended <- err
		}
		go func() {
			join(rank, slog.New(slog.NewTextHandler(write, &slog.HandlerOptions{Level: slog.LevelWarn})))
			write.Close()
		}()
		lines := bufio.NewScanner(read)
		for lines.Scan() && !strings.Contains(lines.Text(), want) {
		}
		if !strings.Contains(lines.Text(), want) {
			t.Fatalf("rank %d has not said %s", rank, want)
		}
		go func() { _, _ = io.Copy(io.Discard, read) }()
		go join(1-rank, quiet)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}

func TestWaitsAreRounded(t *testing.T) {
	for d, want := range map[time.Duration]string{
		999 * time.Millisecond: "1s", 5987 * time.Millisecond: "6s", 1234567 * time.Microsecond: "1.2s",
		123456 * time.Microsecond: "123ms",
	} {
		if got := spent(d).String(); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
