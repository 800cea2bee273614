package plans

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// Planner finds the plan for every call of one communicator. Only the communicator's turn may use it, except Explain.
type Planner struct {
	*diagnosis.Observer
	Group interface {
		Agree(ctx context.Context, tag string, err error) error
		AllGather(ctx context.Context, tag string, payload []byte) ([][]byte, error)
	}
	Table      *selector.Table
	Memory     plugin.MemoryKind
	PeerRead   bool // every rank can read every other rank's memory
	NVLink     bool // every two GPUs of the ranks are joined by NVLink
	Transports []*Transport
	Absent     map[string]string // transports that the ranks do without, and why
	Device     *executor.Device  // nil for host memory
	Stall      time.Duration     // ranks that stay away from an agreement for longer are reported
	News       time.Duration     // what a rank calls is known to those on other hosts so much later

	// Fail makes the communicator fail; with spread the other ranks learn it.
	Fail func(reason *plugin.Error, spread bool)

	cache      cache
	agreements uint64 // so far, for their tags
	exchanges  int    // likewise, of bytes for plans

	unheard *time.Timer // see connectAll; nil: all could connect
}

// Transport is one transport's endpoint, as plans use it.
type Transport struct {
	Name     string
	Features plugin.Feature
	Ask      func(context.Context, plugin.Request) (plugin.Support, error)
	Endpoint plugin.Endpoint
	Base     uint32         // of the endpoint's regions in the executor's table
	Scratch  *plugin.Region // region of role scratch, if the transport has one
	Enqueues atomic.Bool    // operations on a stream use its code or memory of role local, so graphs may hold it

	aborting sync.Mutex // held while the endpoint is notified of a failure
	stuck    string     // a function of the endpoint that has not returned, for the error of closing it
}

// Known reports whether the plan of a call is prepared.
func (pl *Planner) Known(call *call.Call) bool {
	_, known, _ := pl.Find(call)
	return known
}

// Find returns the plan for a call, if it is prepared. The error is that none takes its size.
func (pl *Planner) Find(call *call.Call) (program Program, known bool, err error) {
	p := pl.cache.lookup(call.Signature())
	if p == nil {
		return Program{}, false, nil
	}
	i := p.choice.Pick(call.Size)
	if i < 0 {
		return Program{}, true, pl.WrapError(call.Collective.String(), p.choice.Unsupported(call.Size))
	}
	return p.programs[i], p.programs[i].loaded(), nil
}

// Prepare compiles and loads plans of a call's signature, the call's own among them, and agrees with all ranks that
// they asked for the same and that all can. It is collective; number is the call's among the collectives.
func (pl *Planner) Prepare(ctx context.Context, number uint64, call *call.Call) (Program, error) {
	key := call.Signature()
	mine := pl.callInfo(number, call)
	limited, cancel := pl.Deadline(ctx)
	defer cancel()
	p := pl.cache.lookup(key)
	var err error
	if p == nil {
		p, err = pl.choose(limited, key)
	}
	var missing []int
	if err == nil {
		mine.Choice, mine.Offers = p.choice.String(), p.choice.Offers()
		missing = pl.missing(p, call.Size)
		if items := pl.planItems(wanted{key, p, missing}); len(items) > 0 {
			mine.Published, err = publish(limited, items)
			mine.fail(err)
			all, differ := pl.compare(ctx, mine, len(items)) // nobody connects unless all call the same
			if differ != nil {
				return Program{}, differ
			}
			limited, cancel = pl.Deadline(ctx) // the last rank has come just now
			defer cancel()
			mine.Published = published{}
			err = pl.connectAll(limited, items, all)
			defer pl.heard()
		}
	}
	if err == nil {
		err = pl.loadAll(limited, key, p, missing)
	}
	mine.fail(err)
	if _, err := pl.compare(ctx, mine, 0); err != nil {
		p.unload(missing)
		return Program{}, err
	}
	pl.cache.store(key, p)
	program, _, err := pl.Find(call)
	return program, err
}

// aloneTypes are the dtypes of the signatures that are prepared before their first call: one of every element size.
var aloneTypes = []plugin.DType{plugin.Uint8, plugin.Float16, plugin.Float32, plugin.Float64}

// PrepareAlone prepares the signatures of some collectives with every element size, and agrees with all ranks that
// they could, that nothing failed before on any rank, and that they chose the same, so that no call needs an agreement.
// It is collective. What it has prepared goes again if a rank could not: ranks that kept different plans would exchange
// different bytes the next time.
func (pl *Planner) PrepareAlone(ctx context.Context, tag string, failed error, collectives ...plugin.Collective) error {
	made, agreed, err := pl.prepareAlone(ctx, collectives, failed)
	if agreed {
		return err
	}
	err = round.Exchange(ctx, pl.Group, tag, round.Agreement(pl.Rank, err), pl.sameChoices(aloneSignatures(collectives)))
	pl.heard()
	if err != nil {
		for _, key := range made {
			pl.cache.drop(key)
		}
	}
	return err
}

// aloneSignatures returns the signatures of some collectives that are prepared before their first call.
func aloneSignatures(collectives []plugin.Collective) (keys []call.Signature) {
	for _, collective := range collectives {
		for _, dtype := range aloneTypes {
			keys = append(keys, call.SignatureOf(collective, dtype, plugin.OpSum))
		}
	}
	return slices.Compact(keys) // those of some collectives have no dtype
}

// PrepareHere is PrepareAlone for one rank, whatever the others do: no endpoint may have to exchange bytes for it.
func (pl *Planner) PrepareHere(ctx context.Context, collectives ...plugin.Collective) error {
	for _, key := range pl.unprepared(collectives) {
		if pl.exchangesBytes(key.Collective) {
			return plugin.Errorf(plugin.Unsupported,
				"the plans of %s need an exchange of bytes between all ranks, which new_window makes", key.Collective)
		}
	}
	_, _, err := pl.prepareAlone(ctx, collectives, nil)
	return err
}

// unprepared returns the signatures of some collectives that have no plans yet.
func (pl *Planner) unprepared(collectives []plugin.Collective) []call.Signature {
	return slices.DeleteFunc(aloneSignatures(collectives),
		func(key call.Signature) bool { return pl.cache.lookup(key) != nil })
}

// prepareAlone returns the signatures that it has prepared, also on error, unless something has failed before. It is
// collective where endpoints exchange bytes; agreed says that all ranks return the same error, and have prepared
// nothing.
func (pl *Planner) prepareAlone(ctx context.Context, collectives []plugin.Collective, failed error) (
	made []call.Signature, agreed bool, err error) {
	keys := pl.unprepared(collectives)
	plans := make([]wanted, len(keys))
	for i, key := range keys {
		if failed == nil {
			plans[i].key = key
			if plans[i].p, failed = pl.choose(ctx, key); failed == nil {
				plans[i].list = plans[i].p.choice.Chosen()
			}
		}
	}
	if slices.ContainsFunc(keys, func(key call.Signature) bool { return pl.exchangesBytes(key.Collective) }) {
		if agreed, failed = pl.exchangeForPlans(ctx, plans, failed); agreed {
			return nil, true, failed
		}
	}
	for _, w := range plans {
		if failed == nil {
			failed = pl.loadAll(ctx, w.key, w.p, w.list)
		}
		if failed != nil {
			break
		}
		pl.cache.store(w.key, w.p)
		made = append(made, w.key)
	}
	return made, false, failed
}

// Explain says what a call of a signature and size would use. It is local and prepares nothing.
func (pl *Planner) Explain(ctx context.Context, key call.Signature, bytes int64) (selector.Explanation, error) {
	choice, err := pl.Choose(ctx, key)
	if err != nil {
		return selector.Explanation{}, err
	}
	return choice.Explain(bytes), nil
}

// informed are the collectives whose algorithms a new communicator's line names; `shunt explain` names those of every
// one.
var informed = []plugin.Collective{plugin.AllReduce, plugin.Broadcast, plugin.AllGather, plugin.ReduceScatter,
	plugin.AllToAll, plugin.Send}

// Inform logs what a new communicator runs on: one line, at level info. gpu are the line's attributes of the device.
func (pl *Planner) Inform(ctx context.Context, gpu ...any) {
	if !pl.Logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	names := make([]string, len(pl.Transports))
	for i, t := range pl.Transports {
		names[i] = t.Name
	}
	line := append([]any{"communicator", pl.Label, "rank", pl.Rank, "world", pl.World, "memory", pl.Memory.String(),
		"transports", strings.Join(names, ", ")}, gpu...)
	for _, collective := range informed {
		choice, err := pl.Choose(ctx, call.SignatureOf(collective, plugin.Float32, plugin.OpSum))
		if err != nil {
			line = append(line, collective.String(), "none: "+err.Error())
			continue
		}
		line = append(line, collective.String(), choice.String())
	}
	pl.Logger.InfoContext(ctx, "communicator made", line...)
}

// Free releases all plans.
func (pl *Planner) Free() { pl.cache.free() }

// TransportTime bounds the calls of transports before the ranks agree on the outcome: two thirds of the remaining time,
// so that the other ranks still learn which transport did not return.
func TransportTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/3*2)
}
