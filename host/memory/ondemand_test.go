package memory

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// What a rank makes when it is asked for it is made for each request, and the rank that asked gets its failure.
func TestOnDemand(t *testing.T) {
	s := shares(t, 2)
	before := openFiles(t)
	var asked atomic.Int32
	s[1].OnDemand("pages", func() (int, error) {
		asked.Add(1)
		return unix.MemfdCreate("made", unix.MFD_CLOEXEC)
	})
	for i := range 3 {
		fds, err := s[0].Fetch(t.Context(), 1, "pages", 1)
		if err != nil || len(fds) != 1 || int(asked.Load()) != i+1 {
			t.Fatal(fds, err, asked.Load())
		}
		closeAll(fds)
	}
	for _, c := range []struct {
		made, want error
	}{
		{plugin.Errorf(plugin.OutOfMemory, "the GPU is full"), plugin.OutOfMemory},
		{plugin.Errorf(plugin.Closed, "it is closed"), plugin.Closed},
		{errors.New("no reason"), plugin.Internal},
		{unix.EMFILE, plugin.OutOfMemory}, // in another way: that process has no descriptors
	} {
		s[1].OnDemand("broken", func() (int, error) { return -1, c.made })
		if _, err := s[0].Fetch(t.Context(), 1, "broken", 1); !errors.Is(err, c.want) {
			t.Errorf("%v became %v, want %v", c.made, err, c.want)
		} else if c.made != unix.EMFILE && !strings.Contains(err.Error(), c.made.Error()) {
			t.Errorf("%v became %v, which does not say why", c.made, err)
		}
	}
	if _, err := s[0].Fetch(t.Context(), 1, "nothing", 1); !errors.Is(err, plugin.Protocol) {
		t.Error(err)
	}
	leaveNothing(t, before, s)
}

// A fetch that ends without a reply says whether the peer's server was there to be asked.
func TestFetchThatIsLate(t *testing.T) {
	s := shares(t, 2)
	made := make(chan struct{})
	s[1].OnDemand("pages", func() (int, error) {
		<-made
		return unix.MemfdCreate("made", unix.MFD_CLOEXEC)
	})
	fetch := func(asked bool) {
		t.Helper()
		words := plugin.Errorf(plugin.Timeout, "the ranks did not agree")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, words)
		defer cancel()
		_, err := s[0].Fetch(ctx, 1, "pages", 1)
		var late *LateError
		if !errors.As(err, &late) || late.Asked != asked || !errors.Is(err, words) {
			t.Errorf("%v, want %v, asked %v", err, words, asked)
		}
	}
	fetch(true)
	close(made)
	for range maxServed {
		s[1].slots <- struct{}{}
	}
	fetch(false)
	for range maxServed {
		<-s[1].slots
	}
}

// A rank whose calls may take no time makes what others ask for all the same: they would count it as dead, and store
// what is meant for it where nobody looks.
func TestMakingTakesLongerThanTheTimeout(t *testing.T) {
	s := shares(t, 2)
	s[1].group.SetTimeout(10 * time.Millisecond)
	s[1].OnDemand("pages", func() (int, error) {
		time.Sleep(100 * time.Millisecond)
		return unix.MemfdCreate("made", unix.MFD_CLOEXEC)
	})
	fds, err := s[0].Fetch(t.Context(), 1, "pages", 1)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(fds)
}

// A server that is closed is gone for its peers also where a process that was forked before has a copy of its socket.
func TestAForkedProcessKeepsNoServer(t *testing.T) {
	s := shares(t, 2)
	inherited, err := s[1].listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	if err := s[1].Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := s[0].Fetch(ctx, 1, "pages", 1); plugin.CodeOf(err) != plugin.PeerDied {
		t.Errorf("%v, want that the server is gone", err)
	}
}
