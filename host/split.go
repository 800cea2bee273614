package host

import (
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/host/internal/regroup"
)

// NoColor, given to Split, makes this rank a member of no new communicator.
const NoColor = -1

// Split divides the communicator: ranks that give the same color form a new communicator, ordered by key and then by
// rank. It is collective. A rank that gives NoColor gets nil.
func (c *Communicator) Split(ctx context.Context, color, key int) (made *Communicator, err error) {
	defer noteContext(ctx, &err)
	if color < NoColor {
		return nil, c.observer.Invalid("split", "color %d is negative", color)
	}
	number, release, err := c.enterContext(ctx, "split", "split")
	if err != nil {
		return nil, err
	}
	defer release()
	label := fmt.Sprintf("%s/%d", c.Label(), number)
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	all, err := c.group.AllGather(ctx, "split ("+label+")", regroup.Color(color, key))
	if err != nil {
		return nil, c.observer.WrapError("split", err)
	}
	ranks, err := regroup.OfColor(all, color)
	if err != nil {
		return nil, c.observer.WrapError("split", err)
	}
	if color == NoColor {
		return nil, nil
	}
	return c.of(ctx, "split", fmt.Sprintf("%s.%d", label, color), ranks)
}

// Subset makes a new communicator of the given ranks of this one, in this order. Only they call it, each with the
// same ranks; the others need not even be alive, and this communicator may have failed.
func (c *Communicator) Subset(ctx context.Context, ranks []int) (made *Communicator, err error) {
	defer noteContext(ctx, &err)
	if err := c.closed("subset"); err != nil {
		return nil, err
	}
	name, err := regroup.Subset(ranks, c.Rank(), c.World())
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	label := c.Label() + "~" + name // all of these ranks have made as many communicators of themselves
	return c.of(ctx, "subset", fmt.Sprintf("%s.%d", label, c.counters.Next(label)), ranks)
}

// of makes the communicator of some ranks of this one. Where a plugin's process has ended meanwhile, this one has
// failed too when the error is returned.
func (c *Communicator) of(ctx context.Context, what, label string, ranks []int) (*Communicator, error) {
	made, err := newCommunicator(ctx, c.job, what, label, c.member.InJob(ranks), c.observer.Timeout())
	if err != nil {
		c.member.LoseDead()
	}
	return made, regroup.Whose(err, ranks, c.Label())
}
