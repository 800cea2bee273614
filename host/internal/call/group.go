package call

import (
	"errors"

	"github.com/shunt-ccl/shunt/plugin"
)

// ToSelf returns the sends of a group from a rank to itself and the receives that belong to them, in order. No peer
// checks them, so their numbers and lengths are compared here.
func ToSelf(rank int, calls []Call) (sends, recvs []*Call, err error) {
	for i := range calls {
		switch c := &calls[i]; {
		case c.Root != rank:
		case c.Collective == plugin.Send:
			sends = append(sends, c)
		case c.Collective == plugin.Recv:
			recvs = append(recvs, c)
		}
	}
	if len(sends) != len(recvs) {
		return nil, nil, plugin.Errorf(plugin.InvalidArgument,
			"group on rank %d: %d sends to itself but %d receives from itself", rank, len(sends), len(recvs))
	}
	var errs []error
	for i := range sends {
		if n, m := sends[i].Slots[plugin.SlotBytes], recvs[i].Slots[plugin.SlotBytes]; n != m {
			errs = append(errs, plugin.Errorf(plugin.Mismatch, "group on rank %d: sends %d bytes to itself but receives %d",
				rank, n, m))
		}
	}
	return sends, recvs, errors.Join(errs...)
}

// Rounds turns the sends and receives of a group into rounds: the k-th message of each ordered pair of ranks belongs to
// round k, on both ends. A round is one all_to_all_v, whose displacements are addresses: each message has memory of its
// own. Messages of one pair thus stay in order, and within a round no rank waits for another's turn. It is reused from
// group to group.
type Rounds struct {
	world  int
	rounds [][]int64 // counts and displacements, of sends and of receives
	used   int
	next   []int // round of the next message, by peer and direction
	peers  []int
}

// Begin empties the rounds.
func (r *Rounds) Begin(world int) {
	if r.next == nil {
		r.world, r.next, r.peers = world, make([]int, 2*world), make([]int, 0, world)
	}
	clear(r.next)
	r.used = 0
}

// Add puts a message into its round.
func (r *Rounds) Add(c *Call) {
	direction, at := 0, c.Send
	if c.Collective == plugin.Recv {
		direction, at = 1, c.Recv
	}
	k := r.next[2*c.Root+direction]
	r.next[2*c.Root+direction]++
	if k >= len(r.rounds) {
		r.rounds = append(r.rounds, make([]int64, 4*r.world))
	}
	for ; r.used <= k; r.used++ {
		clear(r.rounds[r.used])
	}
	arrays := r.rounds[k]
	arrays[2*direction*r.world+c.Root] = c.Slots[plugin.SlotBytes]
	arrays[(2*direction+1)*r.world+c.Root] = int64(uintptr(at))
}

// All returns each round's arrays: the bytes and the addresses of its sends, then those of its receives, by peer.
func (r *Rounds) All() [][]int64 { return r.rounds[:r.used] }

// Partners returns the ranks that the rounds have messages to or from. Others may make no call at all.
func (r *Rounds) Partners() []int {
	r.peers = r.peers[:0]
	for peer := range r.world {
		if r.next[2*peer]+r.next[2*peer+1] > 0 {
			r.peers = append(r.peers, peer)
		}
	}
	return r.peers
}
