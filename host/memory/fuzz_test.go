package memory

import (
	"reflect"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

func FuzzAnnouncement(f *testing.F) {
	f.Add(announcement{Regions: []plugin.Region{{ID: 1, Role: plugin.RegionRoleScratch, Bytes: 64,
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: 7, Offset: 64, Bytes: 128,
			Data: []byte("abc")}}}}.encode())
	f.Add(announcement{Err: &plugin.Error{Code: plugin.System, Rank: 2, Message: "no"}}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeAnnouncement(b)
		if err != nil {
			return
		}
		for _, r := range o.Regions {
			if r.Handle.Kind != plugin.HandleKindNone && (r.Bytes < 0 || r.Handle.Offset < 0 ||
				r.Bytes > r.Handle.Bytes-r.Handle.Offset) {
				t.Fatalf("accepted %+v", r)
			}
		}
		again, err := decodeAnnouncement(o.encode())
		if err != nil || !reflect.DeepEqual(o, again) {
			t.Fatalf("%+v became %+v, %v", o, again, err)
		}
	})
}

func FuzzFetchMessages(f *testing.F) {
	nonce := make([]byte, fetchNonce)
	key := []byte("key")
	f.Add(encodeRequest(key, nonce, nonce, "tag"))
	f.Add(encodeReply(key, nonce, nonce, "tag", found, 3, ""))
	f.Add(encodeReply(key, nonce, nonce, "tag", failed, 9, "why"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, n, err := decodeRequest(b); err == nil && (n < 0 || n > maxFetchTag) {
			t.Fatalf("a tag of %d bytes", n)
		}
		head := b[:min(len(b), replyBytes)]
		text := string(b[len(head):])
		if n, err := textLength(head); err == nil && n == len(text) {
			result, count, err := decodeReply(head, text, key, nonce, nonce, "tag")
			if err == nil && string(encodeReply(key, nonce, nonce, "tag", result, count, text)) != string(b) {
				t.Fatal("accepted a reply that is not authentic")
			}
		}
		if _, err := decodePeers([][]byte{b}); err == nil && len(b) > 3*(2+maxHostID) {
			t.Fatalf("accepted %d bytes", len(b))
		}
	})
}
