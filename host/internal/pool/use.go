package pool

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// place is a stream as it was at a call.
type place struct {
	handle  cuda.Stream
	id      uint64 // the stream's own, which a reused handle does not share; numbered's where the driver has none
	capture *capture
}

// capture is a graph in the making, and later.
type capture struct {
	graph  Graph
	passed bool // it is gone
}

// use records the work of a stream on a block, now or at every replay.
type use struct {
	stream  uint64
	event   *event // nil in a capture
	capture *capture
}

// event is recorded at a Free. Blocks that come of one block share it.
type event struct {
	handle cuda.Event
	number uint64 // those numbered later are greater
	uses   int
	passed bool
}

// same reports whether two uses are of one stream, in one capture or in none.
func (u use) same(v use) bool { return u.stream == v.stream && u.capture == v.capture }

// where returns what a stream is at this moment.
func (p *Pool) where(stream cuda.Stream) (place, error) {
	_, c, err := p.gpu.Driver.Submit(p.gpu.Context, &cuda.Batch{Stream: stream})
	if err != nil {
		return place{}, err
	}
	return p.placed(stream, c)
}

func (p *Pool) placed(stream cuda.Stream, c cuda.Capture) (place, error) {
	at := place{handle: stream, id: c.Stream}
	if at.id == 0 {
		at.id = numbered(stream)
	}
	switch {
	case c.Status == cuda.CaptureInvalidated:
		return at, plugin.Errorf(plugin.Device, "the stream's capture has failed already")
	case c.ID == 0:
		return at, nil
	}
	at.id = numbered(stream) // alike whether the driver tells or not: captures end before streams
	var err error
	at.capture, err = p.captured(c)
	return at, err
}

// numbered returns a stream's number where the driver does not tell one: its handle, or for the threads' own streams,
// which have one handle, the thread.
func numbered(stream cuda.Stream) uint64 {
	if stream == cuda.PerThreadStream {
		return 1<<63 | uint64(unix.Gettid())
	}
	return uint64(stream)
}

// captured returns a capture, tied to its graph.
func (p *Pool) captured(c cuda.Capture) (*capture, error) {
	p.mu.Lock()
	known := p.captures[c.ID]
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	graph, err := p.tie(c.Graph)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, known := range p.captures { // a number that a capture had does not come back
		if known.graph.Gone() {
			delete(p.captures, id)
		}
	}
	if known := p.captures[c.ID]; known != nil {
		return known, nil // two threads at once: the other tie goes with the graph
	}
	known = &capture{graph: graph}
	p.captures[c.ID] = known
	return known, nil
}

// record notes where streams are: events, or the captures that they are in, beside those in which the memory was
// allocated (home, if any) and the streams were recorded on it.
func (p *Pool) record(streams []place, home *capture) (uses []use, err error) {
	for _, s := range streams {
		e, err := p.newEvent()
		if err != nil {
			return uses, err
		}
		u := use{event: e}
		done, c, err := p.gpu.Driver.Submit(p.gpu.Context, &cuda.Batch{Stream: s.handle,
			Work: []cuda.Work{{Kind: cuda.WorkRecord, Stream: s.handle, Handle: uint64(e.handle)}}})
		var at place
		if err == nil {
			at, err = p.placed(s.handle, c)
		}
		if done == 0 { // in a capture, or failed
			p.mu.Lock()
			p.spare = append(p.spare, e.handle)
			p.mu.Unlock()
			u.event = nil
		}
		if err != nil {
			return uses, err
		}
		u.stream, u.capture = at.id, at.capture
		p.mu.Lock()
		uses = p.join(uses, []use{u})
		p.mu.Unlock()
	}
	for _, s := range append(streams[1:], place{capture: home}) {
		if s.capture != nil && !slices.ContainsFunc(uses, func(u use) bool { return u.capture == s.capture }) {
			uses = append(uses, use{capture: s.capture})
		}
	}
	return uses, nil
}

// newEvent numbers an event before it is recorded: of two in one stream that of the greater number is behind the work
// that either stands for, whichever thread records first.
func (p *Pool) newEvent() (e *event, err error) {
	p.mu.Lock()
	p.events++
	e = &event{number: p.events, uses: 1}
	if n := len(p.spare); n > 0 {
		e.handle = p.spare[n-1]
		p.spare = p.spare[:n-1]
		p.mu.Unlock()
		return e, nil
	}
	p.mu.Unlock()
	e.handle, err = p.gpu.Driver.NewEvent(p.gpu.Context, false)
	return e, err
}

// join adds uses to others; of two of one stream the later stays. p.mu is held.
func (p *Pool) join(to, more []use) []use {
	for _, u := range more {
		i := slices.IndexFunc(to, u.same)
		switch {
		case i < 0:
			to = append(to, u)
		case u.event != nil && u.event.number > to[i].event.number:
			p.drop(to[i : i+1])
			to[i] = u
		default:
			p.drop([]use{u})
		}
	}
	return to
}

// share returns the same uses for another block. p.mu is held.
func (p *Pool) share(uses []use) []use {
	for _, u := range uses {
		if u.event != nil {
			u.event.uses++
		}
	}
	return slices.Clone(uses)
}

// drop forgets uses. p.mu is held.
func (p *Pool) drop(uses []use) {
	for _, u := range uses {
		if u.event != nil {
			if u.event.uses--; u.event.uses == 0 {
				p.spare = append(p.spare, u.event.handle)
			}
		}
	}
}

// serves reports whether a stream may use the memory at once as far as one use goes. p.mu is held.
func (p *Pool) serves(u use, at place) bool {
	if u.capture == at.capture && u.stream == at.id {
		return true
	}
	if p.ordered {
		return p.known(u)
	}
	return p.over(u)
}

// known reports whether a use is known to be over.
func (p *Pool) known(u use) bool {
	return u.event != nil && u.event.passed || u.capture != nil && u.capture.passed
}

// over looks whether a use is over. p.mu is held.
func (p *Pool) over(u use) bool {
	switch {
	case u.capture != nil && !u.capture.passed:
		u.capture.passed = u.capture.graph.Gone()
	case u.event != nil && !u.event.passed:
		done, err := p.gpu.Driver.EventDone(p.gpu.Context, u.event.handle)
		u.event.passed = err == nil && done || cuda.ResultOf(err).Sticky() // nothing runs in a broken context
	}
	return p.known(u)
}

// settle forgets uses that are over and merges the blocks that they kept apart; false: there were none. p.mu is held.
func (p *Pool) settle() (changed bool) {
	var idle []*block
	for _, b := range p.free {
		uses := len(b.uses)
		b.uses = slices.DeleteFunc(b.uses, func(u use) bool {
			if !p.over(u) {
				return false
			}
			p.drop([]use{u})
			return true
		})
		if len(b.uses) < uses {
			idle = append(idle, b)
		}
	}
	p.mergeAll(idle)
	return len(idle) > 0
}

// mergeAll merges free blocks whose uses are fewer now. p.mu is held.
func (p *Pool) mergeAll(blocks []*block) {
	for _, b := range blocks {
		if b.free { // else merged meanwhile
			p.merge(b)
		}
	}
}

// await puts waits for uses of other streams into a stream: in an ordered pool there may be some.
func (p *Pool) await(at place, uses []use) error {
	if !p.ordered || at.capture != nil {
		return nil
	}
	batch := cuda.Batch{Stream: at.handle}
	for _, u := range uses {
		if u.event != nil && u.stream != at.id {
			batch.Work = append(batch.Work, cuda.Work{Kind: cuda.WorkWait, Stream: at.handle, Handle: uint64(u.event.handle)})
		}
	}
	if len(batch.Work) == 0 {
		return nil
	}
	done, _, err := p.gpu.Driver.Submit(p.gpu.Context, &batch)
	if err == nil && done < len(batch.Work) {
		err = plugin.Errorf(plugin.InvalidArgument, "another thread has begun to capture the stream during the call")
	}
	return err
}

// Snapshot is the free blocks of an ordered pool at one time.
type Snapshot struct {
	blocks  []*block
	changes []int
}

// Passed returns, for the free blocks in order, whether their uses are over here: a byte each, 1 or 0.
func (p *Pool) Passed() (*Snapshot, []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, passed := &Snapshot{}, []byte(nil)
	for _, segment := range p.segments {
		for b := segment.first; b != nil; b = b.next {
			if !b.free {
				continue
			}
			s.blocks, s.changes = append(s.blocks, b), append(s.changes, b.changes)
			over := byte(0)
			if p.all(b.uses, p.look) {
				over = 1
			}
			passed = append(passed, over)
		}
	}
	return s, passed
}

// look is over without a note. p.mu is held.
func (p *Pool) look(u use) bool {
	if p.known(u) {
		return true
	}
	if u.capture != nil {
		return u.capture.graph.Gone()
	}
	done, err := p.gpu.Driver.EventDone(p.gpu.Context, u.event.handle)
	return err == nil && done || cuda.ResultOf(err).Sticky()
}

// Agreed forgets the uses of the blocks of which all ranks have said that they are over, and merges what they kept
// apart.
func (p *Pool) Agreed(s *Snapshot, passed []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var idle []*block
	for i, b := range s.blocks {
		if passed[i] == 1 && b.free && b.changes == s.changes[i] {
			p.drop(b.uses)
			b.uses = nil
			idle = append(idle, b)
		}
	}
	p.mergeAll(idle)
}
