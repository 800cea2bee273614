package bootstrap

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Limits of what one rank can make the store keep.
const (
	maxGroups  = 4096            // of one rank
	maxPending = 1024            // collectives of one group
	maxWaiting = 16 * maxPending // collectives that one rank waits in, of all groups
	maxHeld    = 64 << 20        // bytes of data in collectives that are not complete, in all groups
	maxEmpty   = maxParted       // groups for each rank that all who came have closed, while others are still to come
)

// storeGroup is a group of ranks at the store. Its errors number them by their places in it, as its communicator does.
type storeGroup struct {
	store   *store
	key     string
	ranks   []int                  // of the session, in the group's order
	index   map[int]int            // rank → place in the group
	ids     map[int]uint32         // what a rank calls the group
	parted  map[int]bool           // ranks that have closed it
	pending map[string]*collective // by tag
	failed  *plugin.Error          // every collective but survivors returns this
	aborted bool                   // a rank made it fail, see Group.Fail
	seq     uint64                 // results so far
	history *history               // what the ranks have received from a lost store; nil: there was none
}

// allGroups ranges over the groups. The caller holds mu.
func (st *store) allGroups() iter.Seq[*storeGroup] {
	return func(yield func(*storeGroup) bool) {
		for _, sameKey := range st.groups {
			for _, g := range sameKey {
				if !yield(g) {
					return
				}
			}
		}
	}
}

// collective is one operation in progress.
type collective struct {
	kind  opKind
	root  int
	data  [][]byte
	have  []bool
	count int
	// a failed collective stays until every rank has come, so that late ranks get
	// the same error
	err   *plugin.Error
	seq   uint64 // its number within the group, once it has failed
	round uint64 // survivors: of questions to the ranks that have come
}

// joinGroup enters m in the group that msg describes. The caller holds mu.
func (st *store) joinGroup(m *member, msg *message) error {
	if m.groups[msg.Group] != nil {
		return plugin.Errorf(plugin.Protocol, "group %d is there already", msg.Group)
	}
	if len(m.groups) >= maxGroups+maxParted {
		return plugin.Errorf(plugin.Protocol, "there are more than %d groups", maxGroups+maxParted)
	}
	if err := checkRanks(msg.Ranks, st.world, m.who.Rank); err != nil {
		return plugin.Errorf(plugin.Protocol, "%w", err)
	}
	var g, conflict *storeGroup
	for _, other := range st.groups[msg.Key] {
		if slices.Equal(other.ranks, msg.Ranks) {
			g = other
		} else if slices.ContainsFunc(msg.Ranks, func(rank int) bool { _, ok := other.index[rank]; return ok }) {
			conflict = other
		}
	}
	if g == nil {
		g = &storeGroup{store: st, key: msg.Key, ranks: msg.Ranks, index: map[int]int{}, ids: map[int]uint32{},
			parted: map[int]bool{}, pending: map[string]*collective{}}
		for i, rank := range msg.Ranks {
			g.index[rank] = i
		}
		st.groups[msg.Key] = append(st.groups[msg.Key], g)
		if reason := firstEnd(st.inOrder(g.ranks), func(rank int) (Member, State, *plugin.Error) {
			other := st.members[rank]
			return other.who, other.state, other.reason
		}); reason != nil {
			g.fail(numbered(reason, g.ranks, g.key))
		}
	}
	if _, ok := g.ids[m.who.Rank]; ok {
		return plugin.Errorf(plugin.Protocol, "group %q is there already", msg.Key)
	}
	g.ids[m.who.Rank] = msg.Group
	m.groups[msg.Group] = g
	st.empty = slices.DeleteFunc(st.empty, func(other *storeGroup) bool { return other == g })
	if conflict != nil {
		for _, g := range []*storeGroup{g, conflict} {
			g.fail(rankError(plugin.Mismatch, slices.Index(g.ranks, m.who.Rank),
				"ranks disagree about the members of group %q: %v says %v, another says %v", msg.Key, m.who, msg.Ranks,
				conflict.ranks))
		}
	}
	return nil
}

// inOrder returns ranks, for a successor with those of the lost store's process last: a death that the lost store has
// told of came before its own. The caller holds mu.
func (st *store) inOrder(ranks []int) []int {
	if st.resuming == nil {
		return ranks
	}
	its := func(rank int) bool { return slices.Contains(st.resuming.its, rank) }
	last := slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool { return !its(rank) })
	return append(slices.DeleteFunc(slices.Clone(ranks), its), last...)
}

// checkRanks checks a list of members: distinct, in range, with self among them.
func checkRanks(ranks []int, world, self int) error {
	seen := make([]bool, world)
	for _, rank := range ranks {
		if rank < 0 || rank >= world || seen[rank] {
			return plugin.Errorf(plugin.InvalidArgument, "group of ranks %v: rank %d is twice in it or outside of 0 to %d",
				ranks, rank, world-1)
		}
		seen[rank] = true
	}
	if self < 0 || self >= world || !seen[self] {
		return plugin.Errorf(plugin.InvalidArgument, "group of ranks %v: rank %d is not in it", ranks, self)
	}
	return nil
}

// leaveGroup forgets m's number for a group. The group stays until no rank is still to join it: the last one must learn
// of its failure too. The caller holds mu.
func (st *store) leaveGroup(m *member, id uint32) {
	g := m.groups[id]
	if g == nil {
		return
	}
	delete(m.groups, id)
	delete(g.ids, m.who.Rank)
	g.parted[m.who.Rank] = true
	if !m.gone && g.awaits() {
		rank := g.index[m.who.Rank]
		g.fail(rankError(plugin.Closed, rank, "%v has closed group %q", m.who.as(rank), g.key))
	}
	g.recount()
	if len(g.ids) > 0 {
		return
	}
	for tag, c := range g.pending {
		if c.err == nil { // else ranks that are still to call it get the same error
			g.drop(c)
			g.end(tag)
		}
	}
	if !g.awaits() {
		st.forget(g)
		return
	}
	st.empty = append(st.empty, g)
	if len(st.empty) > maxEmpty*st.world {
		st.forget(st.empty[0])
	}
}

// awaits reports whether a rank is in the group or may still join it. The caller holds the store's mu.
func (g *storeGroup) awaits() bool {
	return slices.ContainsFunc(g.ranks, func(rank int) bool { return !g.parted[rank] && !g.store.members[rank].gone })
}

// forget removes a group that no rank is in. The caller holds mu.
func (st *store) forget(g *storeGroup) {
	st.open -= len(g.pending)
	is := func(other *storeGroup) bool { return other == g }
	st.empty = slices.DeleteFunc(st.empty, is)
	if st.groups[g.key] = slices.DeleteFunc(st.groups[g.key], is); len(st.groups[g.key]) == 0 {
		delete(st.groups, g.key)
	}
}

// contribute takes one rank's part of a collective and replies to all when the last
// part has come. The caller holds mu.
func (st *store) contribute(m *member, msg *message) error {
	g := m.groups[msg.Group]
	if g == nil {
		return plugin.Errorf(plugin.Protocol, "a collective names group %d, which is unknown", msg.Group)
	}
	if msg.Op == opRoot && msg.Root >= len(g.ranks) {
		return plugin.Errorf(plugin.Protocol, "root %d is out of range: the group has %d ranks", msg.Root, len(g.ranks))
	}
	me := g.index[m.who.Rank]
	c := g.pending[msg.Tag]
	if g.failed != nil && (c == nil || c.have[me]) && msg.Op != opSurvivors {
		g.reply(m.who.Rank, msg.Tag, 0, g.failed)
		return nil
	}
	if c != nil && c.have[me] && c.err != nil { // it tries again a collective whose end others are still to receive
		g.reply(m.who.Rank, msg.Tag, c.seq, c.err)
		return nil
	}
	if c == nil {
		var limit string
		if len(g.pending) >= maxPending {
			limit = fmt.Sprintf("at most %d exchanges may wait at once, also those of ranks that gave up", maxPending)
		} else if m.waits(st) >= maxWaiting {
			limit = fmt.Sprintf("a rank may wait in at most %d exchanges of all its groups", maxWaiting)
		}
		if limit != "" { // nothing is kept of it: the limit is on what is kept
			g.reply(m.who.Rank, msg.Tag, 0, rankError(plugin.OutOfMemory, me, "waiting for %s: %s",
				purposeOf(msg.Tag, g.key), limit))
			return nil
		}
		c = g.begin(msg.Tag)
		c.kind, c.root = msg.Op, msg.Root
	}
	if c.have[me] {
		// A session waits for a tag once at a time: it has given up, while the store was silent, and calls again.
		m.held -= len(c.data[me])
		c.data[me] = nil
	} else {
		c.have[me], c.count = true, c.count+1
	}
	if m.held+len(msg.Data) > maxHeld {
		err := rankError(plugin.OutOfMemory, me,
			"waiting for %s: rank %d has %d bytes in exchanges that wait for other ranks, want at most %d",
			purposeOf(msg.Tag, g.key), me, m.held+len(msg.Data), maxHeld)
		if c.err == nil {
			g.failOne(msg.Tag, c, err, me)
		}
	} else if c.err == nil {
		c.data[me] = msg.Data
		m.held += len(msg.Data)
	}
	if c.err == nil && (c.kind != msg.Op || c.root != msg.Root) {
		other := slices.Index(c.have, true)
		if other == me {
			other = me + 1 + slices.Index(c.have[me+1:], true)
		}
		g.failOne(msg.Tag, c, rankError(plugin.Mismatch, me,
			"ranks disagree, waiting for %s: rank %d asks for another operation or root than rank %d",
			purposeOf(msg.Tag, g.key), me, other), me)
	}
	if c.err != nil {
		g.reply(m.who.Rank, msg.Tag, c.seq, c.err)
	}
	g.complete(msg.Tag, c)
	return nil
}

// begin makes a collective that no rank has called yet. The caller holds the store's mu.
func (g *storeGroup) begin(tag string) *collective {
	c := &collective{data: make([][]byte, len(g.ranks)), have: make([]bool, len(g.ranks))}
	if g.pending[tag] == nil {
		g.store.open++
	}
	g.pending[tag] = c
	return c
}

// end forgets a collective. The caller holds the store's mu.
func (g *storeGroup) end(tag string) {
	delete(g.pending, tag)
	g.store.open--
}

// complete replies to the ranks of a collective if all that it waits for have come. The caller
// holds the store's mu.
func (g *storeGroup) complete(tag string, c *collective) {
	for i, rank := range g.ranks {
		if c.have[i] {
			continue
		}
		// A rank that is no longer there is not waited for where that is the
		// question, or where only the place of a failed collective is kept.
		if gone := g.store.members[rank].state != Alive || g.parted[rank]; gone && (c.kind == opSurvivors || c.err != nil) {
			continue
		}
		return
	}
	if c.kind == opSurvivors && c.err == nil && !g.here(c) {
		return // until they reply, or are lost
	}
	g.end(tag)
	defer g.drop(c)
	if c.err != nil {
		return // all ranks have their reply
	}
	var payload []byte
	switch c.kind {
	case opGather, opSurvivors:
		parts, total := slices.Clone(c.data), 0
		for i, rank := range g.ranks {
			if c.kind == opSurvivors && (g.parted[rank] || g.store.members[rank].state != Alive) {
				parts[i] = nil
			}
			total += 4 + len(parts[i])
		}
		if total > maxFrame/2 {
			g.failOne(tag, c, rankError(plugin.InvalidArgument, -1,
				"waiting for %s: they have %d bytes to exchange, want at most %d", purposeOf(tag, g.key), total, maxFrame/2), -1)
			return
		}
		payload = encodeParts(parts)
	case opFirst:
		for _, d := range c.data {
			if len(d) > 0 {
				payload = d
				break
			}
		}
	case opRoot:
		payload = c.data[c.root]
	}
	g.seq++
	for i, rank := range g.ranks {
		if c.have[i] {
			g.tell(rank, &message{Kind: msgResult, Tag: tag, Seq: g.seq, Data: payload})
		}
	}
}

// here asks the ranks that have called a collective whether they still take part: a
// rank's message may have waited while this process was stopped, and the rank may have
// another store since. The caller holds the store's mu.
func (g *storeGroup) here(c *collective) bool {
	if c.round == 0 {
		c.round = g.store.question()
	}
	return !slices.ContainsFunc(g.ranks, func(rank int) bool { return g.unheard(c, rank) })
}

// unheard reports whether a rank that has called a collective has still to say that it takes part. The caller holds the
// store's mu.
func (g *storeGroup) unheard(c *collective, rank int) bool {
	m := g.store.members[rank]
	return c.round > 0 && c.have[g.index[rank]] && m.state == Alive &&
		(m.suspicion != nil || (!m.gone && !m.replied(c.round)))
}

// recount completes what no longer has to wait for a rank that has gone. The
// caller holds the store's mu.
func (g *storeGroup) recount() {
	for tag, c := range g.pending {
		g.complete(tag, c)
	}
}

// reply tells a rank that a collective has failed, and its number; 0 if the group has failed, or nothing is kept of it.
func (g *storeGroup) reply(rank int, tag string, seq uint64, err *plugin.Error) {
	g.tell(rank, &message{Kind: msgResult, Tag: tag, Seq: seq, Err: err})
}

// tell sends a member a message about the group.
func (g *storeGroup) tell(rank int, msg *message) {
	m, id := g.store.members[rank], g.ids[rank]
	if _, here := g.ids[rank]; !here || m.gone {
		return
	}
	msg.Group = id
	m.send(msg.frame())
}

// failOne makes one collective fail for every rank that has come, except the one at
// place except, and for those that will come. The caller holds the store's mu.
func (g *storeGroup) failOne(tag string, c *collective, err *plugin.Error, except int) {
	g.seq++
	c.err, c.seq = err, g.seq
	for i, rank := range g.ranks {
		if c.have[i] && i != except {
			g.reply(rank, tag, c.seq, err)
		}
	}
	g.drop(c)
}

// drop releases the data of a collective. The caller holds the store's mu.
func (g *storeGroup) drop(c *collective) {
	for i, rank := range g.ranks {
		g.store.members[rank].held -= len(c.data[i])
		c.data[i] = nil
	}
}

// fail makes every collective of the group fail from now on; the first reason
// stays. The caller holds the store's mu.
func (g *storeGroup) fail(err *plugin.Error) {
	if g.failed == nil {
		g.failed = err
	}
	for tag, c := range g.pending {
		if c.kind == opSurvivors {
			continue
		}
		if c.err == nil {
			g.failOne(tag, c, g.failed, -1)
			g.end(tag) // late ranks receive g.failed, those of a collective that failed before by its error
		}
	}
	g.recount()
}

// cancel takes the message of a rank that waits no longer: the collective fails for
// all ranks, with an error that names those that had not come, or not said that they take part. The caller holds mu.
func (st *store) cancel(m *member, msg *message) error {
	g := m.groups[msg.Group]
	if g == nil {
		return plugin.Errorf(plugin.Protocol, "the cancellation names group %d, which is unknown", msg.Group)
	}
	c := g.pending[msg.Tag]
	if c == nil || !c.have[g.index[m.who.Rank]] || c.err != nil {
		return nil // its reply has been sent meanwhile
	}
	var missing []int
	for i, rank := range g.ranks {
		other := st.members[rank]
		if (!c.have[i] && other.state == Alive && !g.parted[rank]) || (other != m && g.unheard(c, rank)) {
			missing = append(missing, i)
		}
	}
	err := *msg.Err
	if len(missing) > 0 {
		if err.Code == plugin.Timeout {
			err.Rank = missing[0]
		}
		err.Message += ", still without " + g.named(missing)
	}
	g.failOne(msg.Tag, c, &err, -1)
	g.complete(msg.Tag, c)
	return nil
}

// named names ranks by their places in the group and, of a few, the processes. The caller holds the store's mu.
func (g *storeGroup) named(places []int) string {
	if len(places) > 4 {
		return rankList(places)
	}
	var names []string
	for _, i := range places {
		names = append(names, g.store.members[g.ranks[i]].who.as(i).String())
	}
	return strings.Join(names, ", ")
}

// giveUp spreads a rank's failure, of the whole job or of one group. The
// caller holds mu.
func (st *store) giveUp(m *member, msg *message) error {
	if msg.Group == groupJob {
		if m.state == Alive {
			m.state = GaveUp
			st.announce(m, msg.Err)
		}
		return nil
	}
	g := m.groups[msg.Group]
	if g == nil {
		return plugin.Errorf(plugin.Protocol, "the failure names group %d, which is unknown", msg.Group)
	}
	var others []*member
	for _, rank := range g.ranks {
		if other := st.members[rank]; other != m {
			others = append(others, other)
		}
	}
	tellAll((&message{Kind: msgEvent, Rank: m.who.Rank, State: m.state, Key: g.key, Err: msg.Err}).frame(), others)
	g.aborted = true
	g.fail(msg.Err)
	return nil
}
