package bootstrap

import (
	"fmt"
	"os"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// msgKind is the kind of a frame.
type msgKind uint8

const (
	// from a rank to the store
	msgHello   msgKind = iota + 1 // rank, world and process of the sender
	msgGroup                      // I speak of these ranks by this number
	msgUngroup                    // no longer
	msgOp                         // my part of a collective
	msgCancel                     // the sender no longer waits for a collective, which fails on all its ranks
	msgFail                       // I give up, the job or one group
	// instead of hello, to the successor of a lost store: this rank, and the ranks that it knows to be gone
	msgResume
	msgRegroup // a group that I spoke of to the lost store
	msgResumed // that was all that I had said to the lost store
	// from the store to a rank
	msgAdmit   // the rank is known, and others are waited for: where the store runs
	msgWelcome // all ranks have joined
	msgRefuse  // joining failed
	msgResult  // outcome of a collective
	msgEvent   // what became of a rank
	// both ways
	msgBeat // I am alive
	msgBye  // I leave in peace
	// before a store declares a rank dead whose end is not proven
	msgPing // from the store: are you here
	msgPong // from a rank: I am
	// both ways
	msgTell // what a rank says to the others of a group, which need not listen
)

// opKind determines the result of a collective once all ranks have contributed.
type opKind uint8

const (
	opGather    opKind = iota // the data of all ranks, in order
	opFirst                   // the first data that is not empty: agreement and barrier
	opRoot                    // the root's data
	opSurvivors               // the data of members that are alive, which is not empty; that of the others is
)

// State is the store's view of a rank.
type State uint8

// The states of a rank.
const (
	Alive  State = iota // joined
	Left                // closed its session
	Dead                // lost without goodbye, or silent
	GaveUp              // called Session.Fail, or stopped waiting for the others to join just when all had
)

var stateNames = [...]string{"alive", "left", "dead", "gave up"}

// String names the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Member is one rank of a session.
type Member struct {
	Rank int
	PID  int
	Host string // name, for messages
}

// ofThisProcess returns a rank of this process.
func ofThisProcess(rank int) Member {
	host, err := os.Hostname()
	if err != nil || len(host) > maxHost {
		host = "unknown host"
	}
	return Member{Rank: rank, PID: os.Getpid(), Host: host}
}

// String names the rank and its process, or the process of a job's store that runs no rank.
func (m Member) String() string {
	rank := "the job's store"
	if m.Rank >= 0 {
		rank = fmt.Sprintf("rank %d", m.Rank)
	}
	return fmt.Sprintf("%s (pid %d on host %s)", rank, m.PID, m.Host)
}

// as returns the process with another number, as that within a group.
func (m Member) as(rank int) Member {
	m.Rank = rank
	return m
}

// MaxTold is the largest message of a rank to its peers, in bytes.
const MaxTold = 4096

// Limits of what a frame may carry.
const (
	maxTag  = 255
	maxKey  = 4096
	maxHost = 255
	maxWord = 64 // of a process's identity
)

// groupJob in a fail message means the whole job instead of one group.
const groupJob = 0xFFFFFFFF

// message is any frame; which fields count depends on the kind.
type message struct {
	Kind  msgKind
	Group uint32 // all that are about a group: by the rank's own numbering; fail: or groupJob
	Key   string // group, regroup: its key; event: of the group, if about one
	Ranks []int  // group, regroup
	Op    opKind // op
	Root  int    // op: index within the group
	Tag   string // op, cancel, result
	Data  []byte // op, result, tell: the rest of the frame
	// cancel, fail, refuse, result, event; hello: why the rank cannot join; regroup: why the group failed
	Err    *plugin.Error
	Retry  bool          // refuse: try again, this store serves another round; to a rank that has joined: it was given up
	Rank   int           // event; tell: its sender, within the group
	State  State         // event
	Member Member        // hello, resume
	World  int           // hello, resume
	Left   time.Duration // hello: until the rank stops waiting for others
	// hello: what the rank was told; welcome: what the store decided
	Heartbeat, Silence time.Duration
	Members            []Member   // welcome
	Contacts           []contact  // welcome: of the members
	Store              Member     // admit, welcome: the process the store runs in, and its lowest rank or -1
	Process            processID  // hello, resume: the rank's process; admit, welcome: the store's
	Parent             processID  // hello: of the rank's process
	Rival              bool       // hello: it is of a rank 0 that would run a store of its own at the same meeting place
	Standby            []place    // hello: where the rank would run the store
	Job                nonce      // welcome: number of the job among those with its secret
	Epoch              uint32     // resume: how many stores the rank has had
	Question           bool       // resume: the rank only asks what has become of it
	Standings          []standing // resume: of all ranks
	// result: number within the group, 0 for what is called in a group that has failed; regroup: the latest one that
	// the rank knows; ping, pong: the round
	Seq    uint64
	Recent []recent // regroup: the latest results and failed collectives
	Again  bool     // op, cancel, ungroup: said to the lost store before
}

func writeProcess(w *wire.Writer, p processID) {
	for _, s := range []string{p.boot, p.namespace, p.start} {
		w.String(s[:min(len(s), maxWord)])
	}
	w.U32(uint32(p.pid))
}

func readProcess(r *wire.Reader) processID {
	return processID{boot: r.String(maxWord), namespace: r.String(maxWord), start: r.String(maxWord), pid: int(r.U32())}
}

func readRanks(r *wire.Reader) []int {
	ranks := make([]int, r.Count(plugin.MaxWorld, 2))
	for i := range ranks {
		ranks[i] = int(r.U16())
	}
	return ranks
}

func writeRanks(w *wire.Writer, ranks []int) {
	w.U16(uint16(len(ranks)))
	for _, rank := range ranks {
		w.U16(uint16(rank))
	}
}

func writeMember(w *wire.Writer, m Member) {
	w.U32(uint32(int32(m.Rank)))
	w.U32(uint32(m.PID))
	w.String(m.Host)
}

func readMember(r *wire.Reader) Member {
	m := Member{Rank: int(int32(r.U32())), PID: int(r.U32()), Host: r.String(maxHost)}
	if m.Rank < -1 || m.Rank >= plugin.MaxWorld || m.PID < 0 {
		r.Fail("rank %d, pid %d", m.Rank, m.PID)
	}
	return m
}

// frame encodes the message; Data becomes the payload and is not copied.
func (m *message) frame() frame {
	var w wire.Writer
	switch m.Kind {
	case msgHello:
		writeMember(&w, m.Member)
		w.U32(uint32(m.World))
		w.I64(int64(m.Left))
		w.I64(int64(m.Heartbeat))
		w.I64(int64(m.Silence))
		writeProcess(&w, m.Process)
		writeProcess(&w, m.Parent)
		w.Bool(m.Rival)
		writePlaces(&w, m.Standby)
		w.Error(m.Err)
	case msgGroup:
		w.U32(m.Group)
		w.String(m.Key)
		writeRanks(&w, m.Ranks)
	case msgUngroup:
		w.U32(m.Group)
		w.Bool(m.Again)
	case msgOp:
		w.U32(m.Group)
		w.Bool(m.Again)
		w.U8(uint8(m.Op))
		w.U16(uint16(m.Root))
		w.String(m.Tag)
	case msgCancel:
		w.U32(m.Group)
		w.Bool(m.Again)
		w.String(m.Tag)
		w.Error(m.Err)
	case msgFail:
		w.U32(m.Group)
		w.Error(m.Err)
	case msgAdmit:
		writeMember(&w, m.Store)
		writeProcess(&w, m.Process)
	case msgWelcome:
		w.I64(int64(m.Heartbeat))
		w.I64(int64(m.Silence))
		writeMember(&w, m.Store)
		writeProcess(&w, m.Process)
		w.B = append(w.B, m.Job[:]...)
		w.U16(uint16(len(m.Members)))
		for i, member := range m.Members {
			writeMember(&w, member)
			writeContact(&w, m.Contacts[i])
		}
	case msgRefuse:
		w.Bool(m.Retry)
		w.Error(m.Err)
	case msgResult:
		w.U32(m.Group)
		w.String(m.Tag)
		w.U64(m.Seq)
		w.Error(m.Err)
	case msgEvent:
		w.U16(uint16(m.Rank))
		w.U8(uint8(m.State))
		w.String(m.Key)
		w.Error(m.Err)
	case msgResume:
		m.encodeResume(&w)
	case msgRegroup:
		m.encodeRegroup(&w)
	case msgPing, msgPong:
		w.U64(m.Seq)
	case msgTell:
		w.U32(m.Group)
		w.U16(uint16(m.Rank))
	case msgBeat, msgBye, msgResumed:
	}
	return frame{kind: m.Kind, head: w.B, payload: m.Data}
}

// decode reads a frame's body. Data aliases it.
func decode(kind msgKind, body []byte) (*message, error) {
	r := wire.NewReader(body)
	m := &message{Kind: kind}
	needError := false
	switch kind {
	case msgHello:
		m.Member = readMember(r)
		m.World = int(r.U32())
		m.Left, m.Heartbeat, m.Silence = time.Duration(r.I64()), time.Duration(r.I64()), time.Duration(r.I64())
		m.Process, m.Parent, m.Rival = readProcess(r), readProcess(r), r.Bool()
		m.Standby, m.Err = readPlaces(r), r.Error()
		if m.World < 1 || m.World > plugin.MaxWorld || m.Member.Rank < 0 || m.Member.Rank >= m.World {
			r.Fail("rank %d of world %d", m.Member.Rank, m.World)
		}
		if m.Left < 0 || m.Heartbeat <= 0 || m.Silence <= 0 {
			r.Fail("negative durations")
		}
	case msgGroup:
		m.Group, m.Key, m.Ranks = r.U32(), r.String(maxKey), readRanks(r)
	case msgUngroup:
		m.Group, m.Again = r.U32(), r.Bool()
	case msgOp:
		m.Group, m.Again, m.Op, m.Root, m.Tag = r.U32(), r.Bool(), opKind(r.U8()), int(r.U16()), r.String(maxTag)
		if m.Op > opSurvivors {
			r.Fail("unknown kind of collective %d", m.Op)
		}
		m.Data = r.Rest()
	case msgCancel:
		m.Group, m.Again, m.Tag, m.Err = r.U32(), r.Bool(), r.String(maxTag), r.Error()
		needError = true
	case msgFail:
		m.Group, m.Err = r.U32(), r.Error()
		needError = true
	case msgAdmit:
		m.Store, m.Process = readMember(r), readProcess(r)
	case msgWelcome:
		m.Heartbeat, m.Silence = time.Duration(r.I64()), time.Duration(r.I64())
		if m.Heartbeat <= 0 || m.Silence <= 0 {
			r.Fail("negative durations")
		}
		m.Store, m.Process = readMember(r), readProcess(r)
		r.Fixed(m.Job[:])
		m.Members = make([]Member, r.Count(plugin.MaxWorld, 22))
		m.Contacts = make([]contact, len(m.Members))
		for i := range m.Members {
			if m.Members[i], m.Contacts[i] = readMember(r), readContact(r); m.Members[i].Rank != i {
				r.Fail("rank %d in place of rank %d", m.Members[i].Rank, i)
			}
		}
	case msgRefuse:
		m.Retry, m.Err = r.Bool(), r.Error()
		needError = true
	case msgResult:
		m.Group, m.Tag, m.Seq, m.Err = r.U32(), r.String(maxTag), r.U64(), r.Error()
		m.Data = r.Rest()
	case msgEvent:
		m.Rank, m.State, m.Key, m.Err = int(r.U16()), State(r.U8()), r.String(maxKey), r.Error()
		if m.State > GaveUp {
			r.Fail("unknown state %d", m.State)
		}
		needError = m.State != Left
	case msgResume:
		m.decodeResume(r)
	case msgRegroup:
		m.decodeRegroup(r)
	case msgPing, msgPong:
		m.Seq = r.U64()
	case msgTell:
		m.Group, m.Rank, m.Data = r.U32(), int(r.U16()), r.Rest()
		if len(m.Data) > MaxTold {
			r.Fail("%d bytes to tell", len(m.Data))
		}
	case msgBeat, msgBye, msgResumed:
	default:
		r.Fail("unknown kind of message %d", kind)
	}
	if needError && m.Err == nil {
		r.Fail("an error is missing")
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return m, nil
}

// encodeParts puts the data of all ranks into the payload of a gather's result.
func encodeParts(parts [][]byte) []byte {
	size := 0
	for _, p := range parts {
		size += 4 + len(p)
	}
	w := wire.Writer{B: make([]byte, 0, size)}
	for _, p := range parts {
		w.Bytes(p)
	}
	return w.B
}

// decodeParts reads the data of n members.
func decodeParts(b []byte, n int) ([][]byte, error) {
	r := wire.NewReader(b)
	parts := make([][]byte, n)
	for i := range parts {
		parts[i] = r.Bytes(maxFrame)
	}
	return parts, r.End()
}
