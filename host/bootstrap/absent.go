package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// NewLocalURL returns a meeting place for the ranks of one host, user and network
// namespace that no other process knows: an abstract socket with a key of its own.
func NewLocalURL() string {
	var name [8]byte
	rand.Read(name[:]) // never fails
	key := newNonce()
	return "unix://@shunt-run-" + hex.EncodeToString(name[:]) + "?key=" + hex.EncodeToString(key[:])
}

// Absent tells the ranks that wait at a meeting place that a rank will not join, and why. It is for launchers, which
// see a rank end. It returns when those ranks have the reason, or when ctx ends: ranks may start to wait at any time.
func Absent(ctx context.Context, url string, rank, world int, reason *plugin.Error) error {
	quiet := slog.New(slog.DiscardHandler)
	m, err := parseMeeting(url, "")
	if err != nil {
		return err
	}
	for wait := 10 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 500*time.Millisecond) {
		if rank == 0 && m.file == "" {
			// No other process listens there any more, and ranks still connect.
			places, err := listening(ctx, m.places)
			var root *Root
			if err == nil {
				root, err = newRoot(m.secret, m.name, places, quiet)
			}
			if err == nil {
				root.store.mu.Lock()
				root.store.world = world
				root.store.failJoin(reason)
				root.store.mu.Unlock()
				<-ctx.Done()
				root.store.stop()
				root.store.done.Wait()
				return nil
			}
		} else {
			j := &joiner{
				config: Config{Rank: rank, World: world, Timeout: time.Second, Heartbeat: DefaultHeartbeat,
					Silence: 10 * DefaultHeartbeat, Logger: quiet},
				meeting: m, self: Member{Rank: rank, Host: "launcher"}, unable: reason, restore: func() {},
			}
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			_, err := j.attempt(attempt)
			cancel()
			var told *plugin.Error
			if errors.As(err, &told) && told.Message == reason.Message {
				return nil
			}
		}
		pause(ctx, wait)
	}
	return nil
}

// ofLauncher reports whether a hello is of Absent. Its world is the launcher's, which may be larger than the job.
func ofLauncher(hello *message) bool { return hello.Err != nil && hello.Member.PID == 0 }
