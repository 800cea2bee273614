package cudatest

import (
	"fmt"
	"maps"

	"github.com/shunt-ccl/shunt/cuda"
)

// loaded is a kernel of a module.
type loaded struct {
	kernel Kernel
	module cuda.Module
	name   string
	shared int // the dynamic shared memory that it may be launched with
}

// LoadModule takes any image that is not empty.
func (d *Driver) LoadModule(ctx cuda.Context, image []byte) (cuda.Module, error) {
	if err := d.in(ctx, "LoadModule", "cuModuleLoadData of %d bytes", len(image)); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if len(image) == 0 {
		return 0, failed(cuda.InvalidImage, "cuModuleLoadData of %d bytes", len(image))
	}
	m := cuda.Module(d.id())
	d.modules[m] = true
	return m, nil
}

// UnloadModule forgets a module. A real driver has no code any more for kernels of it that have not begun, in streams
// and in graphs: here they run, and Hazards tells of each.
func (d *Driver) UnloadModule(ctx cuda.Context, m cuda.Module) error {
	if err := d.in(ctx, "UnloadModule", "cuModuleUnload"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if !d.modules[m] {
		return failed(cuda.InvalidHandle, "cuModuleUnload")
	}
	delete(d.modules, m)
	maps.DeleteFunc(d.kernels, func(_ cuda.Function, l loaded) bool { return l.module == m })
	return nil
}

// checkLoaded notes a kernel that begins though its module has been unloaded.
func (d *Driver) checkLoaded(k loaded) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.modules[k.module] {
		d.hazards = append(d.hazards, fmt.Sprintf("kernel %s began after its module was unloaded", k.name))
	}
}

// Function finds a registered kernel.
func (d *Driver) Function(ctx cuda.Context, m cuda.Module, name string, maxShared int) (cuda.Function, error) {
	if err := d.in(ctx, "Function", "loading kernel %s", name); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	k := d.options.Kernels[name]
	if !d.modules[m] || k == nil {
		return 0, failed(cuda.NotFound, "loading kernel %s", name)
	}
	f, l := cuda.Function(0), loaded{k, m, name, 48 << 10}
	for known, of := range d.kernels {
		if of.module == m && of.name == name {
			f, l = known, of // as CUDA's, which belong to the module
		}
	}
	if f == 0 {
		f = cuda.Function(d.id())
	}
	if maxShared > 48<<10 {
		l.shared = maxShared
	}
	d.kernels[f] = l
	return f, nil
}
