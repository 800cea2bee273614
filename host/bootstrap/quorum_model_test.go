package bootstrap

import (
	"fmt"
	"strings"
	"testing"
)

// The model of succession: what ranks and stores do to each other, with every
// order of events, over the function that decides. It is more generous than the
// code: ranks look for successors in any order, and connections are lost or found
// to be lost at any moment.

const mostModelled = 5

type life uint8

const (
	runs life = iota
	stands
	killed
)

// role is the role of a rank: a follower of the store of rank role, or one of these.
const (
	seeks = 10 + iota
	over  // it has given up
)

// modelStore is the store that a rank runs.
type modelStore struct {
	active  bool
	judged  bool  // it is the first one, or has decided to continue
	folded  bool  //
	members uint8 // ranks it believes connected
	suspect uint8 // lost, not decided
	buried  uint8
}

type modelState struct {
	life               [mostModelled]life
	role               [mostModelled]uint8
	store              [mostModelled]modelStore
	kills, stops, cuts uint8 // faults left
}

type model struct {
	world  int
	quorum func([]whereabouts) bool
}

func (m model) start(kills, stops, cuts uint8) modelState {
	s := modelState{kills: kills, stops: stops, cuts: cuts}
	s.store[0] = modelStore{active: true, judged: true, members: 1<<m.world - 1}
	return s
}

// census returns what the store of rank a believes, or with truth the facts.
func (m model) census(s modelState, a int, truth bool) []whereabouts {
	list := make([]whereabouts, m.world)
	for r := range list {
		connected := s.store[a].members&(1<<r) != 0
		switch {
		case connected && (!truth || (s.role[r] == uint8(a) && s.life[r] != killed)):
			list[r] = present
		case s.life[r] == killed:
			list[r] = ended
		}
	}
	return list
}

// event is a change of one rank or two.
type event struct {
	what string // with a verb for each
	who  [2]int
}

func (e event) String() string {
	return fmt.Sprintf(e.what, []any{e.who[0], e.who[1]}[:strings.Count(e.what, "%")]...)
}

// steps emits the states after each thing that can happen without a fault.
func (m model) steps(s modelState, emit func(what event, next modelState)) {
	for a := range m.world {
		st := s.store[a]
		if st.active && s.life[a] == runs {
			for r := range m.world { // connections are lost
				bit := uint8(1) << r
				if r != a && st.members&bit != 0 && (s.life[r] != runs || s.role[r] != uint8(a)) {
					next := s
					next.store[a].members &^= bit
					next.store[a].suspect |= bit
					emit(event{"store %d loses %d", [2]int{a, r}}, next)
				}
			}
			if st.suspect != 0 || !st.judged {
				believed := m.census(s, a, false)
				alone := true
				for _, w := range believed {
					alone = alone && w != unaccounted
				}
				if !m.quorum(believed) {
					next := s
					next.store[a] = modelStore{folded: true, members: st.members}
					next.role[a] = over
					emit(event{"store %d folds", [2]int{a}}, next)
				} else {
					// Ranks that are stopped, or have another store, do not respond.
					confirmed := m.census(s, a, true)
					for r := range confirmed {
						if confirmed[r] == present && s.life[r] != runs {
							confirmed[r] = unaccounted
						}
					}
					if alone || m.quorum(confirmed) {
						next := s
						next.store[a].judged, next.store[a].suspect = true, 0
						next.store[a].buried = (1<<m.world - 1) &^ st.members
						emit(event{"store %d goes on with %b", [2]int{a, int(st.members)}}, next)
					}
				}
			}
		}
		r := a
		if s.life[r] != runs {
			continue
		}
		if of := s.role[r]; int(of) < m.world && int(of) != r { // a follower
			leader := s.store[of]
			bit := uint8(1) << r
			next := s
			switch {
			case leader.folded && leader.members&bit != 0:
				next.role[r] = over
				emit(event{"%d hears that store %d folds", [2]int{r, int(of)}}, next)
			case s.life[of] != runs || leader.members&bit == 0:
				next.role[r] = seeks
				emit(event{"%d loses store %d", [2]int{r, int(of)}}, next)
			}
		}
		if s.role[r] != seeks {
			continue
		}
		for t := range m.world {
			if t == r || !s.store[t].active || s.life[t] != runs {
				continue
			}
			bit := uint8(1) << r
			next := s
			switch {
			case t == 0 || (s.store[t].buried|s.store[t].suspect)&bit != 0: // the first store takes no rank back
				next.role[r] = over
				emit(event{"%d is turned away by %d", [2]int{r, t}}, next)
			default:
				next.role[r] = uint8(t)
				next.store[t].members |= bit
				emit(event{"%d follows %d", [2]int{r, t}}, next)
			}
		}
		if !s.store[r].active && !s.store[r].folded {
			next := s
			next.role[r] = uint8(r)
			next.store[r] = modelStore{active: true, members: 1 << r}
			emit(event{"%d runs a store", [2]int{r}}, next)
		}
	}
}

func (m model) faults(s modelState, emit func(what event, next modelState)) {
	for r := range m.world {
		if s.life[r] != killed && s.kills > 0 {
			next := s
			next.life[r] = killed
			next.kills--
			emit(event{"kill %d", [2]int{r}}, next)
		}
		if s.life[r] == runs && s.stops > 0 {
			next := s
			next.life[r] = stands
			next.stops--
			emit(event{"stop %d", [2]int{r}}, next)
		}
		if s.life[r] == stands {
			next := s
			next.life[r] = runs
			emit(event{"continue %d", [2]int{r}}, next)
		}
		if of := s.role[r]; int(of) < m.world && int(of) != r && s.cuts > 0 && s.store[of].members&(1<<r) != 0 {
			next := s
			next.role[r] = seeks
			next.cuts--
			emit(event{"cut %d off", [2]int{r}}, next)
		}
	}
}

// wrong returns the violation of a state, two stores that have decided to continue and may, or "". settled says that
// nothing more happens by itself.
func (m model) wrong(s modelState, settled bool) string {
	var worlds, stores []int
	for a := range m.world {
		if !s.store[a].active || s.life[a] == killed {
			continue
		}
		stores = append(stores, a)
		if s.store[a].judged && m.truth(s, a) {
			worlds = append(worlds, a)
		}
	}
	if len(worlds) > 1 {
		return fmt.Sprintf("the stores of ranks %v both go on", worlds)
	}
	if !settled {
		return ""
	}
	for r := range m.world {
		if s.life[r] == stands {
			return ""
		}
	}
	if len(stores) > 1 {
		return fmt.Sprintf("ranks %v run a store each and nothing changes that", stores)
	}
	return ""
}

// truth reports whether the store of rank a continues: the ranks that really have
// it may, or it has nothing more to notice.
func (m model) truth(s modelState, a int) bool {
	if quorum(m.census(s, a, true)) {
		return true
	}
	for r := range m.world {
		if s.store[a].members&(1<<r) != 0 && (s.life[r] == killed || s.role[r] != uint8(a)) {
			return false
		}
	}
	return s.store[a].suspect == 0
}

// explore goes through all states that are reachable, and returns their number
// and how the first wrong one came about.
func (m model) explore(first modelState) (count int, path []string) {
	type from struct {
		state modelState
		what  event
	}
	came := map[modelState]from{first: {}}
	queue := []modelState{first}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		settled := true
		add := func(what event, next modelState) {
			if _, seen := came[next]; !seen {
				came[next] = from{s, what}
				queue = append(queue, next)
			}
		}
		m.steps(s, func(what event, next modelState) {
			settled = false
			add(what, next)
		})
		if why := m.wrong(s, settled); why != "" {
			path = []string{why}
			for s != first {
				path = append([]string{came[s].what.String()}, path...)
				s = came[s].state
			}
			return len(came), path
		}
		m.faults(s, add)
	}
	return len(came), nil
}

// Whatever is killed, stopped or cut off, and in whatever order ranks notice,
// there are never two worlds. Other decisions, with the one before this
// first of all, have two.
func TestNeverTwoWorlds(t *testing.T) {
	type budget struct {
		world              int
		kills, stops, cuts uint8
	}
	budgets := []budget{{2, 1, 2, 1}, {3, 2, 2, 1}, {4, 2, 1, 1}, {5, 1, 1, 0}}
	for _, b := range budgets {
		count, path := model{b.world, quorum}.explore(model{b.world, quorum}.start(b.kills, b.stops, b.cuts))
		t.Logf("%+v: %d states", b, count)
		if path != nil {
			t.Errorf("%+v: %q", b, path)
		}
	}
	mutants := map[string]func([]whereabouts) bool{
		"whoever does not come is dead": func([]whereabouts) bool { return true },
		"no proof that rank 0 counts": func(ranks []whereabouts) bool {
			count := 0
			for _, w := range ranks {
				if w == present {
					count++
				}
			}
			return 2*count >= len(ranks)
		},
		"a third": func(ranks []whereabouts) bool {
			count := 0
			for _, w := range ranks {
				if w == present {
					count++
				}
			}
			return 3*count >= len(ranks)
		},
	}
	// Half-way: rank 0 continues with ranks 3 and 4, and rank 1, with rank 2, may not.
	divided := model{world: 5}.start(2, 0, 0)
	divided.role = [mostModelled]uint8{0, 1, 1, 0, 0}
	divided.store[0] = modelStore{active: true, judged: true, members: 0b11001, buried: 0b00110}
	divided.store[1] = modelStore{active: true, members: 0b00110}
	if _, path := (model{5, quorum}).explore(divided); path != nil {
		t.Errorf("%q", path)
	}
	for name, decision := range mutants {
		_, path := model{2, decision}.explore(model{2, decision}.start(1, 1, 1))
		if path == nil {
			_, path = model{4, decision}.explore(model{4, decision}.start(1, 1, 0))
		}
		if path == nil {
			t.Errorf("%s: the model sees nothing wrong in it", name)
		}
		t.Logf("%s: %q", name, path)
	}
}
