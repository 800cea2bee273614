package bootstrap

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// asked reads until a rank is asked whether it is there, and returns the round.
func (u *understudy) asked(f *frameConn) uint64 {
	u.t.Helper()
	require.NoError(u.t, f.limitReads(10*time.Second))
	for {
		m, err := f.receive()
		require.NoError(u.t, err, "nobody asks")
		if m.Kind == msgPing {
			return m.Seq
		}
	}
}

// replies lets a rank say that it is there, and waits until the store has it.
func (u *understudy) replies(f *frameConn, rank int, round, least uint64) {
	u.t.Helper()
	require.NoError(u.t, f.write((&message{Kind: msgPong, Seq: round}).frame()))
	u.until("the store has the reply", func(st *store) bool { return st.members[rank].round >= least })
}

// until waits until something is so at the store.
func (u *understudy) until(what string, is func(st *store) bool) {
	u.t.Helper()
	ctx, st := short(u.t, 10*time.Second), u.root.store
	look := func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return is(st)
	}
	for !look() {
		require.NoError(u.t, ctx.Err(), "until %s", what)
		pause(ctx, time.Millisecond)
	}
}

// A store declares no rank dead before a majority has said that it is there, after the last of the losses: what ranks
// said before, or of rounds that are still to come, does not count.
func TestRanksAreAskedAfterEachLoss(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprint("the second one came=", comes), func(t *testing.T) {
			u := newUnderstudyWith(t, 7, map[int]standing{0: {Dead, rankError(plugin.PeerDied, 0, "rank 0 died")}})
			u.arrive(1)
			ranks := map[int]*frameConn{}
			for _, rank := range []int{2, 3, 4, 5, 6} {
				if rank != 5 || comes {
					ranks[rank] = u.comes(takesInFrom{takesIn{u.root.store}}, u.hello(rank))
					u.expect(ranks[rank], msgWelcome)
				}
			}
			undecided := func() {
				t.Helper()
				u.until("the ranks count as lost", func(st *store) bool { return st.members[6].suspicion != nil })
				u.until("nobody is dead", func(st *store) bool { return st.members[5].state == Alive && st.members[6].state == Alive })
			}
			_ = ranks[6].Close()
			for _, rank := range []int{2, 3, 4} {
				require.Equal(t, uint64(1), u.asked(ranks[rank]))
			}
			u.replies(ranks[2], 2, 99, 1)
			u.replies(ranks[3], 3, 1, 1)
			undecided()

			if comes {
				_ = ranks[5].Close()
			} else {
				u.root.store.suspectLate(5, "it does not come")
			}
			for _, rank := range []int{2, 3, 4} {
				require.Equal(t, uint64(2), u.asked(ranks[rank]))
			}
			u.replies(ranks[4], 4, 1, 1)
			undecided()
			u.replies(ranks[3], 3, 2, 2)
			u.replies(ranks[4], 4, 2, 2)
			undecided()
			u.replies(ranks[2], 2, 2, 2)
			u.until("both are dead", func(st *store) bool { return st.members[5].state == Dead && st.members[6].state == Dead })
		})
	}
}

// A rank that has left needs no proof that it has ended; one that died does, if the others are no majority.
func TestWhoHasLeftIsAccountedFor(t *testing.T) {
	left, died := standing{Left, nil}, standing{Dead, rankError(plugin.PeerDied, 0, "it died")}
	for name, c := range map[string]struct {
		zero, three standing
		continues   bool
	}{
		"both have left": {left, left, true}, "one has died": {left, died, false}, "the first has died": {died, left, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUnderstudyWith(t, 4, map[int]standing{0: c.zero, 3: c.three})
			for _, rank := range []int{1, 2} {
				f := u.arrive(rank, &message{Kind: msgResumed})
				if !c.continues {
					defer func() { // once there was time for proof
						require.Contains(t, u.expect(f, msgRefuse).Err.Message, "it died; ranks 1, 2 of the job's 4 may not go on")
					}()
				}
			}
			if c.continues {
				u.until("the ranks go on", func(st *store) bool { return st.resuming == nil && st.phase == running })
			}
		})
	}
}

// The end of a lost rank's process is proof, for which there is a while after each loss.
func TestProofOfEachLoss(t *testing.T) {
	u := newUnderstudyWith(t, 4, map[int]standing{0: {Left, nil}})
	u.arrive(1)
	children, ends := map[int]*exec.Cmd{}, map[int]*frameConn{}
	for _, rank := range []int{2, 3} {
		children[rank] = exec.Command("sleep", "60")
		require.NoError(t, children[rank].Start())
		hello := u.hello(rank)
		hello.Process = identify(children[rank].Process.Pid)
		ends[rank] = u.comes(takesInFrom{takesIn{u.root.store}}, hello)
		u.expect(ends[rank], msgWelcome)
	}
	for _, rank := range []int{2, 3} {
		_ = ends[rank].Close()
		u.until("there is a while for proof", func(st *store) bool { return !st.proofBy.IsZero() || rank == 2 })
		require.NoError(t, children[rank].Process.Kill())
		_ = children[rank].Wait()
		u.until("the others go on", func(st *store) bool {
			return st.members[rank].state == Dead && st.phase == running && st.proofBy.IsZero()
		})
	}
}

// A rank that says again what it may not, or more than it may, ends its connection, and the store goes on.
func TestWhatARankMayNotSayAgain(t *testing.T) {
	regroup := func(id uint32) *message {
		return &message{Kind: msgRegroup, Group: id, Key: fmt.Sprint(id), Ranks: []int{1, 2}}
	}
	resumed := &message{Kind: msgResumed}
	op := func(group uint32) *message {
		return &message{Kind: msgOp, Group: group, Op: opFirst, Tag: "t", Again: true}
	}
	late := &message{Kind: msgCancel, Group: 7, Tag: "t", Again: true, Err: rankError(plugin.Timeout, 0, "late")}
	root := &message{Kind: msgOp, Group: 1, Op: opRoot, Root: 2, Tag: "t", Again: true}
	for name, c := range map[string]struct {
		early bool // while other ranks have still to report
		said  []*message
	}{
		"a group, after its report":            {true, []*message{regroup(1), resumed, regroup(2)}},
		"a group, after all reports":           {false, []*message{regroup(1), resumed, regroup(2)}},
		"a group twice":                        {true, []*message{regroup(1), regroup(1)}},
		"a group that it is not in":            {true, []*message{{Kind: msgRegroup, Group: 1, Key: "g", Ranks: []int{1, 3}}}},
		"an exchange, after its report":        {true, []*message{regroup(1), resumed, op(1)}},
		"an exchange of no group":              {false, []*message{op(7), resumed}},
		"a root that the group does not have":  {false, []*message{regroup(1), root, resumed}},
		"the end of a group, after its report": {true, []*message{regroup(1), resumed, {Kind: msgUngroup, Group: 1, Again: true}}},
		"the end of its report twice":          {true, []*message{resumed, resumed}},
		"that it gave up in no group":          {false, []*message{late, resumed}},
		"more than all ranks may wait for":     {true, append([]*message{regroup(1)}, many(op(1), 4*maxPending+1)...)},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnderstudyWith(t, 4, map[int]standing{0: {Left, nil}})
			u.arrive(1, resumed)
			three, f := u.arrive(3), u.arrive(2)
			for _, m := range c.said {
				if f.write(m.frame()) != nil {
					break // it is lost already
				}
			}
			if !c.early {
				require.NoError(t, three.write(resumed.frame()))
			}
			u.until("the rank is lost", func(st *store) bool { return st.members[2].gone })
			u.until("the others are there", func(st *store) bool { return !st.members[1].gone && !st.members[3].gone })
		})
	}
}

// many repeats a message.
func many(m *message, n int) []*message {
	list := make([]*message, n)
	for i := range list {
		list[i] = m
	}
	return list
}

// The bytes that a rank says again are bounded, as those are that it says the first time.
func TestBytesThatARankSaysAgain(t *testing.T) {
	u := newUnderstudy(t, 4)
	u.arrive(2)
	st := u.root.store
	st.mu.Lock()
	defer st.mu.Unlock()
	data := make([]byte, maxFrame/2)
	var err error
	for held := 0; err == nil; held += len(data) {
		require.LessOrEqual(t, held, maxHeld)
		err = st.hold(st.members[2], &message{Kind: msgOp, Op: opFirst, Tag: "t", Data: data, Again: true})
	}
	require.ErrorIs(t, err, plugin.Protocol)
	require.LessOrEqual(t, st.members[2].again, maxHeld)
}
