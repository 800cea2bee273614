package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"hash/crc32"
	"net/netip"
	"strings"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// IDBytes is the size of UniqueID.Bytes, that of ncclUniqueId.
const IDBytes = 128

const (
	idPrefix     = "shunt1"
	idVersion    = 1
	maxAddresses = 5
	maxIDText    = len(idPrefix) + (IDBytes*8+4)/5
)

var idMagic = [4]byte{'S', 'H', 'I', 'D'}

type secret [16]byte

// storeID names a store without giving its secret away.
type storeID [16]byte

func (s secret) id() (id storeID) {
	copy(id[:], s.derive("store id"))
	return id
}

// derive makes an independent key of 32 bytes from the secret.
func (s secret) derive(parts ...string) []byte {
	mac := hmac.New(sha256.New, s[:])
	for _, part := range parts {
		var w wire.Writer
		w.String(part)
		mac.Write(w.B)
	}
	return mac.Sum(nil)
}

// UniqueID holds the address of a job's store and the secret that proves membership
// of the job. The zero value is no id. Treat it as a password.
type UniqueID struct {
	addresses [maxAddresses]netip.AddrPort
	secret    secret
}

// IsZero reports whether the id is the zero value.
func (id UniqueID) IsZero() bool { return id == UniqueID{} }

// Addresses returns the store's addresses in the order they are tried.
func (id UniqueID) Addresses() []netip.AddrPort {
	n := 0
	for n < maxAddresses && id.addresses[n].IsValid() {
		n++
	}
	return append([]netip.AddrPort(nil), id.addresses[:n]...)
}

// body returns the id without padding: magic, version, secret, addresses, checksum.
func (id UniqueID) body() []byte {
	w := wire.Writer{B: append([]byte(nil), idMagic[:]...)}
	w.U8(idVersion)
	w.B = append(w.B, id.secret[:]...)
	addresses := id.Addresses()
	w.U8(uint8(len(addresses)))
	for _, a := range addresses {
		ip := a.Addr().AsSlice()
		w.U8(uint8(len(ip)))
		w.B = append(w.B, ip...)
		w.U16(a.Port())
	}
	w.U32(crc32.ChecksumIEEE(w.B))
	return w.B
}

// Bytes returns the id in the form that FromBytes reads, padded with zeros.
func (id UniqueID) Bytes() (b [IDBytes]byte) {
	copy(b[:], id.body())
	return b
}

// FromBytes reads what Bytes wrote. Bytes behind it, up to IDBytes, must be zero.
func FromBytes(b []byte) (UniqueID, error) {
	if len(b) != IDBytes {
		return UniqueID{}, plugin.Errorf(plugin.InvalidArgument, "unique id: it has %d bytes, want %d", len(b), IDBytes)
	}
	id, used, err := decodeID(b)
	if err != nil {
		return UniqueID{}, err
	}
	for _, c := range b[used:] {
		if c != 0 {
			return UniqueID{}, plugin.Errorf(plugin.InvalidArgument, "unique id: bytes after its end are not zero")
		}
	}
	return id, nil
}

func decodeID(b []byte) (id UniqueID, used int, err error) {
	bad := func(why string) (UniqueID, int, error) {
		return UniqueID{}, 0, plugin.Errorf(plugin.InvalidArgument, "unique id: %s", why)
	}
	r := wire.NewReader(b)
	var magic [4]byte
	r.Fixed(magic[:])
	if magic != idMagic {
		return bad("not one of Shunt's (wrong magic)")
	}
	if v := r.U8(); v != idVersion {
		return bad("made by another version of Shunt")
	}
	r.Fixed(id.secret[:])
	n := int(r.U8())
	if n == 0 || n > maxAddresses {
		return bad("wrong number of addresses")
	}
	for i := range n {
		size := int(r.U8())
		if size != 4 && size != 16 {
			return bad("malformed address")
		}
		ip := make([]byte, size)
		r.Fixed(ip)
		addr, _ := netip.AddrFromSlice(ip)
		port := r.U16()
		if port == 0 {
			return bad("malformed address")
		}
		id.addresses[i] = netip.AddrPortFrom(addr, port)
	}
	used = len(b) - r.Len()
	if sum := r.U32(); r.Err() != nil || sum != crc32.ChecksumIEEE(b[:used]) {
		return bad("checksum is wrong; it was cut or mistyped")
	}
	return id, used + 4, nil
}

var idEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// String returns the id as text: "shunt1" and letters and digits, for environment
// variables and command lines. ParseID reads it.
func (id UniqueID) String() string {
	return idPrefix + strings.ToLower(idEncoding.EncodeToString(id.body()))
}

// ParseID reads what String wrote; case and surrounding space do not matter.
func ParseID(text string) (UniqueID, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	rest, ok := strings.CutPrefix(text, idPrefix)
	if !ok || len(text) > maxIDText {
		return UniqueID{}, plugin.Errorf(plugin.InvalidArgument, "unique id: want at most %d characters that begin with %q",
			maxIDText, idPrefix)
	}
	b, err := idEncoding.DecodeString(strings.ToUpper(rest))
	if err != nil {
		return UniqueID{}, plugin.Errorf(plugin.InvalidArgument, "unique id: not base32: %w", err)
	}
	id, used, err := decodeID(b)
	if err != nil {
		return UniqueID{}, err
	}
	if used != len(b) || id.String() != text {
		return UniqueID{}, plugin.Errorf(plugin.InvalidArgument, "unique id: there are characters after its end")
	}
	return id, nil
}

// NewID makes a unique id and its store, which listens at addr from now on. addr is "host:port" (port 0: any), or ""
// for any port on every interface. The store ends by itself when all ranks that joined have left; close the Root only
// if no rank may join any more. Its records go to slog.Default.
func NewID(addr string) (UniqueID, *Root, error) {
	if err := descriptors.Ready(); err != nil {
		return UniqueID{}, nil, plugin.Errorf(plugin.CodeOf(err), "unique id: %w", err)
	}
	id := UniqueID{secret: secret(newNonce())}
	network := place{network: "tcp", address: addr}
	if addr == "" {
		network.address = ":0"
	}
	root, err := newRoot(id.secret, storeID{}, []place{network}, defaultLogger())
	if err != nil {
		return UniqueID{}, nil, plugin.Errorf(plugin.CodeOf(err), "unique id: %w", err)
	}
	addresses, err := reachable(root.hub.listener.Addr())
	if err != nil {
		root.Close()
		return UniqueID{}, nil, err
	}
	copy(id.addresses[:], addresses)
	return id, root, nil
}
