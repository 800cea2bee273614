package host

import (
	"context"
	"log/slog"
	"strings"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// informed are the collectives whose algorithms a new communicator's line names;
// `shunt explain` names those of every one.
var informed = []plugin.Collective{plugin.AllReduce, plugin.Broadcast, plugin.AllGather, plugin.ReduceScatter,
	plugin.AllToAll, plugin.Send}

// inform logs what a new communicator runs on: one line, at level info.
func (c *Communicator) inform(ctx context.Context) {
	if !c.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	transports := make([]string, len(c.attached))
	for i, a := range c.attached {
		transports[i] = a.loaded.Info.Name
	}
	line := []any{"communicator", c.label, "rank", c.rank, "world", c.world, "memory", c.job.memory.String(), "transports",
		strings.Join(transports, ", ")}
	if c.device != nil {
		line = append(line, "device", c.device.info.Ordinal, "gpu", c.device.info.Name, "bus", c.device.info.Bus,
			"device_bytes", c.DeviceBytes())
	}
	for _, collective := range informed {
		choice, err := c.plans.Choose(ctx, call.SignatureOf(collective, plugin.Float32, plugin.OpSum))
		if err != nil {
			line = append(line, collective.String(), "none: "+err.Error())
			continue
		}
		line = append(line, collective.String(), choice.String())
	}
	c.logger.InfoContext(ctx, "communicator made", line...)
}
