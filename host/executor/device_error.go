package executor

import (
	"fmt"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// refuse makes an error that is this Device's own.
func (d *Device) refuse(code plugin.Code, format string, args ...any) error {
	return &plugin.Error{Code: code, Rank: d.rank, Message: d.says(fmt.Sprintf(format, args...))}
}

func (d *Device) says(what string) string {
	return fmt.Sprintf("executor of rank %d on CUDA device %d: %s", d.rank, d.ordinal, what)
}

// fail makes the error of a failure found before anything was put into a
// stream.
func (d *Device) fail(f *Failure) error {
	return &plugin.Error{Code: f.Code, Rank: d.rank, Message: d.says(f.Error()), Cause: f}
}

// wrap says what was being done when the driver failed, and what a broken
// context means.
func (d *Device) wrap(doing string, err error) error {
	text := fmt.Sprintf("%s: %s", doing, err)
	if cuda.ResultOf(err).Sticky() {
		text += "; a kernel of this process, Shunt's or the application's, has broken the device's context, in which nothing runs any more: end the process"
	}
	return &plugin.Error{Code: plugin.CodeOf(err), Rank: d.rank, Message: d.says(text), Cause: err}
}

// partly returns the error of a batch whose work was put into streams up to a piece.
func (d *Device) partly(ls []DeviceLaunch, done int, err error) error {
	at := 0
	for i := range d.pieces {
		if d.pieces[i] <= done {
			at = i
		}
	}
	doing := "plan " + ls[at].Program.name
	if len(ls) > 1 {
		doing = fmt.Sprintf("operation %d of %d, plan %s, after those before it were put into the stream", at+1, len(ls),
			ls[at].Program.name)
	}
	if done > d.pieces[at] {
		doing += fmt.Sprintf(" (%d of its pieces were)", done-d.pieces[at])
	}
	return d.wrap(doing, err)
}
