package survey

import (
	"bytes"
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// NVLinked reports whether two GPUs, named by UUID, are joined by NVLink. Tests replace it.
var NVLinked = func(gpu, peer string) (bool, error) {
	management, err := cuda.OpenManagement()
	if err != nil {
		return false, err
	}
	link, err := management.Link(gpu, peer)
	return link.NVLink, err
}

// Answers to whether a rank's GPU has NVLink to those of all others.
var isLinked, isNotLinked = []byte{1}, []byte{0}

// NVLink finds out whether every two GPUs of the ranks are joined by NVLink. Every
// rank looks at the links of its own GPU, and all learn what each has found, so that
// all come to the same answer: protocols that need whole lines must be those of all ranks or
// of none.
func (s *Survey) NVLink(ctx context.Context) (bool, error) {
	if s.World == 1 || s.Memory != plugin.MemoryKindCuda || len(s.Topology.Hosts()) > 1 {
		return false, nil
	}
	answer := isLinked
	if reason := s.withoutNVLink(); reason != "" {
		s.Logger.Info("GPUs without NVLink between them: what ranks store at each other is fenced, which is slower",
			"communicator", s.Label, "rank", s.Rank, "reason", reason)
		answer = isNotLinked
	}
	answers, err := s.Group.AllGather(ctx, "compare their links ("+s.Label+")", answer)
	if err != nil {
		return false, s.WrapError("init", err)
	}
	all := true
	for rank, a := range answers {
		if len(a) != 1 || a[0] > 1 {
			return false, plugin.Errorf(plugin.Protocol, "init: rank %d answered %d bytes to whether its GPU has NVLink to all others", rank, len(a))
		}
		all = all && bytes.Equal(a, isLinked)
	}
	return all, nil
}

// withoutNVLink is why this rank's GPU is not known to have NVLink to those of all other
// ranks; empty if it is. A GPU that ranks share needs no link.
func (s *Survey) withoutNVLink() string {
	mine := s.Topology.Places[s.Rank].GPUs
	for rank, place := range s.Topology.Places {
		if len(mine) != 1 || len(place.GPUs) != 1 {
			return fmt.Sprintf("rank %d has %d GPUs, rank %d %d", s.Rank, len(mine), rank, len(place.GPUs))
		}
		a, b := mine[0], place.GPUs[0]
		if a.UUID == b.UUID {
			continue
		}
		linked, err := NVLinked(a.UUID, b.UUID)
		if err != nil {
			return err.Error()
		}
		if !linked {
			return fmt.Sprintf("the path from GPU %s of rank %d to GPU %s of rank %d is PCIe", a.PCI, s.Rank, b.PCI, rank)
		}
	}
	return ""
}
