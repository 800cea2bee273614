package survey

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
	Call   string // that makes the communicator, for errors: init, split or shrink
	Memory plugin.MemoryKind
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

// Serves reports whether a transport has a place for every rank of a world.
func Serves(info plugin.Info, world int) bool { return info.MaxWorld == 0 || world <= info.MaxWorld }

// WorldTooLarge returns the reason why none of the transports for a kind of memory serves a world; nil if one does, or
// if none is for that memory.
func WorldTooLarge(infos []plugin.Info, memory plugin.MemoryKind, world int) error {
	var limits []string
	for _, info := range infos {
		switch {
		case !slices.Contains(info.Memory, memory):
		case Serves(info, world):
			return nil
		default:
			limits = append(limits, fmt.Sprintf("%s at most %d", info.Name, info.MaxWorld))
		}
	}
	if limits == nil {
		return nil
	}
	return plugin.Errorf(plugin.Unsupported, "no transport serves a world of %d ranks on %s memory: %s", world, memory,
		strings.Join(limits, ", "))
}
