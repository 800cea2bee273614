package bootstrap

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// contact holds a rank's address and process, to reach it or to see it dead without the store.
type contact struct {
	process processID
	standby []place // where it would run the store; none: it shares the process of the first one, or cannot listen
}

// standing is a rank's knowledge of another.
type standing struct {
	state State
	err   *plugin.Error // why it is neither alive nor left
}

// recent is the end of a collective that a rank has received lately. Should the store be lost
// between telling one rank and telling another, the one tells the other.
type recent struct {
	seq  uint64 // number within the group; 0: of what this rank gave up and the store said nothing to
	tag  string
	lost bool // too large to be kept
	data []byte
	err  *plugin.Error // why it failed
}

// Limits of what a rank keeps for the successor of its store.
const (
	maxRecent      = 4       // results of one group
	maxFailed      = 16      // collectives of one group that have failed
	maxRecentBytes = 1 << 20 // of one result
	maxParted      = 256     // groups that it has closed
	maxPlace       = 128     // characters of an address
)

// keep adds the end of a collective to what the group's rank tells a successor of the store. The caller holds the
// session's mu.
func (g *Group) keep(r recent) {
	g.heard = max(g.heard, r.seq)
	if len(r.data) > maxRecentBytes {
		r.lost, r.data = true, nil
	}
	// Of a tag the latest counts, and that this rank gave up until the store has had its say.
	g.failures = slices.DeleteFunc(g.failures, func(f recent) bool { return f.tag == r.tag && (f.seq == 0 || r.seq > 0) })
	list, most := &g.recent, maxRecent
	if r.err != nil {
		list, most = &g.failures, maxFailed
	}
	if len(*list) == most {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, r)
}

func writePlaces(w *wire.Writer, places []place) {
	w.U16(uint16(len(places)))
	for _, p := range places {
		w.Bool(p.network == "unix")
		w.String(p.address)
	}
}

func readPlaces(r *wire.Reader) []place {
	places := make([]place, r.Count(maxAddresses, 3))
	for i := range places {
		unix := r.Bool()
		address := r.String(maxPlace)
		switch {
		case unix && (len(address) < 2 || len(address) > 100 || address[0] != '@' || strings.ContainsRune(address, 0)):
			r.Fail("%q is no abstract socket", address)
		case unix:
			places[i] = place{"unix", address}
		default:
			at, err := netip.ParseAddrPort(address)
			if err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
				r.Fail("%q is no address and port", address)
			}
			places[i] = place{"tcp", address}
		}
	}
	return places
}

func writeContact(w *wire.Writer, c contact) {
	writeProcess(w, c.process)
	writePlaces(w, c.standby)
}

func readContact(r *wire.Reader) contact {
	return contact{process: readProcess(r), standby: readPlaces(r)}
}

func (m *message) encodeResume(w *wire.Writer) {
	writeMember(w, m.Member)
	w.U32(uint32(m.World))
	w.U32(m.Epoch)
	w.Bool(m.Question)
	writeProcess(w, m.Process)
	for _, s := range m.Standings {
		w.U8(uint8(s.state))
		w.Error(s.err)
	}
}

func (m *message) decodeResume(r *wire.Reader) {
	m.Member, m.World, m.Epoch, m.Question, m.Process = readMember(r), int(r.U32()), r.U32(), r.Bool(), readProcess(r)
	if m.World < 1 || m.World > plugin.MaxWorld || m.Member.Rank < 0 || m.Member.Rank >= m.World || 5*m.World > r.Len() {
		r.Fail("rank %d of world %d", m.Member.Rank, m.World)
		return
	}
	m.Standings = make([]standing, m.World)
	for i := range m.Standings {
		s := standing{State(r.U8()), r.Error()}
		if s.state > GaveUp || (s.err == nil) != (s.state == Alive || s.state == Left) {
			r.Fail("rank %d in state %d, with error %v", i, s.state, s.err)
			return
		}
		m.Standings[i] = s
	}
}

func (m *message) encodeRegroup(w *wire.Writer) {
	w.U32(m.Group)
	w.String(m.Key)
	writeRanks(w, m.Ranks)
	w.Error(m.Err)
	w.U64(m.Seq)
	w.U16(uint16(len(m.Recent)))
	for _, r := range m.Recent {
		w.U64(r.seq)
		w.Bool(r.lost)
		w.String(r.tag)
		w.Bytes(r.data)
		w.Error(r.err)
	}
}

func (m *message) decodeRegroup(r *wire.Reader) {
	m.Group, m.Key, m.Ranks = r.U32(), r.String(maxKey), readRanks(r)
	m.Err, m.Seq = r.Error(), r.U64()
	m.Recent = make([]recent, r.Count(maxRecent+maxFailed, 19))
	for i := range m.Recent {
		m.Recent[i] = recent{seq: r.U64(), lost: r.Bool(), tag: r.String(maxTag), data: r.Bytes(maxRecentBytes),
			err: r.Error()}
	}
}
