package bootstrap

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// The error of a rank that a store has turned away says so, though that store has ended since.
func TestRankThatWasTurnedAway(t *testing.T) {
	dialing(t)
	arrived := make(chan bool, 99)
	logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) {
		if strings.Contains(string(b), "rank arrived") {
			arrived <- true
		}
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := Config{World: 2, URL: fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t)), Timeout: time.Minute, Logger: logger}
	sessions := make([]*Session, 2)
	noErrors(t, each(2, func(rank int) (err error) {
		c := c
		c.Rank = rank
		sessions[rank], err = Join(t.Context(), c)
		return err
	}))
	<-arrived
	<-arrived
	late := make(chan error, 1)
	go func() {
		c := c
		c.Rank, c.Timeout, c.Logger = 1, 3*time.Second, quiet
		_, err := Join(t.Context(), c)
		late <- err
	}()
	<-arrived
	<-arrived // the second time, it has had the first reply
	noErrors(t, each(2, func(rank int) error { return sessions[rank].Close() }))
	err := <-late
	require.Equal(t, plugin.Timeout, plugin.CodeOf(err))
	require.ErrorContains(t, err, "came to a job whose 2 ranks are complete")
}
