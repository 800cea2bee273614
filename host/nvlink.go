package host

import (
	"bytes"
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// nvlinked reports whether two GPUs, named by UUID, are joined by NVLink. Tests replace it.
var nvlinked = func(gpu, peer string) (bool, error) {
	management, err := cuda.OpenManagement()
	if err != nil {
		return false, err
	}
	link, err := management.Link(gpu, peer)
	return link.NVLink, err
}

// Answers to whether a rank's GPU has NVLink to those of all others.
var isLinked, isNotLinked = []byte{1}, []byte{0}

// agreeNVLink finds out whether every two GPUs of the ranks are joined by NVLink. Every
// rank looks at the links of its own GPU, and all learn what each has found, so that
// all come to the same answer: protocols that need whole lines must be those of all ranks or
// of none.
func (c *Communicator) agreeNVLink(ctx context.Context) error {
	if c.world == 1 || c.job.memory != plugin.MemoryKindCuda || len(c.observer.Topology.Hosts()) > 1 {
		return nil
	}
	answer := isLinked
	if reason := c.withoutNVLink(); reason != "" {
		c.logger.Info("GPUs without NVLink between them: what ranks store at each other is fenced, which is slower", "communicator", c.label, "rank", c.rank, "reason", reason)
		answer = isNotLinked
	}
	answers, err := c.group.AllGather(ctx, "nvlink "+c.label, answer)
	if err != nil {
		return c.observer.WrapError("init", err)
	}
	all := true
	for rank, a := range answers {
		if len(a) != 1 || a[0] > 1 {
			return plugin.Errorf(plugin.Protocol, "init: rank %d answered %d bytes to whether its GPU has NVLink to all others", rank, len(a))
		}
		all = all && bytes.Equal(a, isLinked)
	}
	c.plans.NVLink = all
	return nil
}

// withoutNVLink is why this rank's GPU is not known to have NVLink to those of all other
// ranks; empty if it is. A GPU that ranks share needs no link.
func (c *Communicator) withoutNVLink() string {
	mine := c.observer.Topology.Places[c.rank].GPUs
	for rank, place := range c.observer.Topology.Places {
		if len(mine) != 1 || len(place.GPUs) != 1 {
			return fmt.Sprintf("rank %d has %d GPUs, rank %d %d", c.rank, len(mine), rank, len(place.GPUs))
		}
		a, b := mine[0], place.GPUs[0]
		if a.UUID == b.UUID {
			continue
		}
		linked, err := nvlinked(a.UUID, b.UUID)
		if err != nil {
			return err.Error()
		}
		if !linked {
			return fmt.Sprintf("the path from GPU %s of rank %d to GPU %s of rank %d is PCIe", a.PCI, c.rank, b.PCI, rank)
		}
	}
	return ""
}
