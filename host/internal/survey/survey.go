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
	Call     string // that makes the communicator, for errors: init, split or shrink
	Memory   plugin.MemoryKind
	ShareGPU bool // ranks may share a GPU
}

// RankZeros returns rank 0's payload, on every rank. what says what it is, for the error of a wait.
func (s *Survey) RankZeros(ctx context.Context, what string, payload []byte) ([]byte, error) {
	if s.Rank != 0 {
		payload = nil
	}
	answers, err := s.Group.AllGather(ctx, what+" ("+s.Label+")", payload)
	if err != nil {
		return nil, s.WrapError(s.Call, err)
	}
	return answers[0], nil
}
