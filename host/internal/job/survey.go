package job

import (
	"context"
	"os"
	"strings"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// newTable reads what the environment and, before it, the options in code say about the choice of algorithms. Rank 0's
// costs will count for all ranks, so another rank's file need not be there.
func (c *Config) newTable(options *option.Options, rank int) (*selector.Table, error) {
	override, err := selector.Parse(c.Algo)
	if err != nil {
		return nil, err
	}
	costs := selector.Costs{Mode: selector.Mode(options.TuningMode()), Numerics: options.Numerics()}
	if c.Memory == plugin.MemoryKindCuda {
		costs.Builtin = selector.Builtin()
	}
	if c.TuningFile != "" {
		if costs.Tuning, err = selector.ReadTuning(c.TuningFile); err != nil {
			if rank == 0 {
				return nil, err
			}
			c.Logger.Warn("tuning file not read; rank 0's costs count", "reason", err)
		}
	}
	return selector.New(selector.WithOverride(override), selector.WithCosts(costs)), nil
}

var communicatorCount atomic.Uint64

// Survey tells the ranks of a communicator that is being made about this one, and learns about them. what names the
// call that makes it, for errors. It is collective.
func (j *Job) Survey(ctx context.Context, m *Member, what string) (*survey.Found, error) {
	names := make([]string, len(m.Loaded))
	for i, l := range m.Loaded {
		names[i] = l.Info.Name + " " + l.Info.Version
	}
	ranks := survey.Survey{Observer: m.Observer, Group: m.Group, Call: what, Memory: j.Memory}
	found, err := ranks.Introduce(ctx, survey.Introduction{
		ID:    uint64(os.Getpid())<<32 | communicatorCount.Add(1)&0xFFFFFFFF,
		Place: j.Place.Encode(), Release: plugin.Release, Transports: strings.Join(names, ", "), Choice: j.Table.Override().Digest(),
		Costs: j.Table.Digest(), Memory: j.Memory.String(), MaxSMs: j.MaxSMs, Checks: j.Checks,
		ShareGPU: j.Options.ShareGPU(), Named: !j.Optional,
	}, j.Options.PeerRead())
	if err != nil {
		return nil, err
	}
	if err := j.takeCosts(ctx, &ranks, found); err != nil {
		return nil, err
	}
	m.Topology = found.Topology
	found.Readers = ranks.PeerRead(found)
	if j.GPU != nil {
		err = ranks.Paths(ctx, j.GPU.Driver)
	}
	return found, err
}

// takeCosts makes rank 0's costs those of this job, where some ranks have others. A rank that cannot take them, as of
// another version, is every rank's error.
func (j *Job) takeCosts(ctx context.Context, ranks *survey.Survey, found *survey.Found) error {
	if len(found.Unlike) == 0 {
		return nil
	}
	text, err := ranks.RankZeros(ctx, "take rank 0's costs", j.Table.Costs().Encode())
	if err != nil {
		return err
	}
	if err = ranks.Group.Agree(ctx, "choose by rank 0's costs ("+ranks.Label+")", j.replaceCosts(text, found)); err != nil {
		return ranks.WrapError(ranks.Call, err)
	}
	return nil
}

var decodeCosts = selector.DecodeCosts // tests replace it

func (j *Job) replaceCosts(text []byte, found *survey.Found) error {
	if j.Table.Digest() == found.Costs {
		return nil
	}
	costs, err := decodeCosts(text)
	if err == nil && costs.Digest() != found.Costs {
		err = plugin.Errorf(plugin.Protocol, "costs have digest %s, want %s", costs.Digest(), found.Costs)
	}
	if err != nil {
		return plugin.Errorf(plugin.Protocol, "rank 0's costs: %w", err)
	}
	j.Logger.Warn("tuning file, SHUNT_TUNING_MODE or SHUNT_NUMERICS differs from rank 0's, which counts", "rank", j.Place.Rank)
	j.Table = selector.New(selector.WithOverride(j.Table.Override()), selector.WithCosts(costs))
	return nil
}
