package host

import (
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
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
		Driver: d.driver, Context: d.context, Device: d.info.Ordinal, Rank: d.comm.rank, Copies: d.copies,
		Share: d.comm.share, Tag: tag, Ranks: ranks, Before: a.Endpoint.Regions()[0].Handle.Bytes,
	}, regions)
}

// makeDeferred makes what a plan needs of the regions that its endpoint has deferred, on the ranks that take part. It
// waits for peers' processes, but for none of their calls. The caller is admitted.
func (d *device) makeDeferred(call *call.Call, program plans.Program) error {
	if len(program.Deferred) == 0 {
		return nil
	}
	rank := -1
	if call.Collective == plugin.Send || call.Collective == plugin.Recv {
		rank = call.Root
	}
	a := d.comm.attachedAt(program.Base)
	for _, i := range program.Deferred {
		if a.deferred.Has(i, rank) {
			continue
		}
		ctx, cancel := d.comm.observer.Deadline(d.comm.job.ctx)
		err := a.deferred.Map(ctx, i, rank, func(of int, address cuda.Ptr) error {
			r := a.deferred.Region(i)
			return d.exec.SetRegion(a.Base, r.ID, of, address, r.Bytes)
		})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
