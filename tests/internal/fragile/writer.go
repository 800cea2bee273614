package fragile

import "github.com/shunt-ccl/shunt/plugin"

// writer writes one plan, for two ranks or more.
type writer struct {
	*plugin.Builder
	mutant    string
	me, world int
	varying   bool
	element   int64
}

// is says whether the plan is to be broken in this way.
func (w *writer) is(mutant string) bool { return w.mutant == mutant }

// The layout of the region, equal on all ranks. A line each for what another rank
// writes or reads; counters of a rank stand together.
const (
	region = 0

	word = 8
	line = 64

	exchangeCounter = 0
	offerSemaphore  = 1 * line // the address stands behind it
	takenSemaphore  = 2 * line
	broadcastCount  = 3 * line // messages written, or read from each root: a word for each rank
	broadcastCredit = 4 * line // a line for each root
	written         = broadcastCredit + MaxWorld*line
	read            = written + line
	credit          = read + line // a line for each writer
	lastTotal       = credit + MaxWorld*line
	lastAddress     = lastTotal + line // a word for each rank

	slotBytes     = 4096 // of data
	stride        = slotBytes + line
	exchangeSlots = 16 << 10
	ringSlots     = 8 // a channel's, and as many of broadcasts
	channelSlots  = exchangeSlots + 2*stride
	afterChannels = channelSlots + MaxWorld*ringSlots*stride
)

func (w *writer) peers() []int {
	var peers []int
	for i := 1; i < w.world; i++ {
		peers = append(peers, (w.me+i)%w.world)
	}
	return peers
}

func (w *writer) rank(r int) plugin.Reg { return w.Const(int64(r)) }

// at returns a place in a rank's region.
func (w *writer) at(rank, offset plugin.Reg) plugin.RefID {
	return w.Region(w.Const(region), rank, offset)
}

func (w *writer) own(offset plugin.Reg) plugin.RefID { return w.at(w.rank(w.me), offset) }

func (w *writer) next(number plugin.Reg) plugin.Reg { return w.Add(number, w.Const(1)) }

// epoch returns the value of a semaphore of the exchange with the message after number.
func (w *writer) epoch(number plugin.Reg) plugin.Reg {
	if w.is("wrapping_epoch") {
		return w.next(w.Mod(number, w.Const(8)))
	}
	return w.next(number)
}

// rounds returns the number of pieces of a message; an empty one has one too.
func (w *writer) rounds(bytes, capacity plugin.Reg) plugin.Reg {
	return w.Max(w.CeilDiv(bytes, capacity), w.Const(1))
}

// piece returns how many of bytes come after offset, at most capacity.
func (w *writer) piece(bytes, offset, capacity plugin.Reg) plugin.Reg {
	return w.Max(w.Min(w.Sub(bytes, offset), capacity), w.Const(0))
}

func (w *writer) otherwise(cond plugin.Reg, body func()) { w.If(w.Eq(cond, w.Const(0)), body) }

// when is If in the plan of the given mutant; in every other plan the body always runs.
func (w *writer) when(mutant string, cond func() plugin.Reg, body func()) {
	if !w.is(mutant) {
		body()
		return
	}
	w.If(cond(), body)
}

// contribution returns the bytes that rank r contributes to all_gather(v).
func (w *writer) contribution(r int) plugin.Reg {
	if w.varying {
		return w.RecvCount(r)
	}
	return w.Slot(plugin.SlotBytes)
}

func (w *writer) largest(of func(r int) plugin.Reg) plugin.Reg {
	most := of(0)
	for r := 1; r < w.world; r++ {
		most = w.Max(most, of(r))
	}
	return most
}
