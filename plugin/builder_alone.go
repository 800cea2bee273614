package plugin

// CopyOwn copies the block that a rank sends to itself in all_gather, all_to_all,
// gather and scatter and their forms with varying counts; in the last two only the
// root has one.
func (b *Builder) CopyOwn() {
	rank, zero := b.plan.Rank, b.Const(0)
	switch b.plan.Collective {
	case AllGather, AllGatherV, Gather, GatherV:
		b.Copy(b.Recv(b.RecvDispl(rank)), b.Send(zero), b.RecvCount(rank))
	case AllToAll, AllToAllV:
		b.Copy(b.Recv(b.RecvDispl(rank)), b.Send(b.SendDispl(rank)), b.SendCount(rank))
	case Scatter, ScatterV:
		b.Copy(b.Recv(zero), b.Send(b.SendDispl(rank)), b.SendCount(rank))
	default:
		b.fail("a rank has no block of its own in %s", b.plan.Collective)
	}
}

// Alone writes the plan of a collective in a world of one: a copy, rounded as
// a contribution would be. The sum, product, minimum, maximum and average of
// one rank are its data. A barrier and what involves a peer need nothing from it.
func (b *Builder) Alone() {
	zero, bytes := b.Const(0), b.Slot(SlotBytes)
	b.Track(func() {
		switch b.plan.Collective {
		case AllReduce, Reduce, Broadcast:
			b.Copy(b.Recv(zero), b.SendScaled(zero), bytes)
		case AllGather, AllGatherV, Gather, GatherV:
			b.Copy(b.Recv(b.RecvDispl(0)), b.Send(zero), bytes)
		case ReduceScatter, ReduceScatterV, Scatter, ScatterV:
			b.Copy(b.Recv(zero), b.SendScaled(b.SendDispl(0)), bytes)
		case AllToAll, AllToAllV:
			b.CopyOwn()
		}
	})
}
