package diagnosis

import (
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// Ledger tells peers of this rank's own calls while they run: their numbers, records in its control page, and the
// lengths of messages and blocks. The communicator's turn guards it.
type Ledger struct {
	*Observer
	call.Sequence
	Unchecked Unchecked // messages of the operation in flight
}

// Name names the operation that was numbered last, for its errors.
func (l *Ledger) Name(collective plugin.Collective) string {
	return Numbered(collective, l.Collectives)
}

// Publish puts an operation into this rank's control page, where peers' watchdogs read it.
func (l *Ledger) Publish(call *call.Call) {
	l.Engine.Record(l.Collectives, l.Number, uint32(call.Collective), call.RecordedType(), uint32(call.Op), call.Count,
		int32(call.Root))
	if !call.Collective.PointToPoint() {
		l.Engine.Mark(l.Mark)
	}
}

// PublishClosed says there that this rank closes the communicator.
func (l *Ledger) PublishClosed() {
	l.Engine.Record(l.Collectives+1, l.Number+1, uint32(Closed), 0, 0, 0, 0)
	l.Engine.Announce()
}

// Begin tells of an operation on host memory that is about to run. lengths says whether its plan compares those of
// messages.
func (l *Ledger) Begin(call *call.Call, lengths bool) {
	l.Publish(call)
	if messages, message := l.Messages(call); messages != nil {
		l.CompareLater(call, lengths)
		messages.Note(message)
		messages.Begun()
	}
	if call.Arrays != nil {
		l.noteBlocks(call)
	}
}

// TakeBack takes the number back from an operation that has not begun after all, if it is a collective, and what the
// control page says of it.
func (l *Ledger) TakeBack(collective plugin.Collective) {
	if !collective.PointToPoint() {
		l.Sequence.TakeBack()
		l.Engine.ForgetCall(l.Mark)
	}
}

// Messages returns this rank's messages to or from the peer of a call, and what is noted of the call there; nil if the
// call is no message.
func (l *Ledger) Messages(call *call.Call) (*executor.Messages, executor.Message) {
	switch call.Collective {
	case plugin.Send:
		return l.Engine.Sent(executor.Single, call.Root), call.Message()
	case plugin.Recv:
		return l.Engine.Received(executor.Single, call.Root), call.Message()
	}
	return nil, 0
}

// noteBlocks notes what this rank gives to and expects from each rank, in collectives with a count for each.
func (l *Ledger) noteBlocks(call *call.Call) {
	call.Blocks(l.Rank, l.World, func(peer int, sends bool, bytes int64) {
		blocks := l.Engine.Received(executor.Block, peer)
		if sends {
			blocks = l.Engine.Sent(executor.Block, peer)
		}
		blocks.Note(executor.MessageOf(bytes, call.DType))
		blocks.Begun()
	})
}

// CompareLater remembers a receive that is about to begin, if its plan does not compare.
func (l *Ledger) CompareLater(call *call.Call, lengths bool) {
	if call.Collective == plugin.Recv && !lengths {
		m, message := l.Messages(call)
		l.Unchecked.Add(call.Root, m.Count(), message)
	}
}

// Reject notes for peers that this rank has rejected an operation, which gets no number, and returns err.
func (l *Ledger) Reject(collective plugin.Collective, err error) error {
	number := uint64(0)
	if !collective.PointToPoint() {
		number = l.Collectives + 1
	}
	return l.Observer.Reject(number, collective.String(), err)
}
