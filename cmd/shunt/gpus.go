package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
)

// gpu is a device as the driver and NVML describe it.
type gpu struct {
	Ordinal    int       `json:"ordinal"`
	Name       string    `json:"name"`
	UUID       string    `json:"uuid"`
	PCI        string    `json:"pci"`
	Memory     int64     `json:"memory"`     // bytes
	Capability string    `json:"capability"` // "9.0"
	Peers      []gpuPeer `json:"peers,omitempty"`
}

// gpuPeer is how a device reaches another one.
type gpuPeer struct {
	Ordinal  int    `json:"ordinal"`
	Access   bool   `json:"access"`             // to its memory
	NVLinks  int    `json:"nvlinks"`            // 0: over PCIe, or unknown
	Distance int    `json:"distance,omitempty"` // NVML's level: 0 one board to 50 across CPUs
	Problem  string `json:"problem,omitempty"`  // why the path is unknown
}

// machineGPUs lists the devices of this process and the paths between them. The
// error says why there is none.
func machineGPUs() (list []gpu, version int, err error) {
	driver, err := cuda.Open()
	if err != nil {
		return nil, 0, err
	}
	devices, err := driver.Devices()
	if err != nil {
		return nil, driver.Version(), err
	}
	if len(devices) == 0 {
		return nil, driver.Version(), plugin.Errorf(plugin.Unsupported, "the CUDA driver sees no device")
	}
	management, unmanaged := cuda.OpenManagement()
	for _, d := range devices {
		g := gpu{Ordinal: d.Ordinal, Name: d.Name, UUID: d.UUIDString(), PCI: d.Bus, Memory: d.Memory,
			Capability: fmt.Sprintf("%d.%d", d.Major, d.Minor)}
		for _, other := range devices {
			if other.Ordinal == d.Ordinal {
				continue
			}
			p := gpuPeer{Ordinal: other.Ordinal}
			if p.Access, err = driver.CanAccess(d.Ordinal, other.Ordinal); err != nil {
				return nil, driver.Version(), err
			}
			var link cuda.Link
			problem := unmanaged
			if problem == nil {
				link, problem = management.Link(d.UUIDString(), other.UUIDString())
			}
			switch {
			case problem != nil:
				p.Problem = problem.Error()
			case link.NVLink:
				p.NVLinks = link.Links
			}
			p.Distance = link.Distance
			g.Peers = append(g.Peers, p)
		}
		list = append(list, g)
	}
	return list, driver.Version(), nil
}

// path is how a device reaches another one, in words.
func (p gpuPeer) path() string {
	switch {
	case !p.Access:
		return "no access"
	case p.NVLinks > 0:
		return fmt.Sprintf("NVLink (%d)", p.NVLinks)
	case p.Problem != "":
		return "access"
	}
	return "PCIe"
}

// String is one line.
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
func checkGPUs(context.Context, int) []finding {
	list, version, err := machineGPUs()
	if err != nil {
		if version == 0 {
			return []finding{{Level: fine, Detail: fmt.Sprintf("none (%v); host memory only", err)}}
		}
		return []finding{{Level: warn, Detail: err.Error(),
			Advice: "CUDA_VISIBLE_DEVICES may hide them, or the container have none"}}
	}
	findings := []finding{{Level: fine, Detail: fmt.Sprintf("the driver supports CUDA %d.%d", version/1000,
		version%1000/10)}}
	for _, g := range list {
		findings = append(findings, finding{Level: fine, Detail: g.String()})
		for _, p := range g.Peers {
			if !p.Access {
				findings = append(findings, finding{Level: warn,
					Detail: fmt.Sprintf("GPU %d cannot reach GPU %d's memory", g.Ordinal, p.Ordinal),
					Advice: "the IOMMU or the virtual machine may forbid peer access: nvidia-smi topo -p2p rw"})
			}
		}
	}
	for _, p := range list[0].Peers {
		if p.Problem != "" {
			findings = append(findings, finding{Level: warn, Detail: "paths between GPUs are unknown: " + p.Problem})
			break
		}
	}
	return findings
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
	list, _, err := machineGPUs()
	if err != nil || len(list) < 2 {
		if err == nil {
			err = errors.New("one GPU")
		}
		return []finding{{Level: fine, Detail: "not tried: " + err.Error()}}
	}
	return tryRanks(ctx, min(max(world, 2), len(list)), plugin.MemoryKindCuda)
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

// gpuJob is a job of which every rank uses the device of its number.
func gpuJob(kind plugin.MemoryKind, world, gpus int, job launch.Job) (launch.Job, error) {
	if kind == plugin.MemoryKindCuda && world > gpus {
		return job, usage("%d ranks need as many GPUs; there are %d", world, gpus)
	}
	job.World = world
	return job, nil
}
