package executor

import (
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestARejectionReachesPeersWithWhatCameSince(t *testing.T) {
	w := newWorld(t, 2, 4096)
	owner, peer := w.engines[1], w.engines[0]
	if r := peer.PeerRejection(1); r.Valid {
		t.Fatalf("before any: %+v", r)
	}
	owner.RejectCall(7, "all_reduce: count -1 is negative")
	for since := range uint64(3) {
		if r := peer.PeerRejection(1); !r.Valid || r.Seq != 7 || r.Since != since ||
			r.Text != "all_reduce: count -1 is negative" {
			t.Fatalf("after %d operations: %+v", since, r)
		}
		owner.Record(since+7, since+7, uint32(plugin.Barrier), 0, 0, 0, 0)
		owner.Announce()
	}
	owner.RejectCall(0, "send: \x1b[2J\xff\nnull "+strings.Repeat("é", 400))
	r := peer.PeerRejection(1)
	if !strings.HasPrefix(r.Text, "send: ?[2J?null é") || len(r.Text) > maxRejection || r.Seq != 0 || r.Since != 0 {
		t.Errorf("%d bytes, %+v", len(r.Text), r)
	}
	if r := owner.PeerRejection(0); r.Valid {
		t.Errorf("of a rank that refused nothing: %+v", r)
	}
	for _, rank := range []int{-1, 2} {
		if r := owner.PeerRejection(rank); r.Valid {
			t.Errorf("of rank %d: %+v", rank, r)
		}
	}
	owner.Close()
	owner.RejectCall(8, "late") // harmless
	if r := owner.PeerRejection(1); r.Valid {
		t.Errorf("once closed: %+v", r)
	}
	if r := peer.PeerRejection(1); !r.Valid {
		t.Error("a page outlives its owner's engine, and what is in it")
	}
}

// Readers never see parts of two rejections.
func TestRejectionsAreReadWhole(t *testing.T) {
	w := newWorld(t, 2, 4096)
	texts := map[string]uint64{strings.Repeat("a", 200): 1, strings.Repeat("b", 100): 2}
	var done sync.WaitGroup
	stop := make(chan struct{})
	done.Go(func() {
		for {
			for text, seq := range texts {
				w.engines[1].RejectCall(seq, text)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	seen := map[uint64]bool{}
	for len(seen) < len(texts) {
		if r := w.engines[0].PeerRejection(1); r.Valid {
			if texts[r.Text] != r.Seq {
				t.Errorf("%+v", r)
				break
			}
			seen[r.Seq] = true
		}
	}
	close(stop)
	done.Wait()
}

// Whatever a peer writes, what is read is bounded, printable and read soon.
func FuzzPeerRejection(f *testing.F) {
	w := newWorld(f, 2, 4096)
	page := unsafe.Slice((*byte)(w.engines[0].controls[1].Base), ControlBytes)
	f.Add(append([]byte(nil), page...))
	w.engines[1].RejectCall(3, "broadcast: root 9")
	f.Add(append([]byte(nil), page...))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		clear(page)
		copy(page, bytes)
		if len(bytes) < 256 { // short inputs are of the rejection alone
			clear(page)
			copy(page[256:], bytes)
		}
		r := w.engines[0].PeerRejection(1)
		if len(r.Text) > maxRejection || !utf8.ValidString(r.Text) || (!r.Valid && r != Rejection{}) {
			t.Fatalf("%+v", r)
		}
		for _, c := range r.Text {
			if !unicode.IsPrint(c) {
				t.Fatalf("%q in %q", c, r.Text)
			}
		}
	})
}
