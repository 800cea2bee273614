package host

import (
	"os"
	"strconv"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// AutoDevice, as Options.Device, is the device of this process's number among
// the ranks of its host, as the launcher says it (LOCAL_RANK of torchrun, and
// what Open MPI, MPICH and Slurm have in its place; without any, the rank),
// modulo the number of devices that the process sees.
const AutoDevice = -1

// gpu is the device that a job's communicators run on.
type gpu struct {
	driver  cuda.Driver
	context cuda.Context // retained
	info    cuda.DeviceInfo
}

// localRanks are the variables of launchers that number the ranks of a host.
var localRanks = []string{"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}

// openGPU retains the device that the options mean.
func openGPU(o Options, rank int, getenv func(string) string) (*gpu, error) {
	driver := o.Driver
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
			getenv("CUDA_VISIBLE_DEVICES"))
	}
	ordinal := o.Device
	if ordinal == AutoDevice {
		ordinal = rank
		for _, name := range localRanks {
			if local, err := strconv.Atoi(getenv(name)); err == nil && local >= 0 {
				ordinal = local
				break
			}
		}
		ordinal %= len(devices)
	}
	if ordinal < 0 || ordinal >= len(devices) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "device %d is out of range: %d visible", ordinal, len(devices))
	}
	context, err := driver.Retain(ordinal)
	if err != nil {
		return nil, err
	}
	return &gpu{driver: driver, context: context, info: devices[ordinal]}, nil
}

// place returns the device as other ranks are told of it.
func (g *gpu) place() topology.GPU {
	return topology.GPU{
		UUID: g.info.UUIDString(), Name: g.info.Name, PCI: g.info.Bus, Ordinal: g.info.Ordinal,
		NUMA: topology.NodeOfPCI(os.DirFS("/"), g.info.Bus),
	}
}

// close gives the device back; nil is no device.
func (g *gpu) close() error {
	if g == nil {
		return nil
	}
	return g.driver.Release(g.info.Ordinal)
}
