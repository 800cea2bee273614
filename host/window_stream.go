package host

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// WindowOn is a window whose operations are put into one stream, made by
// Window.On. It lives no longer than the window.
type WindowOn struct {
	window *Window
	stream Stream
}

// On returns the window with its operations in a stream, which is nil for the default
// stream and for host memory.
func (w *Window) On(stream Stream) WindowOn { return WindowOn{w, stream} }

// Put is like Window.Put, in the stream.
func (w WindowOn) Put(peer int, offset int64, src unsafe.Pointer, bytes int64) error {
	return w.do(&Operation{Collective: plugin.Put, Root: peer, Offset: offset, Send: src, Count: bytes})
}

// Get is like Window.Get, in the stream.
func (w WindowOn) Get(peer int, offset int64, dst unsafe.Pointer, bytes int64) error {
	return w.do(&Operation{Collective: plugin.Get, Root: peer, Offset: offset, Recv: dst, Count: bytes})
}

// Signal is like Window.Signal, in the stream.
func (w WindowOn) Signal(peer int) error {
	return w.do(&Operation{Collective: plugin.Signal, Root: peer})
}

// Wait is like Window.Wait, in the stream: what is put into it later begins after.
func (w WindowOn) Wait(peer int, times int64) error {
	return w.do(&Operation{Collective: plugin.Wait, Root: peer, Offset: times})
}

func (w WindowOn) do(op *Operation) error {
	op.Window, op.DType, op.Stream = w.window, plugin.Uint8, w.stream
	return w.window.comm.Do(op)
}
