package nccl

import (
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Transport opens endpoints on CUDA devices. The zero value uses the driver of
// cuda.Open and the library that is found; see Variable.
type Transport struct {
	Drivers func(device int) cuda.Driver // nil: cuda.Open
}

// Info describes the transport.
func (Transport) Info() plugin.Info {
	return plugin.Info{
		Name: "nccl", Version: plugin.Release,
		Features: plugin.FeaturePlans | plugin.FeatureExchange | plugin.FeatureMultiHost | plugin.FeatureOwnGpu |
			plugin.FeatureRegistration,
		Memory: []plugin.MemoryKind{plugin.MemoryKindCuda}, Doc: "GPUs of one host or several through NVIDIA's NCCL",
	}
}

// algorithmName is the one algorithm of each collective: NCCL chooses its own by size.
const algorithmName = "tuned"

// Supports offers what the library of this process does.
func (t Transport) Supports(r plugin.Request) plugin.Support {
	driver := 0 // of endpoints only Open knows which it is
	if t.Drivers == nil {
		if d, err := cuda.Open(); err == nil {
			driver = d.Version()
		}
	}
	l, err := open(driver)
	if err != nil {
		return plugin.Support{Reason: err.Error()}
	}
	if reason := unsupported(r, l.version); reason != "" {
		return plugin.Support{Reason: reason}
	}
	cost := costOf(r.Collective, r.World, r.Hosts)
	return plugin.Support{Algorithms: []plugin.Algorithm{{Name: algorithmName, Latency: cost.latency,
		Bandwidth: cost.bandwidth,
		Numerics:  numerics(r)}}}
}

// numerics says how far NCCL's results may be from those of the tables: it combines in the order of its rings and trees
// and in the dtype itself, its min and max drop NaN, avg and pre-multiplied sums round the factor first, and
// float8_e5m2 never becomes infinite. What is left is exact, or two ranks' one rounding.
func numerics(r plugin.Request) plugin.Numerics {
	if !r.Collective.Reduces() {
		return plugin.NumericsTables
	}
	sums := r.Op == plugin.OpSum || r.Op == plugin.OpProd
	switch r.DType {
	case plugin.Int8, plugin.Uint8, plugin.Int32, plugin.Uint32, plugin.Int64, plugin.Uint64:
		if r.Op != plugin.OpAvg && r.Op != plugin.OpPremulSum {
			return plugin.NumericsTables
		}
	case plugin.Float32, plugin.Float64:
		if sums && r.World > 2 {
			return plugin.NumericsReordered
		}
	}
	if sums && r.World <= 2 && r.DType != plugin.Float8E5m2 {
		return plugin.NumericsTables
	}
	return plugin.NumericsOwn
}

// leastFloat8 is the version whose reductions take 8-bit floats.
const leastFloat8 = 22400

// unsupported says why a request is not served, or "".
func unsupported(r plugin.Request, version int) string {
	switch {
	case r.Memory != plugin.MemoryKindCuda:
		return "it serves CUDA memory only"
	case r.Symmetric:
		return "it does not use that receive memory is symmetric"
	case r.DeviceCounts:
		return "it takes no counts from device memory"
	case r.Collective.OneSided():
		return "NCCL has no one-sided operations"
	case !r.Collective.Reduces():
		return ""
	case r.World == 1 && (r.Op == plugin.OpAvg || r.Op == plugin.OpPremulSum):
		// NCCL 2.28.9 on an H100: an avg of 4,099 float64 out of place leaves the last one as it was.
		return fmt.Sprintf("NCCL leaves the last elements of some lengths unwritten by %s in a world of one", r.Op)
	case r.DType != plugin.Float8E4m3 && r.DType != plugin.Float8E5m2:
		return ""
	case version < leastFloat8:
		return fmt.Sprintf("NCCL %s reduces no 8-bit floats; 2.24 is the oldest that does", &library{version: version})
	case r.Op == plugin.OpAvg || r.Op == plugin.OpPremulSum:
		return fmt.Sprintf("NCCL has no %s of 8-bit floats", r.Op)
	}
	return ""
}

// Open makes an endpoint. It makes no communicator of NCCL yet.
func (t Transport) Open(_ context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := t.open(c)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (t Transport) open(c plugin.OpenConfig) (*endpoint, error) {
	if c.World < 1 || c.World > plugin.MaxWorld || c.Rank < 0 || c.Rank >= c.World {
		return nil, plugin.Errorf(plugin.InvalidArgument, "nccl: rank %d is not in a world of %d ranks, want a world of 1 to %d", c.Rank,
			c.World, plugin.MaxWorld)
	}
	if c.Memory != plugin.MemoryKindCuda || c.Device < 0 {
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"nccl: %s memory on device %d cannot be served, want CUDA memory of a device", c.Memory, c.Device)
	}
	for name := range c.Options {
		if name != "library" && name != "register" { // Variable, which Supports needs too
			return nil, plugin.Errorf(plugin.InvalidArgument, "nccl: unknown option %q; it has library and register", name)
		}
	}
	registers, err := parseRegister(c.Options["register"])
	if err != nil {
		return nil, err
	}
	var driver cuda.Driver
	version := 0
	if t.Drivers != nil {
		driver = t.Drivers(c.Device)
	} else {
		driver, err = cuda.Open()
	}
	if err == nil {
		version = driver.Version()
	}
	l, missing := open(version)
	if missing != nil {
		return nil, plugin.Errorf(plugin.CodeOf(missing), "nccl: %w", missing)
	}
	if err != nil {
		return nil, err
	}
	e := &endpoint{library: l, driver: driver, config: c, registers: registers}
	if e.ctx, err = driver.Retain(c.Device); err != nil {
		return nil, err
	}
	if e.stream, err = driver.NewStream(e.ctx, 0); err != nil {
		_ = driver.Release(c.Device)
		return nil, err
	}
	return e, nil
}
