package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// memoryFlag is a kind of memory, or auto.
type memoryFlag struct {
	auto bool
	kind plugin.MemoryKind
}

func (f *memoryFlag) Type() string { return "memory" }
func (f *memoryFlag) String() string {
	if f.auto {
		return "auto"
	}
	return f.kind.String()
}
func (f *memoryFlag) Set(text string) error {
	if text == "auto" {
		*f = memoryFlag{auto: true}
		return nil
	}
	for _, kind := range []plugin.MemoryKind{plugin.MemoryKindHost, plugin.MemoryKindCuda} {
		if text == kind.String() {
			*f = memoryFlag{kind: kind}
			return nil
		}
	}
	return usage("memory is %q; want auto, %s or %s", text, plugin.MemoryKindHost, plugin.MemoryKindCuda)
}

// choose returns the kind of memory that a command's flag means, and the number of GPUs if it is theirs. auto means
// GPUs where there are two at least and the transport, or any that would be loaded, serves their memory. Where a
// machine has GPUs, or a driver that fails, and host memory is taken all the same, the command says why.
func (f *memoryFlag) choose(c *cobra.Command, transport string) (plugin.MemoryKind, int, error) {
	if !f.auto && f.kind == plugin.MemoryKindHost {
		return f.kind, 0, nil
	}
	s := topology.System(openManagement)
	driver, err := s.OpenDriver()
	var devices []cuda.DeviceInfo
	if err == nil {
		devices, err = driver.Devices()
	}
	if !f.auto {
		if err == nil && len(devices) == 0 {
			err = plugin.Errorf(plugin.Unsupported, "--memory cuda needs a GPU: the CUDA driver has found none")
		}
		return f.kind, len(devices), err
	}
	var why string
	switch {
	case err != nil || len(devices) == 0:
		why = blindness(s)
	case len(devices) == 1:
		why = "one GPU is visible, and two ranks need two"
	case servesCuda(c.Context(), transport):
		return plugin.MemoryKindCuda, len(devices), nil
	case transport == "":
		why = "no transport serves the memory of GPUs: see shunt transports"
	}
	if why != "" {
		fmt.Fprintf(c.ErrOrStderr(), "%s: host memory: %s\n", c.CommandPath(), why)
	}
	return plugin.MemoryKindHost, 0, nil
}

// blindness says why CUDA sees no GPU of a machine, and what to do; nothing where the machine seems to have none.
func blindness(s topology.Sources) string {
	m, _, err := scanGPUs(s)
	if f := withoutCUDA(m, err); err != nil && f.Level != fine {
		return f.Detail + "; " + f.Advice
	}
	return ""
}

// servesCuda reports whether any of a list of transports, or of those that a
// communicator would load for "", serves CUDA memory.
func servesCuda(ctx context.Context, transport string) bool {
	specs := splitList(transport)
	if transport == "" {
		options, _ := option.Load(os.Environ()) // the ranks warn
		specs, _ = presentSpecs(options)        // and report
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return slices.ContainsFunc(specs, func(spec string) bool {
		return slices.Contains(inspect(ctx, spec, 2, quiet).Memory, plugin.MemoryKindCuda.String())
	})
}
