package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/logs"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// Defaults of Config.
const (
	DefaultTimeout   = time.Minute
	DefaultHeartbeat = time.Second
)

// Config describes the rank that joins, and its meeting place. With World 0, or URL "env", what is not
// set is taken from the environment (see FromEnvironment).
type Config struct {
	Rank, World int
	ID          UniqueID // used if HaveID
	HaveID      bool
	URL         string        // "" or "env", a unique id as text, tcp://host:port, unix://@name or file:///path
	Secret      string        // mixed into the secret of tcp and unix meeting places; equal on all ranks
	LocalRank   int           // from the launcher: this rank's number on its host, or -1
	Timeout     time.Duration // to join, and of collectives without a deadline; 0: DefaultTimeout
	Heartbeat   time.Duration // interval of signs of life; 0: DefaultHeartbeat. Rank 0's counts for all
	Silence     time.Duration // a rank silent for so long is dead; 0: ten heartbeats. Rank 0's counts for all
	Logger      *slog.Logger  // nil: slog.Default

	anyJob bool // URL comes from MASTER_ADDR and MASTER_PORT, and nothing names the job
}

func (c *Config) complete() error {
	if c.World == 0 || (c.URL == "env" && !c.HaveID) {
		env, err := FromEnvironment(environment.Get)
		if err != nil {
			return err
		}
		if c.World == 0 {
			c.Rank, c.World, c.LocalRank = env.Rank, env.World, env.LocalRank
		}
		if c.URL == "" || c.URL == "env" {
			c.URL, c.anyJob = env.URL, env.anyJob
		}
		if c.Secret == "" {
			c.Secret = env.Secret
		}
	}
	if c.World < 1 || c.World > plugin.MaxWorld || c.Rank < 0 || c.Rank >= c.World {
		return plugin.Errorf(plugin.InvalidArgument, "join: rank %d of world %d is out of range, want a world of 1 to %d ranks", c.Rank, c.World, plugin.MaxWorld)
	}
	if c.Timeout < 0 || c.Heartbeat < 0 || c.Silence < 0 {
		return plugin.Errorf(plugin.InvalidArgument, "join: timeout %v, heartbeat %v or silence %v is negative", c.Timeout,
			c.Heartbeat, c.Silence)
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Heartbeat = cmp.Or(c.Heartbeat, DefaultHeartbeat)
	c.Silence = cmp.Or(c.Silence, 10*c.Heartbeat)
	if c.Silence < 2*c.Heartbeat {
		return plugin.Errorf(plugin.InvalidArgument, "join: silence %v is less than two heartbeats of %v", c.Silence,
			c.Heartbeat)
	}
	if c.Logger == nil {
		c.Logger = defaultLogger()
	}
	if bits := atMostBits(c.Secret); c.Secret != "" && bits < wantBits {
		c.Logger.Warn(fmt.Sprintf("SHUNT_SECRET has %.0f bits at most and can be guessed; want %d, as from openssl rand -hex 16", bits, wantBits), "rank", c.Rank)
	}
	return nil
}

// defaultLogger is slog.Default, which may block as any handler of the program's.
func defaultLogger() *slog.Logger { return slog.New(logs.New(slog.Default().Handler())) }

func (c *Config) meeting() (meeting, error) {
	if c.HaveID {
		if c.ID.IsZero() {
			return meeting{}, plugin.Errorf(plugin.InvalidArgument, "join: the unique id is empty")
		}
		return meetingOf(c.ID), nil
	}
	if c.URL == "" {
		if c.World > 1 {
			return meeting{}, plugin.Errorf(plugin.InvalidArgument,
				"join: rank %d of world %d has no meeting place: give a unique id, tcp://host:port or file:///path, or set SHUNT_ID", c.Rank, c.World)
		}
		return meeting{secret: secret(newNonce()), hosted: true, once: true, text: "this process"}, nil
	}
	return parseMeeting(c.URL, c.Secret)
}

// Join brings this rank together with the others and returns when all have
// come. It fails for all ranks alike: when ranks disagree about the world size
// or two claim the same number (code Mismatch), when one dies or stops waiting
// meanwhile, or when some have not come in time (code Timeout; the message
// names them). The rank with the shortest timeout decides for all.
func Join(ctx context.Context, c Config) (*Session, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	m, err := c.meeting()
	if err != nil {
		return nil, err
	}
	if err := descriptors.Ready(); err != nil {
		return nil, rankError(plugin.CodeOf(err), c.Rank, "rank %d cannot join: %v", c.Rank, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	j := &joiner{config: c, meeting: m, self: ofThisProcess(c.Rank), restore: func() {}}
	defer func() { j.restore() }()
	if err := descriptors.Need(ofRank); err != nil {
		j.lacks(err)
	}
	if m.hosted && c.Rank == 0 {
		if err := j.host(ctx); err != nil {
			return nil, err
		}
	}
	session, err := j.run(ctx)
	if err != nil && j.root != nil {
		j.root.detach()
	}
	if err != nil && j.hub != nil {
		j.hub.release()
	}
	return session, err
}

// joiner is one rank on its way in.
type joiner struct {
	config  Config
	meeting meeting
	self    Member
	root    *Root // attached, if the store is in this process
	last    error // why the last attempt failed
	told    error // what a store said that turned this rank away
	slow    int   // attempts in which a place did not reply in time
	hub     *hub  // for the case that this rank must run the store
	standby []place
	unable  *plugin.Error // why this rank cannot join though it can say so
	restore func()        // the reserve of descriptors
}

// ofRank is the least number of descriptors that a rank needs to join: connections,
// listeners and what its store is watched with.
const ofRank = 4

// lacks makes this rank report to the others, by means of the reserve, that it has no
// descriptors to join with; false if it uses the reserve already.
func (j *joiner) lacks(err error) bool {
	if j.unable != nil {
		return false
	}
	var worded *plugin.Error
	if !errors.As(err, &worded) || worded.Code != plugin.OutOfMemory {
		worded = descriptors.Error(err, ofRank)
	}
	j.unable = rankError(plugin.OutOfMemory, j.config.Rank, "%v cannot join: %s", j.self, worded.Message)
	j.restore = descriptors.Release()
	return true
}

// run tries until it gets a reply or the time is up.
func (j *joiner) run(ctx context.Context) (*Session, error) {
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	pause := time.NewTimer(0)
	defer pause.Stop()
	began, patience := time.Now(), patience
	for wait := shortest; ; wait = min(2*wait, longest) {
		select {
		case <-ctx.Done():
			return nil, j.late(ctx)
		case <-pause.C:
		}
		session, err := j.attempt(ctx)
		if session != nil {
			return session, nil
		}
		if descriptors.Lacking(err) && !j.lacks(err) {
			return nil, j.unable // not even the reserve is left to say so with
		}
		if final(err) {
			return nil, err
		}
		deadline, _ := ctx.Deadline()
		if j.last == nil || (ctx.Err() == nil && time.Now().Before(deadline)) { // else the attempt was cut short
			j.last = err
		}
		if time.Since(began) > patience {
			j.config.Logger.Warn("rendezvous: this rank has not found the job's store yet", "rank", j.config.Rank, "place",
				j.meeting.text, "reason", err)
			patience *= 4
		}
		pause.Reset(wait)
	}
}

// late returns the error of a rank that has not reached the store in time.
func (j *joiner) late(ctx context.Context) error {
	c := &j.config
	last := "no attempt was made"
	if j.last != nil {
		last = "last attempt: " + j.last.Error()
	}
	if j.told != nil && (j.last == nil || !strings.Contains(j.last.Error(), j.told.Error())) {
		last = fmt.Sprintf("a store turned it away: %v; %s", j.told, last)
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &plugin.Error{Code: plugin.Aborted, Rank: c.Rank, Cause: ctx.Err(),
			Message: fmt.Sprintf("rank %d was told to stop joining (%s)", c.Rank, last)}
	}
	return &plugin.Error{Code: plugin.Timeout, Rank: c.Rank, Cause: j.last, Message: fmt.Sprintf(
		"rank %d of %d did not find the job's store at %s in time; rank 0 has not started or is out of reach, or the place or the secret differs (%s)", c.Rank, c.World, j.meeting.text, last)}
}

// attempt tries every place once. Only an error with another code than
// Protocol is final.
func (j *joiner) attempt(ctx context.Context) (*Session, error) {
	if j.meeting.file != "" && j.root == nil {
		if err := j.readFile(); err != nil {
			return nil, err
		}
	}
	if session, tried, err := j.attemptHere(ctx); tried {
		return session, err
	}
	places, err := resolved(ctx, j.meeting.places)
	if err != nil {
		return nil, err
	}
	var errs ofPlaces
	for len(places) > 0 {
		f, at, err := j.knock(ctx, places)
		if err == nil {
			var session *Session
			if session, err = j.enter(ctx, f); session != nil {
				return session, nil
			}
			// The store of another job with this secret, perhaps. Places before it may only be slower.
			places = slices.Delete(slices.Clone(places), at, at+1)
		} else {
			places = nil
		}
		if final(err) {
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, plugin.Errorf(plugin.Protocol, "%w", errs)
}

// forceDial makes ranks of the store's own process use its address too.
var forceDial = false // tests only

// attemptHere joins over a pipe if the store runs in this process.
func (j *joiner) attemptHere(ctx context.Context) (_ *Session, tried bool, err error) {
	if forceDial && len(j.meeting.places) > 0 {
		return nil, false, nil
	}
	root := j.root
	if root == nil {
		st := lookup(j.meeting.secret.id())
		if st == nil || !st.root.attach() {
			return nil, false, nil
		}
		root = st.root
	}
	conn := root.store.connect()
	if conn == nil {
		if j.root == nil {
			root.detach()
		}
		return nil, true, plugin.Errorf(plugin.Protocol, "the store has just ended")
	}
	previous := j.root
	j.root = root
	f, err := j.greet(ctx, conn)
	var session *Session
	if err == nil {
		session, err = j.enter(ctx, f)
	}
	if session == nil && previous == nil {
		j.root = nil
		root.detach()
	}
	return session, true, err
}

// greet finds out whether the store is at the other end of a fresh connection, which it closes if not.
func (j *joiner) greet(ctx context.Context, conn net.Conn) (*frameConn, error) {
	deadline, _ := ctx.Deadline() // Join set one
	f, err := greet(conn, j.meeting.secret, j.meeting.name, deadline)
	if err == nil {
		return f, nil
	}
	conn.Close()
	switch {
	case plugin.CodeOf(err) == plugin.Mismatch:
		return nil, rankError(plugin.Mismatch, j.config.Rank, "rank %d cannot join at %s: %v", j.config.Rank, j.meeting.text,
			err)
	case errors.Is(err, io.EOF):
		err = plugin.Errorf(plugin.Protocol, "what listens there is not the job's store, and closed the connection")
	}
	return nil, plugin.Errorf(plugin.Protocol, "%w", err)
}

// enter introduces this rank to the store and waits until all ranks have come. It takes the connection over.
func (j *joiner) enter(ctx context.Context, f *frameConn) (*Session, error) {
	c := &j.config
	deadline, _ := ctx.Deadline() // Join set one
	f.resendWithin(c.Silence)
	hello := message{Kind: msgHello, Err: j.unable, Standby: j.stand(), Member: j.self, World: c.World,
		Left: max(time.Until(deadline), 0), Heartbeat: c.Heartbeat, Silence: c.Silence, Process: thisProcess(),
		Parent: identify(os.Getppid())}
	if err := f.write(hello.frame()); err != nil {
		f.Close()
		return nil, plugin.Errorf(plugin.Protocol, "%w", err)
	}
	// The store may have welcomed the ranks meanwhile: then this one fails for all, as if it gave up later.
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_ = f.write((&message{Kind: msgFail, Group: groupJob, Err: rankError(plugin.Aborted, c.Rank,
				"%v stopped waiting for the other ranks", j.self)}).frame()) // if it fails the reader below knows
		}
	})
	defer stop()
	reply, err := j.wait(f, deadline)
	if err != nil {
		f.Close()
		return nil, err
	}
	if reply.Kind == msgRefuse {
		f.Close()
		if reply.Retry && !j.meeting.once {
			if reply.Err.Code == plugin.Mismatch {
				j.told = reply.Err
			}
			return nil, plugin.Errorf(plugin.Protocol, "%w", reply.Err)
		}
		return nil, reply.Err
	}
	if len(reply.Members) != c.World {
		f.Close()
		return nil, plugin.Errorf(plugin.Internal, "join: the store welcomed %d ranks, want %d", len(reply.Members), c.World)
	}
	return newSession(f, reply, c.Rank, j.root, j.hub, j.meeting.secret, c.Timeout, c.Logger), nil
}

// admitted is called when the store has taken this rank in, welcomed when all ranks have come.
var (
	admitted = func() {}         // tests only
	welcomed = func(rank int) {} // tests only
)

// wait waits for the verdict of a store that has proved the secret. Once it has
// taken this rank in, its loss is a death, which no other attempt mends.
func (j *joiner) wait(f *frameConn, deadline time.Time) (*message, error) {
	c := &j.config
	over := make(chan struct{})
	defer close(over)
	go func() { // tells the store that this rank is alive
		ticker := time.NewTicker(c.Heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
				_ = f.write(frame{kind: msgBeat}) // if it fails the reader knows
			}
		}
	}()
	// The store watches the deadline of every rank, so its verdict, which is
	// the same for all, comes first; only a dead or wedged store is not waited for.
	const grace = 2 * time.Second
	name, silence := "", c.Silence
	var watch *processWatch
	defer func() { watch.stop() }()
	for {
		err := f.limitPeer(min(silence, time.Until(deadline.Add(grace))))
		var m *message
		if err == nil {
			m, err = f.receive()
		}
		if err != nil {
			if name == "" {
				return nil, plugin.Errorf(plugin.Protocol, "the store dropped rank %d: %w", c.Rank, err)
			}
			return nil, rankError(plugin.PeerDied, 0, "%s died while rank %d waited for other ranks to join: %s", name, c.Rank,
				f.lossReason(err, silence))
		}
		switch m.Kind {
		case msgAdmit:
			admitted()
			if j.meeting.hosted {
				m.Store.Rank = 0
			}
			if name = m.Store.String(); m.Store.Rank >= 0 {
				name += ", which runs the job's store,"
			}
			if m.Process == thisProcess() {
				silence = neverSilent
			}
			watch.stop()
			watch = watchProcess(m.Process, f.expectEnd)
		case msgBeat:
		case msgWelcome:
			welcomed(c.Rank)
			return m, nil
		case msgRefuse:
			return m, nil
		default:
			return nil, plugin.Errorf(plugin.Protocol, "message %d came, want a welcome", m.Kind)
		}
	}
}

// stand listens where this rank would run the store, unless it shares the
// process of the store that it has found.
func (j *joiner) stand() []place {
	if j.root == nil && j.hub == nil && j.config.World > 1 && j.unable == nil {
		var err error
		if j.hub, j.standby, err = listenOnStandby(j.meeting.places, j.config.Logger); err != nil {
			j.config.Logger.Warn("rendezvous: this rank cannot run the store if it is lost", "rank", j.config.Rank, "reason",
				err)
		}
	}
	if j.root != nil {
		return nil
	}
	return j.standby
}
