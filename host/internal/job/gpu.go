package job

import (
	"os"
	"strconv"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// AutoDevice is host.AutoDevice.
const AutoDevice = -1

// GPU is the device that a job's communicators run on.
type GPU struct {
	Driver  cuda.Driver
	Context cuda.Context // retained
	Info    cuda.DeviceInfo
}

// localRanks are the variables of launchers that number the ranks of a host.
var localRanks = []string{"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}

// openGPU retains the device that the options mean, and enters it there.
func (c *Config) openGPU(rank int) (*GPU, error) {
	driver := c.Driver
	if driver == nil {
		var err error
		if driver, err = cuda.Open(); err != nil {
			return nil, err
		}
	}
	devices, err := driver.Devices()
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "the CUDA driver sees no device (CUDA_VISIBLE_DEVICES is %q)",
			environment.Get("CUDA_VISIBLE_DEVICES"))
	}
	if c.Device == AutoDevice {
		c.Device = rank
		for _, name := range localRanks {
			if local, err := strconv.Atoi(environment.Get(name)); err == nil && local >= 0 {
				c.Device = local
				break
			}
		}
		c.Device %= len(devices)
	}
	if c.Device < 0 || c.Device >= len(devices) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "device %d is out of range: %d visible", c.Device, len(devices))
	}
	context, err := driver.Retain(c.Device)
	if err != nil {
		return nil, err
	}
	return &GPU{Driver: driver, Context: context, Info: devices[c.Device]}, nil
}

// place returns the description of the device for other ranks.
func (g *GPU) place() topology.GPU {
	return topology.GPU{
		UUID: g.Info.UUIDString(), Name: g.Info.Name, PCI: g.Info.Bus, Ordinal: g.Info.Ordinal,
		NUMA: topology.NodeOfPCI(os.DirFS("/"), g.Info.Bus),
	}
}

// close gives the device back; nil is no device.
func (g *GPU) close() error {
	if g == nil {
		return nil
	}
	return g.Driver.Release(g.Info.Ordinal)
}
