package buffers

import "github.com/shunt-ccl/shunt/cuda"

// Exported is an export that peers may map: where it begins, and how long it is.
type Exported struct {
	Base  cuda.Ptr
	Bytes int64
}

// Exports returns the exports of this rank that are not on their way out.
func (t *Registry) Exports() (list []Exported) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.exports {
		if e.bytes > 0 && e.leaving == staying {
			list = append(list, Exported{e.base, e.bytes})
		}
	}
	return list
}

// Known reports whether all peers have mapped what an address lies in.
func (t *Registry) Known(p cuda.Ptr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.find(p, 1)
	return at >= 0 && t.exports[at].known == t.everyone()
}

// Awaited returns the number of withdrawn exports that kernels may still use.
func (t *Registry) Awaited() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.exports {
		if e.leaving == awaited {
			n++
		}
	}
	return n
}

// Busy reports whether a kernel that looks for exports is at work.
func (t *Registry) Busy() bool {
	n, err := t.counts()
	return err == nil && n.begun != n.ended
}

// LimitRegistrations changes how many registrations an engine keeps, and returns what undoes that. No communicator may
// be open.
func LimitRegistrations(n int) (undo func()) {
	before := registrationLimit
	registrationLimit = n
	return func() { registrationLimit = before }
}
