package shm

// The numbers of the two regions that an endpoint publishes.
const (
	regionPrivate = 0
	regionScratch = 1
)

// maxWorld is the largest communicator whose plans stay within the limits of a
// plan (registers and steps grow with the world).
const maxWorld = 256

const (
	word = 8
	line = 64 // a cache line: what one rank writes shares none with another's
	page = 4096
)

// Behind every semaphore of collectives a word is the host's, for marks
// (plugin.FeatureMarks), so what goes with a semaphore stands two words further.
const behind = 2 * word

// slots is a run of equal slots in a region, used in turn. A slot starts with
// its semaphore: the number (from 1) of the message that it holds.
type slots struct {
	base     int64 // offset of the first slot
	stride   int64 // from one slot to the next
	head     int64 // from the start of a slot to its data
	capacity int64 // bytes of data in a slot, a multiple of 8
	count    int64
}

// ring is slots with one writer, whose readers give credit. Rings of a class
// for pairs have one for each reader; those of a class for all ranks have one.
type ring struct {
	slots
	span     int64 // from the ring for one reader to that for the next; 0: one ring for all
	produced int64 // counter words of the writer: one for each ring
	consumed int64 // counter words of the reader: one for each writer
	credits  int64 // semaphores of the reader, a line for each writer
}

// pair is a protocol class for ordered pairs of ranks: a ring of small slots
// for messages that fit one, a ring of large slots for all others. Both ends
// know a message's size, so they agree on the ring without a word.
type pair struct {
	small, large ring
	offers       offers // for messages that are moved in one copy
	lengths      bool   // messages carry their length; see length.go
}

// layout gives the offset of everything in a private region; it is the same on
// all ranks. Each class below has its own slots and counters.
type layout struct {
	barrierCounter   int64
	barrierSemaphore int64

	exchangeCounter int64
	exchange        slots

	blocksCounter int64
	blocks        slots // the second line of a slot holds its result semaphore

	messages  pair    // send and recv
	personal  pair    // collectives that move other bytes to each peer
	tiny      [2]ring // broadcasts of a few bytes: one ring for all readers, by length
	broadcast pair    // one ring, and one offer, for all readers
	mutual    offers  // every rank to every rank

	bytes int64
}

// Sizes of slots, tuned on two cores with 2 MiB of second-level cache each.
const (
	exchangeBytes = 64 << 10
	blockBytes    = 256 << 10
	smallBytes    = 4 << 10
	smallSlots    = 16
	manySlots     = 64 // of broadcast, whose root may be far ahead
	tinySlots     = 256
	largeBytes    = 64 << 10
	largeSlots    = 8
	largeTotal    = 4 << 20 // a rank's large rings of one class, where the world allows
)

// tinyStrides are the lengths of the slots of tiny. Several messages to a line
// were slower: a reader that is close behind takes the line from the root that
// writes the next one.
var tinyStrides = [2]int64{line, 4 * line}

func newLayout(world int) layout {
	n := int64(world)
	at := int64(0)
	take := func(bytes, align int64) int64 {
		at = (at + align - 1) / align * align
		start := at
		at += bytes
		return start
	}

	// Words that only their rank reads stand together; what peers read has
	// lines of its own.
	var l layout
	l.barrierCounter = take(word, line)
	l.exchangeCounter = take(word, word)
	l.blocksCounter = take(word, word)
	rings := []*ring{
		&l.messages.small, &l.messages.large, &l.personal.small, &l.personal.large,
		&l.tiny[0], &l.tiny[1], &l.broadcast.small, &l.broadcast.large,
	}
	for _, r := range rings {
		r.produced = take(n*word, word)
		r.consumed = take(n*word, word)
	}
	l.barrierSemaphore = take(line, line)
	l.mutual = offers{offered: take(line, line), taken: take(line, line)}
	for _, p := range []*pair{&l.messages, &l.personal} {
		p.offers = offers{offered: take(n*line, line), taken: take(n*line, line)}
	}
	l.broadcast.offers = offers{offered: take(line, line), taken: take(n*line, line)}
	for _, r := range rings {
		r.credits = take(n*line, line)
	}

	// A stride that is an odd number of lines spreads the slots' first lines
	// over the sets of a cache. Where a message fits the rest of the first line
	// its semaphore and its data cross to a reader together.
	lay := func(s *slots, rings, count, head, capacity int64) int64 {
		stride := (head+capacity+line-1)/line*line | line
		span := count * stride
		*s = slots{base: take(rings*span, page), stride: stride, head: head, capacity: capacity, count: count}
		return span
	}
	lay(&l.exchange, 1, 2, behind, exchangeBytes)
	lay(&l.blocks, 1, blocksInFlight, 2*line, blockBytes)
	large := max(4<<10, min(largeBytes, largeTotal/(n*largeSlots))/page*page)
	l.messages.lengths, l.personal.lengths = true, true
	for _, p := range []*pair{&l.messages, &l.personal} {
		p.small.span = lay(&p.small.slots, n, smallSlots, behind, smallBytes)
		p.large.span = lay(&p.large.slots, n, largeSlots, line, large)
	}
	for i, stride := range tinyStrides {
		l.tiny[i].slots = slots{base: take(tinySlots*stride, page), stride: stride, head: behind, capacity: stride - behind,
			count: tinySlots}
	}
	lay(&l.broadcast.small.slots, 1, manySlots, behind, smallBytes)
	lay(&l.broadcast.large.slots, 1, largeSlots, line, largeBytes)
	l.bytes = take(0, page)
	return l
}

// scratchBytes returns the size of the scratch region: what the host's generic
// algorithms need for rings of a good size between all pairs.
func scratchBytes(world int) int64 {
	return max(4<<20, int64(world)*(256<<10))
}
