package bench

import (
	"context"
	"errors"
	"strings"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
)

// NCCL is the name of that library in Config.Against, and of its first form in
// rows. The other is NCCLWindow.
const (
	NCCL       = "nccl"
	NCCLWindow = "nccl window"
	Symmetric  = "symmetric" // Shunt, in windows, whose memory is symmetric
)

// rival does the same operations in turn with Shunt, in the same processes and
// on the same stream.
type rival interface {
	// candidates are its ways to do a job, the same on all ranks.
	candidates(r *rank, p *prepared) ([]candidate, error)
	close() error
}

// Rivals returns the names of what rows compare Shunt with, in the order of columns.
func (c *Config) Rivals() []string {
	var names []string
	if c.Symmetric {
		names = append(names, Symmetric)
	}
	for _, name := range c.Against {
		if name == NCCL {
			names = append(names, NCCL, NCCLWindow)
			continue
		}
		names = append(names, c.carrier(name))
	}
	return names
}

// carrier returns the short name of a transport: how it is loaded, where that tells
// it from the others.
func (c *Config) carrier(transport string) string {
	kind, _, _ := strings.Cut(transport, ":")
	same := 0
	for _, other := range c.Against {
		if k, _, _ := strings.Cut(other, ":"); k == kind && other != NCCL {
			same++
		}
	}
	if same > 1 {
		return transport
	}
	return kind
}

// openRivals makes all that the configuration asks for. What has been made is
// closed with the rank, also where the rest fails.
func (r *rank) openRivals(ctx context.Context, options host.Options) error {
	if r.config.Symmetric {
		other, err := newSymmetric(ctx, r)
		if err != nil {
			return err
		}
		r.rivals = append(r.rivals, other)
	}
	for _, name := range r.config.Against {
		var other rival
		var err error
		if name == NCCL {
			other, err = openPeer(r)
		} else {
			other, err = r.openCarrier(ctx, options, name)
		}
		if err != nil {
			return err
		}
		r.rivals = append(r.rivals, other)
	}
	if r.config.Tune {
		other, err := r.openAlgorithms(ctx, options)
		if err != nil {
			return err
		}
		r.rivals, r.tuned = append(r.rivals, other), other
	}
	return nil
}

// twin is memory beside the rank's own buffers, of the same sizes, in which
// every slot has a place at the same offset.
type twin struct {
	device *deviceSpace
	at     [buffers]cuda.Ptr
}

// move returns the place of a slot in the twin.
func (t *twin) move(k slot) slot {
	shift := func(a area) area {
		at := a.pointer()
		for which, from := range t.device.memory {
			if a.bytes > 0 && at >= from && at < from+cuda.Ptr(t.device.bytes[which]) {
				return area{address(uint64(t.at[which] + at - from)), a.bytes}
			}
		}
		return a
	}
	return slot{send: shift(k.send), recv: shift(k.recv), before: shift(k.before), after: shift(k.after)}
}

// moved returns the places of all slots in the twin.
func (t *twin) moved(slots []slot) []slot {
	list := make([]slot, len(slots))
	for i, k := range slots {
		list[i] = t.move(k)
	}
	return list
}

// symmetric is Shunt in windows, as NCCL's better form has memory of
// ncclMemAlloc. The space's own memory is of any size, and copy engines are a
// third slower where that is no multiple of 2 MiB.
type symmetric struct{ twin }

func newSymmetric(ctx context.Context, r *rank) (rival, error) {
	d := r.space.(*deviceSpace)
	s := &symmetric{twin{device: d}}
	for _, which := range []bufferName{sendBuffer, recvBuffer} {
		w, err := r.comm.NewWindow(ctx, d.bytes[which])
		if err != nil {
			return nil, err
		}
		s.at[which] = area{at: w.Local()}.pointer()
	}
	return s, nil
}

func (s *symmetric) candidates(r *rank, p *prepared) ([]candidate, error) {
	slots := s.moved(p.slots)
	return []candidate{{name: Symmetric, slots: slots, call: r.shuntCall(r.comm, p, slots)}}, nil
}

// close leaves the windows to the communicator.
func (s *symmetric) close() error { return nil }

// carrier is another communicator of Shunt's, over another transport.
type carrier struct {
	name string
	comm *host.Communicator
}

// openCarrier joins the same ranks over a transport of its own.
func (r *rank) openCarrier(ctx context.Context, options host.Options, transport string) (_ rival, err error) {
	options.Transports = []string{transport}
	c := &carrier{name: r.config.carrier(transport)}
	if c.comm, err = r.another(ctx, options); err != nil {
		return nil, err
	}
	if err := r.space.(*deviceSpace).register(c.comm); err != nil {
		return nil, errors.Join(err, c.comm.Close())
	}
	return c, nil
}

func (c *carrier) candidates(r *rank, p *prepared) ([]candidate, error) {
	return []candidate{{name: c.name, call: r.shuntCall(c.comm, p, p.slots)}}, nil
}

func (c *carrier) close() error { return c.comm.Close() }
