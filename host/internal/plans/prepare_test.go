package plans

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// planned is an endpoint with two regions and a plan.
type planned struct {
	plugin.Endpoint
	plan func(plugin.Request, string) (*plugin.Plan, error)
}

func (planned) Regions() []plugin.Region { return make([]plugin.Region, 2) }

func (p planned) Prepare(_ context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	return p.plan(req, algorithm)
}

// A plan is for what it was asked for, whatever carrier the transport has, and names regions that there are.
func TestPlansThatServeSomethingElse(t *testing.T) {
	for name, test := range map[string]struct {
		plan func(plugin.Request, string) (*plugin.Plan, error)
		want string
	}{
		"its own": {func(r plugin.Request, algorithm string) (*plugin.Plan, error) {
			b := plugin.NewBuilder(r, algorithm)
			b.Needs(0)
			b.Needs(1)
			return b.Plan()
		}, ""},
		"another collective": {func(r plugin.Request, algorithm string) (*plugin.Plan, error) {
			r.Collective = plugin.Broadcast
			return plugin.NewBuilder(r, algorithm).Plan()
		}, "plan ring is for broadcast ("},
		"another algorithm": {func(r plugin.Request, _ string) (*plugin.Plan, error) {
			return plugin.NewBuilder(r, "tree").Plan()
		}, "plan tree is for another algorithm"},
		"a region too many": {func(r plugin.Request, algorithm string) (*plugin.Plan, error) {
			b := plugin.NewBuilder(r, algorithm)
			b.Needs(2)
			return b.Plan()
		}, "plan ring names region 2, the endpoint has 2"},
	} {
		t.Run(name, func(t *testing.T) {
			pl := &Planner{Observer: &diagnosis.Observer{Rank: 1, World: 2, Topology: &topology.Topology{}},
				Transports: []*Transport{{Name: "t", Endpoint: planned{plan: test.plan}}}}
			key := call.Signature{Collective: plugin.AllReduce, DType: plugin.Float32}
			_, err := pl.prepare(t.Context(), key, selector.Candidate{Algorithm: plugin.Algorithm{Name: "ring"},
				Qualified: "t/ring"})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, plugin.Protocol)
			require.ErrorContains(t, err, "preparing t/ring: "+test.want)
		})
	}
}
