package host_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// unmappable is shm, but the host cannot map rank 1's first region.
type unmappable struct{ shm.Transport }

type unmappableEndpoint struct{ plugin.Endpoint }

func init() { host.Register(unmappable{}) }

func (u unmappable) Info() plugin.Info {
	i := u.Transport.Info()
	i.Name = "unmappable"
	return i
}

func (u unmappable) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := u.Transport.Open(ctx, c)
	if err == nil && c.Rank == 1 {
		e = unmappableEndpoint{e}
	}
	return e, err
}

func (u unmappableEndpoint) Regions() []plugin.Region {
	list := slices.Clone(u.Endpoint.Regions())
	list[0].Handle.Kind = plugin.HandleKindCudaVmm
	return list
}

// A region that cannot be mapped is named with its rank and its transport, on all ranks alike.
func TestRegionThatCannotBeMappedIsNamed(t *testing.T) {
	errs := worldErrors(t, 3, func(_ int, o *host.Options) { o.Transports = []string{"builtin:unmappable"} },
		func(*host.Communicator) error { return nil })
	for rank, err := range errs {
		require.EqualError(t, err, fmt.Sprintf("init on rank %d: rank 0: mapping region 0 of rank 1: transport unmappable: "+
			"a handle of kind cuda_vmm cannot be mapped as host memory", rank))
	}
}
