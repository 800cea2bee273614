package plugin

// CopyOwn copies the block that a rank sends to itself, where the collective
// has one for every rank.
func (b *Builder) CopyOwn() {
	rank := b.plan.Rank
	b.Copy(b.Recv(b.RecvDispl(rank)), b.Send(b.SendDispl(rank)), b.SendCount(rank))
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
