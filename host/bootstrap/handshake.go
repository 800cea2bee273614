package bootstrap

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// The handshake proves to both ends that the other knows the secret, before
// either says anything else:
//
//	client → store   magic, version, store id, name, nonce c
//	store  → client  magic, version, verdict, nonce s, HMAC(secret, "store", c, s)
//	client → store   HMAC(secret, "client", c, s)
//
// Both then derive two keys from the nonces, one a direction, which encrypt and
// authenticate the frames that follow. All three messages have fixed sizes, so a stranger
// can make the store hold no more than that, until handshakeTimeout.
const (
	wireVersion      = 7
	nonceBytes       = 16
	proofBytes       = 32
	greetingBytes    = 4 + 2 + 2 + 16 + 16 + nonceBytes
	replyBytes       = 4 + 2 + 2 + nonceBytes + proofBytes
	handshakeTimeout = 5 * time.Second
)

var wireMagic = [4]byte{'S', 'H', 'N', 'T'}

type nonce [nonceBytes]byte

func newNonce() (n nonce) {
	rand.Read(n[:]) // never fails
	return n
}

func encodeGreeting(id, name storeID, n nonce) []byte {
	w := wire.Writer{B: append([]byte(nil), wireMagic[:]...)}
	w.U16(wireVersion)
	w.U16(0)
	w.B = append(append(append(w.B, id[:]...), name[:]...), n[:]...)
	return w.B
}

// readVersion reads what every message begins with, in all versions: the version, and the verdict.
func readVersion(r *wire.Reader) (version, verdict uint16) {
	var magic [4]byte
	r.Fixed(magic[:])
	if magic != wireMagic {
		r.Fail("not a message of Shunt's rendezvous (wrong magic)")
	}
	return r.U16(), r.U16()
}

// decodeGreeting reads a greeting, of which the job's id and name stand where they are in all versions.
func decodeGreeting(b []byte) (version uint16, id, name storeID, n nonce, err error) {
	r := wire.NewReader(b)
	version, _ = readVersion(r)
	r.Fixed(id[:])
	r.Fixed(name[:])
	r.Fixed(n[:])
	return version, id, name, n, r.End()
}

// Verdicts on a connection that names the job rightly and cannot join it. Nothing is proved with them.
const (
	otherSecret  = 1
	otherVersion = 2
)

// Why a rank cannot join although it names the job rightly.
const (
	secretsDiffer  = "SHUNT_SECRET or secret= is not the same on all ranks"
	versionsDiffer = "all ranks must run the same version of Shunt"
)

func encodeVerdict(verdict uint16) []byte {
	w := wire.Writer{B: append([]byte(nil), wireMagic[:]...)}
	w.U16(wireVersion)
	w.U16(verdict)
	w.B = append(w.B, make([]byte, nonceBytes+proofBytes)...)
	return w.B
}

func encodeReply(s secret, c, n nonce) []byte {
	w := wire.Writer{B: append([]byte(nil), wireMagic[:]...)}
	w.U16(wireVersion)
	w.U16(0)
	w.B = append(append(w.B, n[:]...), s.derive("store", string(c[:]), string(n[:]))...)
	return w.B
}

func decodeReply(b []byte, s secret, c nonce) (n nonce, err error) {
	r := wire.NewReader(b)
	version, verdict := readVersion(r)
	r.Fixed(n[:])
	var proof [proofBytes]byte
	r.Fixed(proof[:])
	if err := r.End(); err != nil {
		return n, err
	}
	if version != wireVersion {
		return n, plugin.Errorf(plugin.Mismatch, "the job's store speaks version %d of the rendezvous, this rank version %d: %s",
			version, wireVersion, versionsDiffer)
	}
	if verdict == otherSecret {
		return n, plugin.Errorf(plugin.Mismatch, "the job's store is there and has another secret: %s", secretsDiffer)
	}
	if verdict != 0 {
		return n, plugin.Errorf(plugin.Protocol, "the store has verdict %d, which is unknown", verdict)
	}
	if !hmac.Equal(proof[:], s.derive("store", string(c[:]), string(n[:]))) {
		return n, plugin.Errorf(plugin.Protocol, "the store does not know this job's secret")
	}
	return n, nil
}

// greet runs the client's half of the handshake.
func greet(conn net.Conn, s secret, name storeID, deadline time.Time) (*frameConn, error) {
	if limit := time.Now().Add(handshakeTimeout); deadline.After(limit) { // zero is none
		deadline = limit
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	c := newNonce()
	if _, err := conn.Write(encodeGreeting(s.id(), name, c)); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	reply := make([]byte, replyBytes)
	if _, err := io.ReadFull(r, reply); err != nil {
		return nil, err
	}
	n, err := decodeReply(reply, s, c)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(s.derive("client", string(c[:]), string(n[:]))); err != nil {
		return nil, err
	}
	f := newFrameConn(conn, r, s, c, n)
	f.sends, f.receives = f.toStore, f.toClient
	return f, conn.SetDeadline(time.Time{})
}

// door is the service that a connection asks for.
type door interface {
	key() secret
	// awaits is the kind of the one message that a newcomer may send.
	awaits() msgKind
	// enroll takes over a connection of a newcomer that has proved the secret.
	enroll(f *frameConn, first *message, inProcess bool)
}

// admit runs the store's half of the handshake and reads the newcomer's first
// message. find looks a door up by the id in the greeting; nil refuses the
// stranger.
func admit(conn net.Conn, find func(storeID) door) (*frameConn, door, *message, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, nil, nil, err
	}
	r := bufio.NewReader(conn)
	greeting := make([]byte, greetingBytes)
	if _, err := io.ReadFull(r, greeting); err != nil {
		return nil, nil, nil, plugin.Errorf(plugin.Protocol, "no greeting: %w", err)
	}
	version, id, name, c, err := decodeGreeting(greeting)
	if err != nil {
		return nil, nil, nil, err
	}
	d := find(id)
	if d != nil && version != wireVersion {
		if st, is := d.(*store); is {
			st.meetStranger(conn.RemoteAddr(), fmt.Sprintf("version %d of the rendezvous: %s", version, versionsDiffer))
		}
		_, _ = conn.Write(encodeVerdict(otherVersion))
		return nil, nil, nil, plugin.Errorf(plugin.Protocol, "it is a rank with version %d of the rendezvous, here is version %d",
			version, wireVersion)
	}
	if d == nil {
		if st := lookupName(name); st != nil && (name != storeID{}) {
			st.meetStranger(conn.RemoteAddr(), "another secret: "+secretsDiffer)
			_, _ = conn.Write(encodeVerdict(otherSecret)) // without the secret it cannot be read
			return nil, nil, nil, plugin.Errorf(plugin.Protocol, "it is a rank with another secret")
		}
		return nil, nil, nil, errNoSuchStore
	}
	n := newNonce()
	if _, err := conn.Write(encodeReply(d.key(), c, n)); err != nil {
		return nil, nil, nil, err
	}
	var proof [proofBytes]byte
	if _, err := io.ReadFull(r, proof[:]); err != nil {
		return nil, nil, nil, plugin.Errorf(plugin.Protocol, "no proof of the secret: %w", err)
	}
	if !hmac.Equal(proof[:], d.key().derive("client", string(c[:]), string(n[:]))) {
		return nil, nil, nil, plugin.Errorf(plugin.Protocol, "its proof of the secret is wrong")
	}
	f := newFrameConn(conn, r, d.key(), c, n)
	f.sends, f.receives = f.toClient, f.toStore
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, nil, nil, err
	}
	first, err := f.receive()
	if err != nil {
		return nil, nil, nil, err
	}
	if first.Kind != d.awaits() {
		return nil, nil, nil, plugin.Errorf(plugin.Protocol, "message %d came, want message %d", first.Kind, d.awaits())
	}
	return f, d, first, conn.SetDeadline(time.Time{})
}

// errNoSuchStore is not sent: the connection is closed and the client tries again,
// because its store may not be there yet.
var errNoSuchStore = plugin.Errorf(plugin.Protocol, "the greeting names a job whose store is not here")

func newFrameConn(conn net.Conn, r *bufio.Reader, s secret, c, n nonce) *frameConn {
	return &frameConn{
		Conn: conn, r: r,
		toStore:  newAEAD(s.derive("to store", string(c[:]), string(n[:]))),
		toClient: newAEAD(s.derive("to client", string(c[:]), string(n[:]))),
	}
}

// newAEAD returns AES-256-GCM with a key.
func newAEAD(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // derive makes 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	return aead
}
