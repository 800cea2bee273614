package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/option"
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

// choose returns the kind of memory that is meant, and the number of GPUs if it is
// theirs. auto means GPUs where there are two at least and the transport, or
// any that would be loaded, serves their memory.
func (f *memoryFlag) choose(ctx context.Context, transport string) (plugin.MemoryKind, int, error) {
	if !f.auto && f.kind == plugin.MemoryKindHost {
		return f.kind, 0, nil
	}
	driver, err := cuda.Open()
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
	if err != nil || len(devices) < 2 || !servesCuda(ctx, transport) {
		return plugin.MemoryKindHost, 0, nil
	}
	return plugin.MemoryKindCuda, len(devices), nil
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
