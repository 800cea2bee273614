package bootstrap

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

func sampleID() UniqueID {
	id := UniqueID{}
	copy(id.secret[:], "sixteen bytes ok")
	for i, a := range []string{"127.0.0.1:1", "10.1.2.3:65535", "[2001:db8::1]:443", "[::1]:2", "[fe80::1]:9"} {
		id.addresses[i] = netip.MustParseAddrPort(a)
	}
	return id
}

func TestUniqueID(t *testing.T) {
	for _, id := range []UniqueID{sampleID(), newID(t)} {
		b := id.Bytes()
		back, err := FromBytes(b[:])
		if err != nil || back != id {
			t.Errorf("%v by bytes: %v, %v", id, back, err)
		}
		text := id.String()
		back, err = ParseID(" " + strings.ToUpper(text) + "\n")
		if err != nil || back != id {
			t.Errorf("%v by text: %v, %v", id, back, err)
		}
		for i := len(idPrefix); i < len(text); i++ { // no single mistake goes unnoticed
			wrong := []byte(text)
			if wrong[i] = 'a'; text[i] == 'a' {
				wrong[i] = 'b'
			}
			if got, err := ParseID(string(wrong)); plugin.CodeOf(err) != plugin.InvalidArgument {
				t.Errorf("%s with another letter %d: %v, %v", text, i, got, err)
			}
			if _, err := ParseID(text[:i]); plugin.CodeOf(err) != plugin.InvalidArgument {
				t.Errorf("%s cut at %d: %v", text, i, err)
			}
		}
		b[IDBytes-1] = 1
		if _, err := FromBytes(b[:]); len(id.body()) < IDBytes && plugin.CodeOf(err) != plugin.InvalidArgument {
			t.Errorf("bytes behind the end: %v", err)
		}
		if _, err := FromBytes(b[:IDBytes-1]); plugin.CodeOf(err) != plugin.InvalidArgument {
			t.Errorf("too few bytes: %v", err)
		}
	}
	if n := len(sampleID().body()); n > IDBytes {
		t.Errorf("the largest id takes %d bytes", n)
	}
	a, b := newID(t), newID(t)
	if a.secret == b.secret || a.IsZero() || !(UniqueID{}).IsZero() {
		t.Error("ids are alike or empty")
	}
	if _, err := FromBytes(make([]byte, IDBytes)); plugin.CodeOf(err) != plugin.InvalidArgument {
		t.Errorf("zeros: %v", err)
	}
}

func TestIDOnEveryInterface(t *testing.T) {
	id, root, err := NewID("")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if a := id.Addresses(); len(a) == 0 || a[0].Addr() != netip.MustParseAddr("127.0.0.1") || a[0].Port() == 0 {
		t.Errorf("addresses %v", a)
	}
}

func FuzzParseID(f *testing.F) {
	f.Add(sampleID().String())
	f.Add(idPrefix)
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseID(text)
		if err != nil {
			return
		}
		if again, err := ParseID(id.String()); err != nil || again != id {
			t.Fatalf("%q became %v, %v", text, again, err)
		}
		b := id.Bytes()
		if again, err := FromBytes(b[:]); err != nil || again != id {
			t.Fatalf("%q became %v, %v", text, again, err)
		}
	})
}

func FuzzIDBytes(f *testing.F) {
	b := sampleID().Bytes()
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := FromBytes(b)
		if err != nil {
			return
		}
		if again := id.Bytes(); !bytes.Equal(again[:], b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}

func FuzzMeeting(f *testing.F) {
	for _, s := range []string{sampleID().String(), "tcp://[::1]:10-20?secret=a&job=b", "unix://@name", "file:///a/b",
		"tcp://host:1?%zz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMeeting(text, "extra")
		if err != nil {
			if plugin.CodeOf(err) != plugin.InvalidArgument {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if len(m.places) > maxPorts || (len(m.places) == 0) == (m.file == "") {
			t.Fatalf("%q: %+v", text, m)
		}
	})
}

func TestMeetings(t *testing.T) {
	m, err := parseMeeting("tcp://[::1]:10-12?secret=s", "")
	if err != nil || fmt.Sprint(m.places) != "[tcp [::1]:10 tcp [::1]:11 tcp [::1]:12]" || !m.hosted {
		t.Errorf("%+v, %v", m, err)
	}
	secrets := map[secret]string{}
	for _, url := range []string{"tcp://h:1", "tcp://h:2", "tcp://g:1", "tcp://h:1?job=a", "tcp://h:1?secret=a",
		"unix://@h:1"} {
		for _, extra := range []string{"", "x"} {
			m, err := parseMeeting(url, extra)
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := secrets[m.secret]; ok {
				t.Errorf("%s %q has the secret of %s", url, extra, other)
			}
			secrets[m.secret] = url + " " + extra
			if strings.Contains(m.text, "secret=") || strings.Contains(m.text, "?") {
				t.Errorf("%q would show a secret", m.text)
			}
		}
	}
}

// messages returns a message of each kind.
func messages() []*message {
	e := &plugin.Error{Code: plugin.System, Rank: 3, Message: "something failed"}
	p := processID{boot: "b", namespace: "pid:[1]", pid: 77, start: "123"}
	at := []place{{"tcp", "127.0.0.1:77"}, {"tcp", "[::1]:78"}, {"unix", "@name"}}
	return []*message{
		{Kind: msgHello, Member: Member{1, 2, "host"}, World: 4, Left: time.Second, Heartbeat: 1, Silence: 2, Process: p,
			Standby: at},
		{Kind: msgGroup, Group: 5, Key: "key", Ranks: []int{3, 0, 1}},
		{Kind: msgUngroup, Group: 6},
		{Kind: msgOp, Group: 7, Op: opRoot, Root: 2, Tag: "tag", Data: []byte("data")},
		{Kind: msgCancel, Group: 8, Tag: "tag", Err: e},
		{Kind: msgFail, Group: groupJob, Err: e},
		{Kind: msgAdmit, Store: Member{Rank: -1, PID: 3, Host: "h"}, Process: processID{"b", "n", 3, "9"}},
		{Kind: msgPing, Seq: 7},
		{Kind: msgPong, Seq: 1 << 40},
		{Kind: msgTell, Group: 5, Rank: 3, Data: []byte("data")},
		{Kind: msgWelcome, Heartbeat: 1, Silence: 2, Store: Member{-1, 9, "there"}, Process: p,
			Members: []Member{{0, 1, "a"}, {1, 2, "b"}}, Contacts: []contact{{p, []place{}}, {p, at}}, Job: nonce{1, 2, 3}},
		{Kind: msgRefuse, Retry: true, Err: e},
		{Kind: msgResume, Member: Member{1, 2, "host"}, World: 3, Epoch: 4, Process: p,
			Standings: []standing{{Dead, e}, {}, {Left, nil}}},
		{Kind: msgRegroup, Group: 5, Key: "key", Ranks: []int{3, 0, 1}, Err: e, Seq: 6,
			Recent: []recent{{seq: 5, tag: "a", data: []byte("b")}, {seq: 6, tag: "c", lost: true, data: []byte{}},
				{seq: 4, tag: "d", data: []byte{}, err: e}, {tag: "e", data: []byte{}, err: e}}},
		{Kind: msgResumed},
		{Kind: msgUngroup, Group: 6, Again: true},
		{Kind: msgResult, Seq: 1 << 40, Group: 9, Tag: "tag", Data: []byte("data")},
		{Kind: msgResult, Group: 9, Tag: "tag", Err: e, Data: []byte{}},
		{Kind: msgEvent, Rank: 3, State: Dead, Key: "key", Err: e},
		{Kind: msgEvent, Rank: 3, State: Left},
		{Kind: msgBeat},
		{Kind: msgBye},
	}
}

func body(m *message) []byte {
	fr := m.frame()
	return append(fr.head, fr.payload...)
}

func TestMessages(t *testing.T) {
	for _, m := range messages() {
		got, err := decode(m.Kind, body(m))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
		if m.Kind == msgOp || m.Kind == msgResult || m.Kind == msgTell { // data may be of any length
			continue
		}
		for n := range body(m) {
			if got, err := decode(m.Kind, body(m)[:n]); err == nil {
				t.Errorf("%d of %d bytes of %+v became %+v", n, len(body(m)), m, got)
			}
		}
		if _, err := decode(m.Kind, append(body(m), 0)); err == nil {
			t.Errorf("a byte behind %+v was accepted", m)
		}
	}
}

// altered returns the message of a kind in messages, changed.
func altered(kind msgKind, change func(*message)) *message {
	for _, m := range messages() {
		if m.Kind == kind {
			change(m)
			return m
		}
	}
	panic(kind)
}

// What another process says must be within bounds, and an error must be there where something has failed, or the store
// would be led to what is not there.
func TestMessagesOutOfBounds(t *testing.T) {
	e := &plugin.Error{Code: plugin.System, Rank: 3, Message: "something failed"}
	for name, m := range map[string]*message{
		"rank -1 joins":          altered(msgHello, func(m *message) { m.Member.Rank = -1 }),
		"rank behind the last":   altered(msgHello, func(m *message) { m.Member.Rank = m.World }),
		"a world of none":        altered(msgHello, func(m *message) { m.World = 0 }),
		"too large a world":      altered(msgHello, func(m *message) { m.World = plugin.MaxWorld + 1 }),
		"a negative wait":        altered(msgHello, func(m *message) { m.Left = -1 }),
		"no heartbeat":           altered(msgHello, func(m *message) { m.Heartbeat = 0 }),
		"no silence":             altered(msgHello, func(m *message) { m.Silence = 0 }),
		"a negative silence":     altered(msgHello, func(m *message) { m.Silence = -1 }),
		"port 0":                 altered(msgHello, func(m *message) { m.Standby = []place{{"tcp", "127.0.0.1:0"}} }),
		"a name for an address":  altered(msgHello, func(m *message) { m.Standby = []place{{"tcp", "host:1"}} }),
		"a socket in a folder":   altered(msgHello, func(m *message) { m.Standby = []place{{"unix", "/tmp/s"}} }),
		"a socket without name":  altered(msgHello, func(m *message) { m.Standby = []place{{"unix", "@"}} }),
		"welcome: no heartbeat":  altered(msgWelcome, func(m *message) { m.Heartbeat = 0 }),
		"welcome: no silence":    altered(msgWelcome, func(m *message) { m.Silence = 0 }),
		"welcome: out of order":  altered(msgWelcome, func(m *message) { m.Members[1].Rank = 0 }),
		"welcome: rank -2":       altered(msgWelcome, func(m *message) { m.Store.Rank = -2 }),
		"admit: too high a rank": altered(msgAdmit, func(m *message) { m.Store.Rank = plugin.MaxWorld }),
		"an unknown collective":  altered(msgOp, func(m *message) { m.Op = opSurvivors + 1 }),
		"cancel: no error":       altered(msgCancel, func(m *message) { m.Err = nil }),
		"fail: no error":         altered(msgFail, func(m *message) { m.Err = nil }),
		"refuse: no error":       altered(msgRefuse, func(m *message) { m.Err = nil }),
		"alive without error":    altered(msgEvent, func(m *message) { m.State, m.Err = Alive, nil }),
		"dead without error":     altered(msgEvent, func(m *message) { m.State, m.Err = Dead, nil }),
		"gave up without error":  altered(msgEvent, func(m *message) { m.State, m.Err = GaveUp, nil }),
		"an unknown state":       altered(msgEvent, func(m *message) { m.State = GaveUp + 1 }),
		"too much to tell":       altered(msgTell, func(m *message) { m.Data = make([]byte, MaxTold+1) }),
		"resume: another rank":   altered(msgResume, func(m *message) { m.Member.Rank = m.World }),
		"resume: unknown state":  altered(msgResume, func(m *message) { m.Standings[0].state = GaveUp + 1 }),
		"resume: dead, no error": altered(msgResume, func(m *message) { m.Standings[0].err = nil }),
		"resume: left, an error": altered(msgResume, func(m *message) { m.Standings[2].err = e }),
		"resume: alive, error":   altered(msgResume, func(m *message) { m.Standings[1].err = e }),
		"too many results": altered(msgRegroup, func(m *message) {
			m.Recent = make([]recent, maxRecent+maxFailed+1)
		}),
		"too long a result": altered(msgRegroup, func(m *message) { m.Recent[0].data = make([]byte, maxRecentBytes+1) }),
		"an unknown kind":   {Kind: msgTell + 1},
		"no kind":           {},
	} {
		if got, err := decode(m.Kind, body(m)); err == nil {
			t.Errorf("%s: became %+v", name, got)
		}
	}
	for name, m := range map[string]*message{
		"the last rank":         altered(msgHello, func(m *message) { m.Member.Rank = m.World - 1 }),
		"the largest world":     altered(msgHello, func(m *message) { m.World = plugin.MaxWorld }),
		"no time left":          altered(msgHello, func(m *message) { m.Left = 0 }),
		"as much as may be":     altered(msgTell, func(m *message) { m.Data = make([]byte, MaxTold) }),
		"left in peace":         altered(msgEvent, func(m *message) { m.State, m.Err = Left, nil }),
		"the longest result":    altered(msgRegroup, func(m *message) { m.Recent[0].data = make([]byte, maxRecentBytes) }),
		"as many as are kept":   altered(msgRegroup, func(m *message) { m.Recent = make([]recent, maxRecent+maxFailed) }),
		"the last of the kinds": {Kind: msgTell},
	} {
		if _, err := decode(m.Kind, body(m)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages() {
		f.Add(uint8(m.Kind), body(m))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		m, err := decode(msgKind(kind), b)
		if err != nil {
			return
		}
		again, err := decode(m.Kind, body(m))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzParts(f *testing.F) {
	f.Add(encodeParts([][]byte{{1}, {}, {2, 3}}), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		parts, err := decodeParts(b, int(n))
		if err == nil && !bytes.Equal(encodeParts(parts), b) {
			t.Fatalf("%x", b)
		}
	})
}

func FuzzFrame(f *testing.F) {
	aead := newAEAD(make([]byte, 32))
	var buffer bytes.Buffer
	sample := func(fr frame) []byte {
		b := []byte{byte(1 + len(fr.head)), 0, 0, 0, byte(fr.kind)}
		b = append(b, fr.head...)
		return aead.Seal(b[:lengthBytes], frameNonce(aead, 0), bytes.Clone(b[lengthBytes:]), b[:lengthBytes])
	}
	f.Add(sample(frame{kind: msgBeat}))
	f.Add(sample(frame{kind: msgOp, head: []byte("head")}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		buffer.Reset()
		buffer.Write(b)
		kind, got, err := readFrame(bufio.NewReader(&buffer), aead, 0)
		if err == nil && !bytes.HasPrefix(b, sample(frame{kind: kind, head: got})) && len(got) < 200 {
			t.Fatalf("%x was read as %d %x", b, kind, got)
		}
	})
}

func FuzzHandshake(f *testing.F) {
	s := sampleID().secret
	f.Add(encodeGreeting(s.id(), storeID{}, nonce{1}))
	f.Add(encodeReply(s, nonce{1}, nonce{2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, id, name, n, err := decodeGreeting(b); err == nil && !bytes.Equal(encodeGreeting(id, name, n)[8:], b[8:]) {
			t.Fatalf("%x", b)
		}
		if n, err := decodeReply(b, s, nonce{1}); err == nil && !bytes.Equal(encodeReply(s, nonce{1}, n)[8:], b[8:]) {
			t.Fatalf("%x", b)
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add(encodeFile(sampleID(), identify(os.Getpid())))
	f.Add([]byte(fileHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, p, err := decodeFile(b)
		if err != nil {
			return
		}
		id2, p2, err := decodeFile(encodeFile(id, p))
		if err != nil || id2 != id || p2 != p {
			t.Fatalf("%q", b)
		}
	})
}

func claimAndHost(path string, logger *slog.Logger) (*Root, error) {
	if err := claimFile(path, logger); err != nil {
		return nil, err
	}
	return hostFile(path, logger)
}

func TestRendezvousFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "id")
	self := identify(os.Getpid())
	if self.boot == "" || self.start == "" || self.ended() {
		t.Fatalf("this process: %+v", self)
	}
	// Left by a process that has ended: its number is used by another one now,
	// or by none.
	reused, gone, elsewhere := self, self, self
	reused.start += "1"
	gone.pid = 1 << 29
	elsewhere.boot = "another-host"
	if !reused.ended() || !gone.ended() || elsewhere.ended() {
		t.Error("the dead and the living are confused")
	}
	for name, c := range map[string]struct {
		content []byte
		code    plugin.Code
	}{
		"stale":     {encodeFile(sampleID(), reused), plugin.OK},
		"other":     {[]byte("my thesis\n"), plugin.InvalidArgument},
		"in use":    {encodeFile(sampleID(), identify(os.Getppid())), plugin.InvalidArgument},
		"elsewhere": {encodeFile(sampleID(), elsewhere), plugin.OK},
	} {
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		root, err := claimAndHost(path, quiet)
		if plugin.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			if b, readErr := os.ReadFile(path); readErr != nil || !bytes.Equal(b, c.content) {
				t.Errorf("%s: the file was touched", name)
			}
			continue
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		root.Close()
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: the file stays: %v", name, err)
		}
	}
	// What another job has put there meanwhile is not removed.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	root, err := claimAndHost(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, encodeFile(sampleID(), self), 0o600); err != nil {
		t.Fatal(err)
	}
	root.Close()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("another job's file: %v", err)
	}
	// A link could lead anywhere.
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := claimAndHost(link, quiet); err == nil {
		t.Error("a symbolic link was followed")
	}
	if _, err := claimAndHost(filepath.Join(path, "no", "directory"), quiet); plugin.CodeOf(err) != plugin.System {
		t.Errorf("no directory: %v", err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestErrorsOfLoss(t *testing.T) {
	conn, _ := net.Pipe()
	for _, err := range []error{os.ErrDeadlineExceeded, plugin.Errorf(plugin.Protocol, "x"), errors.New("y")} {
		if (&frameConn{Conn: conn}).lossReason(err, time.Second) == "" {
			t.Error(err)
		}
	}
}
