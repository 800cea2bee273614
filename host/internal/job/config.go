package job

import (
	"cmp"
	"log/slog"
	"math"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// Config has the fields of host.Options, which says what they mean, in the same order.
type Config struct {
	Rank, World int
	ID          string
	Transports  []string
	Algo        string
	TuningFile  string
	Timeout     time.Duration
	Memory      plugin.MemoryKind
	Device      int
	MaxSMs      int
	Driver      cuda.Driver
	Logger      *slog.Logger
}

// complete takes from the environment what code has left open, and checks the limits.
func (c *Config) complete(options *option.Options) error {
	c.Algo = cmp.Or(c.Algo, options.Algo())
	c.TuningFile = cmp.Or(c.TuningFile, options.TuningFile())
	c.Timeout = cmp.Or(c.Timeout, options.Timeout())
	c.MaxSMs = cmp.Or(c.MaxSMs, options.MaxSMs())
	if c.Memory == plugin.MemoryKindHost {
		c.Device = -1
	}
	switch {
	case c.Timeout < 0:
		return plugin.Errorf(plugin.InvalidArgument, "init: timeout %v is negative", c.Timeout)
	case c.Memory != plugin.MemoryKindHost && c.Memory != plugin.MemoryKindCuda:
		return plugin.Errorf(plugin.InvalidArgument, "init: memory kind %d is unknown", uint32(c.Memory))
	case c.MaxSMs < 0 || c.MaxSMs > math.MaxInt32:
		return plugin.Errorf(plugin.InvalidArgument,
			"init: a budget of %d multiprocessors; want 1 or more, or 0 for SHUNT_MAX_SMS", c.MaxSMs)
	}
	return nil
}

// rendezvous decides rank, world and meeting place: what the options say goes before the environment.
func (c *Config) rendezvous(options *option.Options) (bootstrap.Config, error) {
	var meeting bootstrap.Config
	if c.World == 0 {
		var err error
		if meeting, err = bootstrap.FromEnvironment(environment.Get); err != nil {
			return meeting, err
		}
	} else {
		meeting.Rank, meeting.World = c.Rank, c.World
		meeting.Secret = options.Secret()
		if c.World > 1 || c.ID == "env" { // alone, a rank needs no place to meet
			meeting.URL = options.ID()
		}
	}
	if meeting.World < 1 || meeting.World > plugin.MaxWorld || meeting.Rank < 0 || meeting.Rank >= meeting.World {
		return meeting, plugin.Errorf(plugin.InvalidArgument,
			"init: rank %d of world %d is out of range, want a world of 1 to %d ranks", meeting.Rank, meeting.World,
			plugin.MaxWorld)
	}
	if c.ID != "" && c.ID != "env" {
		meeting.URL = c.ID
	}
	meeting.Timeout, meeting.Heartbeat, meeting.Logger = c.Timeout, options.Heartbeat(), c.Logger
	return meeting, nil
}

// specs returns the list of transports to load, and whether the user has named them.
func (c *Config) specs(options *option.Options) (list []string, named bool) {
	if len(c.Transports) > 0 {
		return c.Transports, true
	}
	if list := options.Transports(); len(list) > 0 {
		return list, true
	}
	for _, name := range carrier.Registered() {
		list = append(list, string(carrier.Builtin)+":"+name)
	}
	if dir := options.PluginDir(); dir != "" {
		found, err := carrier.Discover(dir)
		if err != nil {
			c.Logger.Warn("no plugins found", "reason", err)
		}
		for _, spec := range found {
			list = append(list, spec.String())
		}
	}
	return list, false
}
