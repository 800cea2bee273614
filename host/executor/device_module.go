package executor

import (
	"crypto/sha256"
	"sync"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// imageName identifies an image in plans: its endpoint's base and its name.
type imageName struct {
	base uint32
	name string
}

// loadedModule is an image in a context. Devices of one GPU and driver share
// it, so that a communicator made by Split loads nothing.
type loadedModule struct {
	key  moduleKey
	uses int // under modules.mu

	mu     sync.Mutex // held while the image is loaded
	ctx    cuda.Context
	module cuda.Module
}

type moduleKey struct {
	driver  cuda.Driver
	ordinal int
	image   [sha256.Size]byte
}

var modules = struct {
	mu     sync.Mutex
	loaded map[moduleKey]*loadedModule
}{loaded: map[moduleKey]*loadedModule{}}

// AddImages tells the images of the endpoint whose regions are at base. They
// are loaded when a plan first names them; the data is not copied and must not
// change. An image that was set before is replaced for plans yet to come.
func (d *Device) AddImages(base uint32, images []plugin.Image) error {
	if base%BaseMultiple != 0 || base >= MaxEntries {
		return d.refuse(plugin.InvalidArgument, "the images' base is %d, which no endpoint has", base)
	}
	for _, i := range images {
		if i.Name == "" || len(i.Name) > plugin.MaxName || len(i.Data) == 0 {
			return d.refuse(plugin.InvalidArgument, "image %q has %d bytes, want a name and one byte or more", i.Name,
				len(i.Data))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.refuse(plugin.Closed, "it is closed")
	}
	for _, i := range images {
		n := imageName{base, i.Name}
		d.images[n] = i
		if m := d.modules[n]; m != nil {
			d.retired = append(d.retired, m)
			delete(d.modules, n)
		}
	}
	return nil
}

// module loads an image, or finds it loaded. d.mu is held.
func (d *Device) module(base uint32, name string) (cuda.Module, error) {
	n := imageName{base, name}
	if m := d.modules[n]; m != nil {
		return m.module, nil
	}
	image, ok := d.images[n]
	if !ok {
		return 0, d.refuse(plugin.Protocol, "the transport published no image %q", name)
	}
	key := moduleKey{d.driver, d.ordinal, sha256.Sum256(image.Data)}
	modules.mu.Lock()
	m := modules.loaded[key]
	if m == nil {
		m = &loadedModule{key: key, ctx: d.ctx}
		modules.loaded[key] = m
	}
	m.uses++
	modules.mu.Unlock()

	m.mu.Lock()
	var err error
	if m.module == 0 {
		m.module, err = d.driver.LoadModule(d.ctx, image.Data)
	}
	m.mu.Unlock()
	if err != nil {
		_ = m.release(d)
		return 0, d.wrap("loading image "+name, err)
	}
	d.modules[n] = m
	return m.module, nil
}

// release undoes one use; the last one unloads. The context is still retained.
func (m *loadedModule) release(d *Device) error {
	modules.mu.Lock()
	m.uses--
	last := m.uses == 0
	if last {
		delete(modules.loaded, m.key)
	}
	modules.mu.Unlock()
	if !last || m.module == 0 {
		return nil
	}
	return d.driver.UnloadModule(d.ctx, m.module)
}
