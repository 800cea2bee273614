package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
	"github.com/shunt-ccl/shunt/transports/nccl"
)

// gpu is a device as this process sees it.
type gpu struct {
	topology.MachineGPU
	Peers []gpuPeer
}

// gpuPeer describes the path from a device to another.
type gpuPeer struct {
	Ordinal int
	topology.Path
}

// scanGPUs looks at the machine and at its driver. The error says why CUDA sees no GPU.
func scanGPUs(s topology.Sources) (m *topology.Machine, version int, err error) {
	m = topology.Scan(s)
	driver, err := s.OpenDriver()
	if err != nil {
		return m, 0, err
	}
	devices, err := driver.Devices()
	if err == nil && len(devices) == 0 {
		err = cuda.Wrap(&cuda.Error{Call: "cuDeviceGetCount", Result: cuda.NoDevice, Name: "no error", Text: "0 devices"})
	}
	return m, driver.Version(), err
}

// machineGPUs lists the devices of this process and the paths between them. The
// error says why there is none.
func machineGPUs() (list []gpu, version int, err error) {
	m, version, err := scanGPUs(topology.System(openManagement))
	return visible(m), version, err
}

// visible returns the GPUs of a machine that CUDA sees, by ordinal.
func visible(m *topology.Machine) (list []gpu) {
	for i, d := range m.GPUs {
		if d.Ordinal < 0 {
			continue
		}
		g := gpu{MachineGPU: d}
		for j, other := range m.GPUs {
			if j != i && other.Ordinal >= 0 {
				g.Peers = append(g.Peers, gpuPeer{other.Ordinal, m.GPUPaths[i][j]})
			}
		}
		slices.SortFunc(g.Peers, func(a, b gpuPeer) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b gpu) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return list
}

// path returns the path from a device to another, in words.
func (p gpuPeer) path() string {
	switch {
	case p.Access == topology.AccessNo:
		return "no access"
	case p.NVLinks > 0:
		return fmt.Sprintf("NVLink (%d)", p.NVLinks)
	case p.PCIe == topology.Unknown:
		return "access"
	}
	return fmt.Sprintf("PCIe (%s)", p.PCIe)
}

// String returns one line.
func (g gpu) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU %d: %s %s at %s, %s, compute capability %s", g.Ordinal, g.Name, g.UUID, g.PCI,
		selector.FormatSize(g.Memory>>20<<20), g.Capability)
	for i, p := range g.Peers {
		separator := "; to "
		if i > 0 {
			separator = ", "
		}
		fmt.Fprintf(&b, "%sGPU %d: %s", separator, p.Ordinal, p.path())
	}
	return b.String()
}

// checkGPUs looks at the driver, the devices and the paths between them.
func checkGPUs(context.Context, int) []finding { return gpuFindings(topology.System(openManagement)) }

func gpuFindings(s topology.Sources) []finding {
	m, version, err := scanGPUs(s)
	if err != nil {
		return []finding{withoutCUDA(m, err)}
	}
	list := visible(m)
	findings := []finding{{Level: fine, Detail: fmt.Sprintf("the driver supports CUDA %d.%d", version/1000,
		version%1000/10)}}
	for _, problem := range m.Problems {
		findings = append(findings, finding{Level: warn, Detail: problem})
	}
	for _, g := range m.GPUs {
		if g.Problem != "" {
			findings = append(findings, finding{Level: warn, Detail: fmt.Sprintf("GPU %d of nvidia-smi is unknown: %s", g.Index,
				g.Problem), Advice: "see dmesg; a GPU that is lost needs a reset or a reboot"})
		}
	}
	for _, g := range list {
		findings = append(findings, finding{Level: fine, Detail: g.String()})
		for _, p := range g.Peers {
			if p.Access == topology.AccessNo {
				findings = append(findings, finding{Level: warn,
					Detail: fmt.Sprintf("GPU %d cannot reach GPU %d's memory: %s", g.Ordinal, p.Ordinal, p.Why),
					Advice: "the IOMMU or the virtual machine may forbid peer access: nvidia-smi topo -p2p rw"})
			}
		}
	}
	for _, p := range list[0].Peers {
		if p.PCIe == topology.Unknown {
			findings = append(findings, finding{Level: warn, Detail: "paths between GPUs are unknown: " + p.Why})
			break
		}
	}
	return findings
}

// driverAdvice says what to do about an error of the driver.
var driverAdvice = map[cuda.Result]string{
	cuda.StubLibrary: "LD_LIBRARY_PATH leads to the stub of a CUDA toolkit: remove it, or put the driver's libcuda.so.1 first",
	cuda.NoDevice:    "a container may lack /dev/nvidia*, and MIG may be on without a MIG device: see nvidia-smi",
	cuda.SystemNotReady: "GPUs with NVSwitches need the fabric manager of the driver's version: " +
		"systemctl status nvidia-fabricmanager",
	cuda.DriverMismatch:     "the kernel runs another version of the driver than libcuda.so.1, as after an upgrade: reboot",
	cuda.CompatNotSupported: "remove the libcuda.so.1 of the package cuda-compat from LD_LIBRARY_PATH, or renew the driver",
	cuda.Unknown:            "see dmesg; if /dev/nvidia-uvm is absent: nvidia-modprobe -u -c 0",
}

// withoutCUDA judges a machine of which CUDA sees no GPU. A machine without GPUs is fine, also where it has a driver's
// library, as containers have.
func withoutCUDA(m *topology.Machine, err error) finding {
	result := cuda.ResultOf(err)
	none := errors.Is(err, cuda.ErrNoDriver) || result == cuda.NoDevice || result == cuda.StubLibrary
	if none && len(m.GPUs) == 0 {
		why := cmp.Or(strings.Join(m.Problems, "; "), err.Error())
		return finding{Level: fine, Detail: fmt.Sprintf("none (%s); host memory only", why)}
	}
	f := finding{Level: broken, Detail: err.Error(), Advice: driverAdvice[result]}
	if len(m.GPUs) > 0 {
		f.Detail = fmt.Sprintf("CUDA sees none of %d: %v", len(m.GPUs), err)
	}
	hidden, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	switch {
	case errors.Is(err, cuda.ErrNoDriver):
		f.Advice = "install libcuda.so.1 of the driver; a container gets it by NVIDIA_DRIVER_CAPABILITIES=compute,utility"
	case result == cuda.NoDevice && set:
		f.Level, f.Advice = warn, fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s hides them; unset it for ranks on GPUs", hidden)
	case f.Advice == "":
		f.Advice = "nvidia-smi and dmesg may say more; under WSL update the driver of Windows"
	}
	return f
}

// checkCudaipc opens an endpoint on every device, as a communicator does.
func checkCudaipc(ctx context.Context, _ int) []finding {
	list, _, err := machineGPUs()
	if err != nil {
		return []finding{{Level: fine, Detail: "not usable here: " + err.Error()}}
	}
	var findings []finding
	for _, g := range list {
		endpoint, err := cudaipc.Transport{}.Open(ctx, plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda,
			Device: g.Ordinal})
		if err == nil {
			err = endpoint.Close()
		}
		if err != nil {
			findings = append(findings, finding{Level: warn, Detail: fmt.Sprintf("not usable on GPU %d: %v", g.Ordinal, err),
				Advice: "ranks on this GPU need another transport"})
		}
	}
	if len(findings) == 0 {
		findings = []finding{{Level: fine, Detail: fmt.Sprintf("opens on all %d GPUs", len(list))}}
	}
	return findings
}

// checkRanksOnGPUs lets real ranks reduce GPU memory.
func checkRanksOnGPUs(ctx context.Context, world int) []finding {
	return tryRanksOnGPUs(ctx, world, "")
}

// checkRanksOverNCCL has them make NCCL's communicator, which takes time and memory.
func checkRanksOverNCCL(ctx context.Context, world int) []finding {
	options, _ := option.Load(os.Environ()) // warned of under environment
	specs, err := presentSpecs(options)
	named := func(spec string) bool { return spec[strings.LastIndexByte(spec, ':')+1:] == "nccl" }
	if err == nil && !slices.ContainsFunc(specs, named) {
		return []finding{{Level: fine, Detail: "not tried: SHUNT_TRANSPORTS does not name it"}}
	}
	r := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Int64, World: world, Hosts: 1,
		Memory: plugin.MemoryKindCuda}
	if reason := (nccl.Transport{}).Supports(r).Reason; reason != "" {
		return []finding{{Level: fine, Detail: "not tried: " + reason}}
	}
	return tryRanksOnGPUs(ctx, world, "all_reduce=nccl")
}

func tryRanksOnGPUs(ctx context.Context, world int, algo string) []finding {
	list, _, err := machineGPUs()
	if err == nil && len(list) < 2 {
		err = errors.New("one GPU is visible")
	}
	if err != nil {
		return []finding{{Level: fine, Detail: "not tried: " + err.Error()}}
	}
	return tryRanks(ctx, min(max(world, 2), len(list)), probeConfig{Memory: plugin.MemoryKindCuda, Algo: algo})
}

// usable says why a transport of CUDA memory cannot be used here, if so.
func usable(memory []string) string {
	for _, m := range memory {
		if m != plugin.MemoryKindCuda.String() {
			return ""
		}
	}
	_, _, err := machineGPUs()
	if err != nil {
		return err.Error()
	}
	return ""
}

// gpuJob returns a job of which every rank uses the device of its number, unless SHUNT_SHARE_GPU lets ranks share.
func gpuJob(kind plugin.MemoryKind, world, gpus int, job launch.Job) (launch.Job, error) {
	if kind == plugin.MemoryKindCuda && world > gpus {
		if settings, _ := option.Load(os.Environ()); gpus == 0 || !settings.ShareGPU() {
			return job, usage("%d ranks need as many GPUs; there are %d, which SHUNT_SHARE_GPU=on lets ranks share", world, gpus)
		}
	}
	job.World = world
	return job, nil
}
