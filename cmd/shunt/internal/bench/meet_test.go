package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// few is the transport shm with some collectives alone, and without memory for the host's generic algorithms.
type few struct {
	shm.Transport
	name  string
	has   []plugin.Collective
	dtype plugin.DType // the only one that is reduced
}

func (f few) Info() plugin.Info {
	info := f.Transport.Info()
	info.Name = f.name
	return info
}

func (f few) Supports(req plugin.Request) plugin.Support {
	if req.Collective == plugin.Send || req.Collective == plugin.Recv { // the host asks for them when it starts
		return f.Transport.Supports(req)
	}
	if !slices.Contains(f.has, req.Collective) || (req.Collective.Reduces() && req.DType != f.dtype) {
		return plugin.Support{Reason: "it has no " + req.Collective.String()}
	}
	return f.Transport.Supports(req)
}

func (f few) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := f.Transport.Open(ctx, config)
	return withoutScratch{e}, err
}

type withoutScratch struct{ plugin.Endpoint }

func (e withoutScratch) Regions() []plugin.Region {
	list := slices.Clone(e.Endpoint.Regions())
	for i := range list {
		if list[i].Role == plugin.RegionRoleScratch {
			list[i].Role = plugin.RegionRolePrivate
		}
	}
	return list
}

var fews = []few{
	{name: "few_reduce", has: []plugin.Collective{plugin.AllReduce}, dtype: plugin.Int64},
	{name: "few_float", has: []plugin.Collective{plugin.AllReduce}, dtype: plugin.Float32},
	{name: "few_gather", has: []plugin.Collective{plugin.AllGather}},
	{name: "few_all", has: []plugin.Collective{plugin.AllToAll}},
	{name: "few_broadcast", has: []plugin.Collective{plugin.Broadcast}},
	{name: "few_scatter", has: []plugin.Collective{plugin.ReduceScatter}, dtype: plugin.Float32},
}

func init() {
	for _, f := range fews {
		host.Register(f)
	}
}

// onFew runs a benchmark of goroutines over a transport.
func onFew(t *testing.T, transport string, c Config) ([]Row, error) {
	t.Helper()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	outputs := make([]bytes.Buffer, c.World)
	errs := make([]error, c.World)
	var group sync.WaitGroup
	for i := range c.World {
		group.Go(func() {
			errs[i] = serve(context.Background(), c, json.NewEncoder(&outputs[i]), host.Options{Rank: i, World: c.World,
				ID: id.String(), Transports: []string{"builtin:" + transport}}, 0)
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	var rows []Row
	readers := make([]*json.Decoder, c.World)
	for i := range readers {
		readers[i] = json.NewDecoder(&outputs[i])
	}
	return rows, mergeReports(c, readers, func(r Row) { rows = append(rows, r) })
}

// Transports with one collective are measured, by which the ranks meet too.
func TestBenchWithoutABarrier(t *testing.T) {
	for _, f := range fews {
		t.Run(f.name, func(t *testing.T) {
			c := Config{World: 3, Min: 8, Max: 64, Factor: 8, DType: plugin.Float32, Op: plugin.OpSum, Budget: 1e6}
			if f.dtype != 0 {
				c.DType = f.dtype
			}
			rows, err := onFew(t, f.name, c)
			switch f.name {
			case "few_scatter":
				require.ErrorIs(t, err, plugin.Unsupported)
				require.ErrorContains(t, err, "between measurements all ranks meet in a barrier, all_reduce, all_gather, "+
					"all_to_all or broadcast, and the transport has none of these: barrier")
				return
			case "few_float":
				require.ErrorIs(t, err, plugin.Unsupported)
				require.ErrorContains(t, err, "--iters says it, and the transport has none of these: broadcast")
				c.Iterations = 3
				rows, err = onFew(t, f.name, c)
			}
			require.NoError(t, err)
			c.NoCheck = true
			unchecked, err := onFew(t, f.name, c)
			require.NoError(t, err)
			require.Len(t, unchecked, len(rows))
			for _, row := range rows {
				require.Zero(t, row.Wrong())
				served := row.Collective == f.has[0].String() || row.Collective == "sendrecv"
				require.Equal(t, served, strings.HasPrefix(row.Algorithm, f.name+"/"), row)
			}
		})
	}
}
