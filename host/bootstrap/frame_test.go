package bootstrap

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// tap keeps what goes over a connection.
type tap struct {
	net.Conn
	mu   *sync.Mutex
	seen *bytes.Buffer
}

func (c tap) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.seen.Write(b)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Whoever listens on the wire learns nothing of what ranks say to the store, nor
// that they say the same again.
func TestNothingIsReadableOnTheWire(t *testing.T) {
	dialing(t)
	s := joinAll(t, 2, nil)
	var seen bytes.Buffer
	var mu sync.Mutex
	link := s[1].link.Load()
	link.mu.Lock()
	link.Conn = tap{link.Conn, &mu, &seen}
	link.mu.Unlock()
	const text = "a word that is not for others"
	for round := range 2 {
		noErrors(t, each(2, func(rank int) error {
			_, err := s[rank].All().AllGather(t.Context(), fmt.Sprint("t", round), []byte(text))
			return err
		}))
	}
	mu.Lock()
	defer mu.Unlock()
	b := seen.Bytes()
	if len(b) < 2*len(text) || bytes.Contains(b, []byte(text[:8])) {
		t.Errorf("%d bytes, among them %q", len(b), text[:8])
	}
	for i := lengthBytes; i+16 < len(b); i++ {
		if bytes.Contains(b[i+16:], b[i:i+16]) {
			t.Fatalf("16 bytes at %d come twice", i)
		}
	}
}

// A rank makes the store keep so much and no more, and hears of it; what is
// complete does not count.
func TestRankCannotFillTheStore(t *testing.T) {
	s := joinAll(t, 2, nil)
	data := make([]byte, maxFrame/2-100)
	fits := maxHeld / len(data)
	errs := make(chan error, fits+1)
	for i := range fits + 1 {
		go func() {
			_, err := s[1].All().Broadcast(t.Context(), fmt.Sprint("t", i), 1, data)
			errs <- err
		}()
	}
	err := <-errs
	if plugin.CodeOf(err) != plugin.OutOfMemory || !strings.Contains(err.Error(), "rank 1 has") {
		t.Fatal(err)
	}
	failed := 0
	for i := range fits + 1 {
		if _, err := s[0].All().Broadcast(t.Context(), fmt.Sprint("t", i), 1, nil); err != nil {
			failed++
			if plugin.CodeOf(err) != plugin.OutOfMemory {
				t.Error(err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d broadcasts failed", failed)
	}
	for range fits {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i := range 2 * fits {
		noErrors(t, each(2, func(rank int) error {
			_, err := s[rank].All().Broadcast(t.Context(), fmt.Sprint("u", i), 1, data)
			return err
		}))
	}
}
