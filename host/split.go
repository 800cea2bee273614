package host

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"

	"github.com/shunt-ccl/shunt/plugin"
)

// NoColor, given to Split, makes this rank a member of no new communicator.
const NoColor = -1

// Split divides the communicator: ranks that give the same color form a new communicator, ordered by key and then by
// rank. It is collective. A rank that gives NoColor gets nil.
func (c *Communicator) Split(ctx context.Context, color, key int) (*Communicator, error) {
	if color < NoColor {
		return nil, c.rejectNamed("split", plugin.Errorf(plugin.InvalidArgument, "split on rank %d: color %d is negative",
			c.rank, color))
	}
	release, err := c.enter("split")
	if err != nil {
		return nil, err
	}
	defer release()
	c.splits++
	label := fmt.Sprintf("%s/%d", c.label, c.splits)
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	var mine [16]byte
	binary.LittleEndian.PutUint64(mine[:], uint64(color))
	binary.LittleEndian.PutUint64(mine[8:], uint64(key))
	answers, err := c.group.AllGather(ctx, "split ("+label+")", mine[:])
	if err != nil {
		return nil, c.observer.WrapError("split", err)
	}
	type member struct{ rank, key int }
	var members []member
	for rank, answer := range answers {
		if len(answer) != len(mine) {
			return nil, plugin.Errorf(plugin.Protocol, "split: rank %d sent %d bytes", rank, len(answer))
		}
		if int(int64(binary.LittleEndian.Uint64(answer))) == color {
			members = append(members, member{rank, int(int64(binary.LittleEndian.Uint64(answer[8:])))})
		}
	}
	if color == NoColor {
		return nil, nil
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	own, ranks := make([]int, len(members)), make([]int, len(members))
	for i, m := range members {
		own[i], ranks[i] = m.rank, c.member.Ranks[m.rank]
	}
	made, err := newCommunicator(ctx, c.job, "split", fmt.Sprintf("%s.%d", label, color), ranks)
	return made, c.sayWhose(err, own)
}

// Subset makes a new communicator of the given ranks of this one, in this order. Only they call it, each with the
// same ranks; the others need not even be alive, and this communicator may have failed.
func (c *Communicator) Subset(ctx context.Context, ranks []int) (*Communicator, error) {
	if err := c.closed("subset"); err != nil {
		return nil, err
	}
	members := make([]int, len(ranks))
	name := fnv.New64a()
	for i, rank := range ranks {
		if rank < 0 || rank >= c.world || slices.Contains(ranks[:i], rank) {
			return nil, plugin.Errorf(plugin.InvalidArgument,
				"subset on rank %d: rank %d is out of range or named twice: the world is %d", c.rank, rank, c.world)
		}
		members[i] = c.member.Ranks[rank]
		_ = binary.Write(name, binary.LittleEndian, uint64(rank)) // a hash takes everything
	}
	if !slices.Contains(ranks, c.rank) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "subset on rank %d: the ranks %v lack this one", c.rank, ranks)
	}
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	label := fmt.Sprintf("%s~%x", c.label, name.Sum64())
	made, err := newCommunicator(ctx, c.job, "subset", fmt.Sprintf("%s.%d", label, c.subsets.next(label)), members)
	return made, c.sayWhose(err, ranks)
}

// sayWhose returns the error with which a new communicator was not made, with who its ranks are here: it numbers them
// as they would have been numbered there.
func (c *Communicator) sayWhose(err error, ranks []int) error {
	same := true
	for i, rank := range ranks {
		same = same && rank == i
	}
	if err == nil || same {
		return err
	}
	shown := strings.ReplaceAll(strings.Trim(fmt.Sprint(ranks[:min(len(ranks), mostShown)]), "[]"), " ", ", ")
	if more := len(ranks) - mostShown; more > 0 {
		shown = fmt.Sprintf("%s and %d more", shown, more)
	}
	whose := &plugin.Error{Code: plugin.CodeOf(err), Rank: -1, Cause: err,
		Message: fmt.Sprintf("%s (its ranks, from 0 on, are ranks %s of %s)", err, shown, c.label)}
	if e := (*plugin.Error)(nil); errors.As(err, &e) && e.Rank >= 0 && e.Rank < len(ranks) {
		whose.Rank = ranks[e.Rank]
	}
	return whose
}

// mostShown bounds the ranks that an error names.
const mostShown = 16

// longestLabel bounds a label, in bytes: it stands in tags, of which the rendezvous takes 255, and it grows with every
// generation of communicators.
const longestLabel = 120

// shortened returns a label of at most longestLabel bytes, on all ranks the same. Of a longer one the middle is
// replaced by a digest of the whole.
func shortened(label string) string {
	if len(label) <= longestLabel {
		return label
	}
	const kept = (longestLabel - 20) / 2
	sum := sha256.Sum256([]byte(label))
	return fmt.Sprintf("%s..%x..%s", label[:kept], sum[:8], label[len(label)-kept:])
}

// counters counts the communicators that were made of the same ranks: all of these have made as many.
type counters struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counters) next(label string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[label]++
	return c.counts[label]
}
