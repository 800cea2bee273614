package host

import (
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/memory"
)

// deferRegions prepares an endpoint's regions of role deferred, after its others were mapped.
func (d *device) deferRegions(a *attached, tag string) {
	regions := a.deferredRegions()
	if len(regions) == 0 {
		return
	}
	ranks := make([]*memory.DeviceMapping, d.comm.world)
	for rank := range ranks {
		ranks[rank] = a.mappings[rank].(deviceMapping).mapping
	}
	a.deferred = memory.NewDeferred(memory.DeferredConfig{
		Driver: d.Driver, Context: d.Context, Device: d.Info.Ordinal, Rank: d.comm.rank, Copies: d.copies,
		Share: d.comm.share, Tag: tag, Ranks: ranks, Before: a.Endpoint.Regions()[0].Handle.Bytes,
		Late: d.comm.observer.MemoryLate,
	}, regions)
}

// partners returns the peers that an operation is with, or nil if it is with all ranks.
func (d *device) partners(call *call.Call) []int {
	if !call.Collective.PointToPoint() {
		return nil
	}
	d.partner[0] = call.Root
	return d.partner[:]
}

// makeDeferred makes what a plan needs of the regions that its endpoint has deferred, on this rank and on the peers
// that take part; nil are all ranks. It waits for peers' processes, but for none of their calls. The caller is
// admitted.
func (d *device) makeDeferred(program plans.Program, peers []int) error {
	if len(program.Deferred) == 0 {
		return nil
	}
	a := d.comm.attachedAt(program.Base)
	for _, i := range program.Deferred {
		if a.deferred.Has(i, peers) {
			continue
		}
		if err := d.mapDeferred(a, i, peers); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) mapDeferred(a *attached, i int, peers []int) error {
	o := &d.comm.observer
	ctx, cancel := o.Deadline(d.comm.job.Context)
	defer cancel()
	ctx, stop := o.Failure.While(ctx)
	defer stop()
	return a.deferred.Map(ctx, i, peers, func(of int, address cuda.Ptr) error {
		r := a.deferred.Region(i)
		return d.exec.SetRegion(a.Base, r.ID, of, address, r.Bytes)
	})
}
