package cuda

import (
	"crypto/sha256"
	"sync"
)

// kept are the modules of primary contexts. One stays loaded for the rest of
// the process, and so does its context: the driver does not give back all of the
// memory that loading took, and loading can wait for a GPU. There are at most
// as many as a process has images and GPUs. cudaDeviceReset destroys them behind
// the library's back; a process that has made a communicator must not call it.
var kept = struct {
	mu      sync.Mutex
	primary map[Context]int // ordinals of the contexts that Retain has returned
	modules map[keptKey]*keptModule
	handles map[keptHandle]bool
}{primary: map[Context]int{}, modules: map[keptKey]*keptModule{}, handles: map[keptHandle]bool{}}

type keptKey struct {
	ctx   Context
	image [sha256.Size]byte
}

type keptHandle struct {
	ctx    Context
	module Module
}

// keptModule has a lock of its own, held while the image is loaded: that can
// wait for a GPU, which can wait for what another thread is about to launch on
// its own.
type keptModule struct {
	mu     sync.Mutex
	module Module
}

// notePrimary tells that a context is the primary one of a device.
func notePrimary(ctx Context, device int) {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	kept.primary[ctx] = device
}

// keep returns the module of an image in a primary context, loaded at most once.
// Other contexts, which end when their owners like, get one of their own.
func (d *driver) keep(ctx Context, image []byte) (Module, error) {
	key := keptKey{ctx, sha256.Sum256(image)}
	kept.mu.Lock()
	device, primary := kept.primary[ctx]
	m := kept.modules[key]
	if primary && m == nil {
		m = &keptModule{}
		kept.modules[key] = m
	}
	kept.mu.Unlock()
	if !primary {
		return d.load(ctx, image)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.module != 0 {
		return m.module, nil
	}
	if _, err := d.Retain(device); err != nil {
		return 0, err
	}
	module, err := d.load(ctx, image)
	if err != nil {
		_ = d.Release(device) // the load's error says more
		return 0, err
	}
	m.module = module
	kept.mu.Lock()
	kept.handles[keptHandle{ctx, module}] = true
	kept.mu.Unlock()
	return module, nil
}

// keeps reports whether a module stays.
func keeps(ctx Context, m Module) bool {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	return kept.handles[keptHandle{ctx, m}]
}
