package bootstrap

// A rank's side of the collectives of groups: it sends its part and waits for the store's reply.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

type waitKey struct {
	group uint32
	tag   string
}

// waiter is a collective in progress.
type waiter struct {
	reply  chan *message // capacity 1
	op     message       // this rank's part
	short  bool          // it has less time than calls get: what came before has taken the rest
	cancel *plugin.Error // set once this rank waits no longer
}

// call runs one collective of a group: contribute, then wait for the reply.
func (s *Session) call(ctx context.Context, g *Group, op opKind, root int, tag string, data []byte) ([]byte, error) {
	if len(tag) > maxTag {
		return nil, plugin.Errorf(plugin.InvalidArgument, "a tag has %d characters, want at most %d", len(tag), maxTag)
	}
	if len(data) > maxFrame/2 {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%q on rank %d: the message has %d bytes, want at most %d", tag,
			g.rank, len(data), maxFrame/2)
	}
	whole := g.Timeout()
	limit := whole
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	began := time.Now()
	k := waitKey{g.id, tag}
	w := &waiter{reply: make(chan *message, 1), short: limit < whole/4*3, op: message{Kind: msgOp, Group: g.id, Op: op,
		Root: root, Tag: tag, Data: data}}
	if err := s.begin(k, w, g); err != nil {
		return nil, err
	}
	s.exchanges.Add(1)
	m := s.await(ctx, limit, k, w, g, began)
	if m.Err != nil {
		return nil, m.Err
	}
	return m.Data, nil
}

// begin notes and sends this rank's part of a collective.
func (s *Session) begin(k waitKey, w *waiter, g *Group) error {
	s.out.Lock()
	defer s.out.Unlock()
	if err := s.note(k, w, g); err != nil {
		return err
	}
	s.say(&w.op)
	return nil
}

// note makes the reply to a collective find its waiter.
func (s *Session) note(k waitKey, w *waiter, g *Group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.end != nil:
		return g.sessionEnd()
	case s.groups[k.group] == nil:
		return g.closedError()
	case s.waiters[k] != nil:
		return plugin.Errorf(plugin.InvalidArgument, "rank %d waits for %s twice at once", g.rank, purposeOf(k.tag, g.key))
	}
	s.waiters[k] = w
	return nil
}

// purposeOf says in words what the ranks of a group meet for: a tag is a verb phrase,
// and what tells it from others of its kind stands in brackets behind it.
func purposeOf(tag, group string) string {
	words, _, _ := strings.Cut(tag, " (")
	if group == "" {
		return "all ranks to " + words
	}
	return fmt.Sprintf("the ranks of %q to %s", group, words)
}

// await waits for the reply. When the limit passes or the context is canceled first, the store is asked to fail the
// collective on all ranks, and its verdict is waited for, so that all ranks return the same.
func (s *Session) await(ctx context.Context, limit time.Duration, k waitKey, w *waiter, g *Group,
	began time.Time) *message {
	part := limit / waitParts
	timer := time.NewTimer(part)
	defer timer.Stop()
	over, canceled := ctx.Done(), false
	for parts := waitParts; parts > 0 && !canceled; {
		select {
		case m := <-w.reply:
			return m
		case <-s.ended:
			return s.afterEnd(k, w, g)
		case <-timer.C:
			parts--
			timer.Reset(part)
		case <-over:
			over, canceled = nil, !errors.Is(ctx.Err(), context.DeadlineExceeded)
		}
	}
	left := ""
	if w.short { // the others may be as late
		left = ", all the time that was left,"
	}
	err := rankError(plugin.Timeout, g.rank, "rank %d waited %v%s for %s", g.rank,
		time.Since(began).Round(time.Millisecond), left, purposeOf(k.tag, g.key))
	if canceled {
		err = rankError(plugin.Aborted, g.rank, "rank %d gave up waiting for %s", g.rank, purposeOf(k.tag, g.key))
	}
	s.cancel(k, w, err)
	grace := s.heartbeat + time.Second
	timer.Reset(grace)
	for {
		select {
		case m := <-w.reply:
			return m
		case <-s.ended:
			return s.afterEnd(k, w, g)
		case <-timer.C:
			if !s.settling() {
				return s.abandon(k, w, err)
			}
			timer.Reset(grace)
		}
	}
}

// abandon ends a call that neither other ranks nor the store have ended. Should the store be lost afterwards, its
// successor tells the others why; one that is being found may have a result for them.
func (s *Session) abandon(k waitKey, w *waiter, err *plugin.Error) *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiters, k)
	select {
	case m := <-w.reply: // it came with the timer
		return m
	default:
	}
	late := *err
	late.Message += "; the store does not respond either"
	if g := s.groups[k.group]; g != nil {
		g.keep(recent{tag: k.tag, err: &late})
	}
	return &message{Err: &late}
}

// cancel notes and says that this rank waits no longer, unless the reply has come meanwhile.
func (s *Session) cancel(k waitKey, w *waiter, err *plugin.Error) {
	s.out.Lock()
	defer s.out.Unlock()
	s.mu.Lock()
	waits := s.waiters[k] == w
	w.cancel = err
	s.mu.Unlock()
	if waits {
		s.say(&message{Kind: msgCancel, Group: k.group, Tag: k.tag, Err: err})
	}
}

// closedError returns the error of using a group that this rank has closed.
func (g *Group) closedError() *plugin.Error {
	return rankError(plugin.Closed, g.rank, "rank %d has closed group %q", g.rank, g.key)
}

// sessionEnd returns why the session has ended, with ranks as the group numbers them. The caller holds session.mu.
func (g *Group) sessionEnd() *plugin.Error { return numbered(g.session.end, g.ranks, g.key) }

// afterEnd returns the result of a session that has ended, unless the collective's
// own came before.
func (s *Session) afterEnd(k waitKey, w *waiter, g *Group) *message {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiters, k)
	select {
	case m := <-w.reply:
		return m
	default:
		return &message{Err: g.sessionEnd()}
	}
}
