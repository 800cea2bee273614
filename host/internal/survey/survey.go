package survey

import (
	"context"

	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// Survey asks the ranks of a communicator that is being made. Its methods are collective.
type Survey struct {
	*diagnosis.Observer
	Group interface {
		Agree(ctx context.Context, tag string, err error) error
		AllGather(ctx context.Context, tag string, payload []byte) ([][]byte, error)
	}
	Memory   plugin.MemoryKind
	ShareGPU bool // ranks may share a GPU
}
