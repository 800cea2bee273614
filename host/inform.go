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
	if !c.observer.Logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	transports := make([]string, len(c.attached))
	for i, a := range c.attached {
		transports[i] = a.loaded.Info.Name
	}
	line := []any{"communicator", c.label, "rank", c.rank, "world", c.world, "memory", c.job.Memory.String(), "transports",
		strings.Join(transports, ", ")}
	if c.device != nil {
		line = append(line, "device", c.device.Info.Ordinal, "gpu", c.device.Info.Name, "bus", c.device.Info.Bus,
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
	c.observer.Logger.InfoContext(ctx, "communicator made", line...)
}
