package executor

import (
	"encoding/binary"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// repeat is the work that a program put into its batch the last time, if that was one
// launch: the same call again, on any memory, gets it without another walk through
// the plan. A plan is a function of slots, arrays, regions and addresses; what the
// host's short forms are for the CPU (decision 11).
type repeat struct {
	able  bool // the plan has one track, and computes with no address of the caller's
	known bool // the rest is filled in

	slots      [plugin.SlotArrays]int64
	send, recv bool   // whether there was such memory
	regions    uint64 // Device.changes
	flags      uint32
	work       cuda.Work
	params     []byte
	addresses  []callersAddress // among the params
}

// callersAddress is an argument that lies in the caller's memory.
type callersAddress struct {
	offset int
	recv   bool
	beyond int64 // the beginning of that memory
}

// repeatable reports whether a plan can be known by its slots alone.
func repeatable(p *plugin.Plan) bool {
	if len(p.Tracks) != 1 {
		return false
	}
	for i := range p.Steps {
		switch s := &p.Steps[i]; s.Kind {
		case plugin.StepSet, plugin.StepIf, plugin.StepLoop, plugin.StepLaunch:
		case plugin.StepAddress:
			if space := p.Refs[s.A].Space; space == plugin.SpaceSend || space == plugin.SpaceRecv {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// forgetPlace takes from launches what their plans do not ask for: then what differs there keeps none from being that
// of last time.
func forgetPlace(ls []DeviceLaunch) {
	for i := range ls {
		if a := &ls[i].Arguments; !ls[i].Program.asksPlace {
			a.PeerRecv = nil
			a.Slots[plugin.SlotWindow], a.Slots[plugin.SlotOffset] = 0, 0
		}
	}
}

// fits reports whether a plan would make the launch of last time.
func (m *repeat) fits(a *Arguments, regions uint64, flags uint32) bool {
	return m.known && m.regions == regions && m.flags == flags && len(a.Arrays) == 0 && len(a.PeerRecv) == 0 &&
		m.send == (a.Send != nil) && m.recv == (a.Recv != nil) && m.slots == a.Slots
}

// repeated puts the launch of last time into the batch, if it fits.
func (r *deviceRun) repeated() bool {
	m, a := &r.p.last, r.a
	if !m.fits(a, r.d.changes, r.flags) {
		return false
	}
	at, params := r.d.room(len(m.params))
	copy(params, m.params)
	for i := range m.addresses {
		c := &m.addresses[i]
		memory := a.Send
		if c.recv {
			memory = a.Recv
		}
		if memory != nil { // else there is none, and the argument is 0
			store(params[c.offset:], int64(uintptr(memory))+c.beyond, 8)
		}
	}
	r.d.put(m.work)
	w := &r.d.batch.Work[len(r.d.batch.Work)-1]
	w.Stream, w.Params = r.main, at
	return true
}

// remember keeps what launch has put into the batch. It does not allocate: the
// room was made when the plan was loaded.
func (r *deviceRun) remember() {
	m, a, b := &r.p.last, r.a, &r.d.batch
	m.known = false
	if len(a.Arrays) != 0 || len(a.PeerRecv) != 0 || len(b.Work) != r.first+1 {
		return
	}
	m.known, m.slots, m.send, m.recv, m.regions, m.flags = true, a.Slots, a.Send != nil, a.Recv != nil, r.d.changes,
		r.flags
	m.work = b.Work[r.first]
	m.params = append(m.params[:0], b.Params[m.work.Params:m.work.Params+uint64(m.work.ParamBytes)]...)
	m.addresses = m.addresses[:0]
	k := &r.p.kernels[r.kernelAt]
	for i := range k.args {
		if k.args[i].ref == plugin.None {
			continue
		}
		// What is in the params by now, as registers may have changed since.
		offset := k.args[i].offset
		at := int64(binary.NativeEndian.Uint64(m.params[offset:]))
		switch r.p.plan.Refs[k.args[i].ref].Space {
		case plugin.SpaceSend:
			m.addresses = append(m.addresses, callersAddress{offset, false, at - int64(uintptr(a.Send))})
		case plugin.SpaceRecv:
			m.addresses = append(m.addresses, callersAddress{offset, true, at - int64(uintptr(a.Recv))})
		}
	}
}

// makeRoom allocates what remember fills.
func (m *repeat) makeRoom(kernels []deviceKernel) {
	for i := range kernels {
		m.params = make([]byte, 0, max(cap(m.params), len(kernels[i].template)))
		m.addresses = make([]callersAddress, 0, max(cap(m.addresses), len(kernels[i].args)))
	}
}
