package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// maxURL bounds the text of a meeting place.
const maxURL = 4096

// reachable lists the addresses under which a listener can be reached: its own if it is bound to one, otherwise those
// of this host.
func reachable(at net.Addr) ([]netip.AddrPort, error) {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return nil, plugin.Errorf(plugin.Internal, "unique id: listening at %s, which is no TCP address", at)
	}
	own := tcp.AddrPort()
	if own = netip.AddrPortFrom(own.Addr().Unmap().WithZone(""), own.Port()); !own.Addr().IsUnspecified() {
		return []netip.AddrPort{own}, nil
	}
	addresses, err := addressesOfHost()
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "unique id: addresses of this host: %w", err)
	}
	var list []netip.AddrPort
	for _, a := range ofHost(addresses) {
		list = append(list, netip.AddrPortFrom(a, own.Port()))
	}
	return list, nil
}

// addressesOfHost lists those of the interfaces that are up.
func addressesOfHost() (list []netip.Addr, err error) {
	found, err := net.InterfaceAddrs()
	for _, a := range found {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, prefix.Addr().Unmap())
		}
	}
	return list, err
}

// ofHost orders the addresses of a host as others try them: loopback first, for ranks of this host, then those of the
// interfaces that are up, IPv4 before IPv6. Of more than an id holds, one of IPv6 stays, for hosts that have no others.
func ofHost(addresses []netip.Addr) []netip.Addr {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if slices.Contains(addresses, netip.IPv6Loopback()) && !slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		return a.Is4() && a.IsLoopback()
	}) {
		loopback = netip.IPv6Loopback()
	}
	list, v6 := []netip.Addr{loopback}, []netip.Addr(nil)
	for _, a := range addresses {
		switch {
		case a.IsLoopback() || !a.IsGlobalUnicast():
		case a.Is4():
			list = append(list, a)
		default:
			v6 = append(v6, a)
		}
	}
	if len(v6) > 0 {
		list = list[:min(len(list), maxAddresses-1)]
	}
	list = append(list, v6...)
	return list[:min(len(list), maxAddresses)]
}

// meeting is the address and the secret of a rendezvous, made from Config.
type meeting struct {
	secret secret
	name   storeID // of the place, without the secret
	places []place // where rank 0 listens and the others look, in order
	file   string  // instead of places: where rank 0 leaves the id
	hosted bool    // rank 0 opens the store, unless its process has it already
	once   bool    // the id is good for one session only
	open   bool    // it has no secret: the address suffices to join
	text   string  // for messages; holds no secret
}

// parseMeeting reads Config.URL:
//
//	shunt1…                              a unique id
//	tcp://host:port?secret=…&job=…       rank 0 listens there; port may be a range a-b, of which the first free one is taken
//	unix://@name?secret=…&job=…          an abstract socket of this host
//	                                     key=… instead of secret=…: the 128-bit secret itself, 32 hexadecimal digits
//	file:///path                         rank 0 leaves a unique id there
func parseMeeting(text, extra string) (meeting, error) {
	if len(text) > maxURL {
		return meeting{}, plugin.Errorf(plugin.InvalidArgument, "the meeting place has %d characters, want at most %d",
			len(text), maxURL)
	}
	bad := func(format string, args ...any) (meeting, error) {
		return meeting{}, plugin.Errorf(plugin.InvalidArgument, "meeting place %q: "+format,
			append([]any{withoutSecret(text)}, args...)...)
	}
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(text)), idPrefix) {
		id, err := ParseID(text)
		if err != nil {
			return meeting{}, err
		}
		return meetingOf(id), nil
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return bad("want a unique id, tcp://host:port, unix://@name or file:///path")
	}
	if scheme == "file" {
		if !strings.HasPrefix(rest, "/") || strings.ContainsRune(rest, 0) {
			return bad("the path must be absolute")
		}
		return meeting{file: rest, hosted: true, once: true, text: text}, nil
	}
	address, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return bad("%w", err)
	}
	for name := range values {
		if name != "secret" && name != "job" && name != "key" {
			return bad("unknown parameter %q", name)
		}
	}
	m := meeting{hosted: true, text: scheme + "://" + address}
	switch scheme {
	case "tcp":
		if m.places, err = parsePorts(address); err != nil {
			return bad("%w", err)
		}
	case "unix":
		if len(address) < 2 || len(address) > 100 || address[0] != '@' || strings.ContainsRune(address, 0) {
			return bad("want an abstract socket, @name of at most 99 characters")
		}
		m.places = []place{{"unix", address}}
	default:
		return bad("unknown scheme %q; want tcp, unix or file", scheme)
	}
	hash := func(label string, parts ...string) []byte {
		mac := hmac.New(sha256.New, []byte(label))
		for _, part := range parts {
			var w wire.Writer
			w.String(part)
			mac.Write(w.B)
		}
		return mac.Sum(nil)
	}
	copy(m.name[:], hash("shunt rendezvous name", scheme, address, values.Get("job")))
	key := hash("shunt rendezvous 2", scheme, address, values.Get("job"), values.Get("secret"), extra)
	if values.Has("key") {
		if key, err = hex.DecodeString(values.Get("key")); err != nil || len(key) != len(m.secret) {
			return bad("key must be %d hexadecimal digits", 2*len(m.secret))
		}
	} else if values.Get("secret") != "" || extra != "" {
		key = stretch(key, m.name)
	} else {
		m.open = true
	}
	copy(m.secret[:], key)
	return m, nil
}

func meetingOf(id UniqueID) meeting {
	m := meeting{secret: id.secret, once: true}
	var at []string
	for _, a := range id.Addresses() {
		m.places = append(m.places, place{"tcp", a.String()})
		at = append(at, a.String())
	}
	m.text = "unique id at " + strings.Join(at, ", ")
	return m
}

// withoutSecret returns a meeting place fit for messages.
func withoutSecret(text string) string {
	if strings.HasPrefix(text, idPrefix) {
		return idPrefix + "…"
	}
	text, _, _ = strings.Cut(text, "?")
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return text
}

// maxPorts is the most ports that a range may hold.
const maxPorts = 64

func parsePorts(address string) ([]place, error) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return nil, fmt.Errorf("a port is missing")
	}
	host, ports := address[:i], address[i+1:]
	if strings.HasPrefix(host, "[") != strings.HasSuffix(host, "]") ||
		(strings.Contains(host, ":") && !strings.HasPrefix(host, "[")) {
		return nil, fmt.Errorf("host %q is malformed", host)
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.ContainsAny(host, "/@ \x00") {
		return nil, fmt.Errorf("host %q is malformed", host)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" {
		return nil, fmt.Errorf("host %q is link-local: want the interface too, as in [%s%%eth0]", host, host)
	}
	first, last, ranged := strings.Cut(ports, "-")
	if !ranged {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a || b-a >= maxPorts {
		return nil, fmt.Errorf("malformed port %q: want 1 to 65535, or a range of at most %d", ports, maxPorts)
	}
	var places []place
	for port := a; port <= b; port++ {
		places = append(places, place{"tcp", net.JoinHostPort(host, strconv.FormatUint(port, 10))})
	}
	return places, nil
}

// shortHash names something in an address.
func shortHash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		var w wire.Writer
		w.String(part)
		h.Write(w.B)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
