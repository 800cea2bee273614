package bootstrap

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// No message of a rank ends the store's process, whatever has become of the job. While ranks are awaited, or may be
// claimed by another job, a rank may only live or give up: any other message fails joining, and the others hear nothing
// else before.
func TestMessagesInEveryPhase(t *testing.T) {
	claims(t, time.Hour)
	two := func(t *testing.T) (*store, *candidate) {
		r := openRoot(t)
		zero := comes(t, r, 0, 1, parentOf(1), false)
		comes(t, r, 1, 2, parentOf(2), false)
		return r.store, zero
	}
	phases := map[string]func(t *testing.T) (st *store, rank int, other *candidate){
		"a rank is awaited": func(t *testing.T) (*store, int, *candidate) {
			r := openRoot(t)
			comes(t, r, 0, 1, parentOf(1), false)
			return r.store, 0, nil
		},
		"ranks may be claimed": func(t *testing.T) (*store, int, *candidate) {
			st, zero := two(t)
			return st, 1, zero
		},
		"all ranks are there": func(t *testing.T) (*store, int, *candidate) {
			st, _ := two(t)
			st.mu.Lock()
			st.begin()
			st.mu.Unlock()
			return st, 1, nil
		},
		"the store takes over": func(t *testing.T) (*store, int, *candidate) {
			u := newUnderstudyThatKnows(t, 4, 0)
			u.arrive(2)
			return u.root.store, 2, nil
		},
		"joining has failed": func(t *testing.T) (*store, int, *candidate) {
			st, _ := two(t)
			st.mu.Lock()
			st.failJoin(rankError(plugin.Aborted, 0, "rank 0 stopped waiting"))
			st.mu.Unlock()
			return st, 1, nil
		},
		"the store has ended": func(t *testing.T) (*store, int, *candidate) {
			st, _ := two(t)
			st.stop()
			return st, 1, nil
		},
	}
	for name, reach := range phases {
		for _, msg := range messages() {
			t.Run(fmt.Sprintf("%s, message %d again=%v", name, msg.Kind, msg.Again), func(t *testing.T) {
				st, rank, other := reach(t)
				st.mu.Lock()
				m, was := st.members[rank], st.phase
				if was == running {
					for id := range uint32(10) { // so that the message is about a group that is there
						if id != msg.Group || msg.Kind != msgGroup {
							require.NoError(t, st.joinGroup(m, &message{Group: id, Key: fmt.Sprint(id), Ranks: []int{0, rank}}))
						}
					}
				}
				st.mu.Unlock()
				err := st.handle(m, msg)
				if err != nil {
					st.lost(m, err)
				}
				switch {
				case was == failed || was == stopped:
					require.Equal(t, errParted, err)
				case was == running:
				case msg.Kind == msgBeat:
					require.NoError(t, err)
					require.True(t, st.gathering())
				default:
					if msg.Kind != msgFail {
						require.Equal(t, plugin.Protocol, plugin.CodeOf(err))
					}
					require.False(t, st.gathering())
					if other != nil {
						other.until(t, msgEvent)
						require.NotNil(t, other.reply, "it hears what became of a rank before the job has begun")
						require.Equal(t, st.failure, other.reply.Err)
					}
				}
			})
		}
	}
}
