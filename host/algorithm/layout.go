package algorithm

const (
	word = 8
	line = 64 // no two ranks write the same one

	// the payload follows a semaphore and its mark (plugin.FeatureMarks)
	behind = 2 * word

	// maxWorld keeps plans within the limits of registers and steps.
	maxWorld = 256

	// slotsEach is the number of slots of a channel: two halves, so that one
	// is filled while the other is read.
	slotsEach = 8

	// leastCapacity is the smallest slot that is worth its semaphore.
	leastCapacity = 64
)

// class is a protocol class: its channels share no slot and no counter with
// those of another.
type class int

const (
	messages      class = iota // send and recv
	personal                   // collectives: a rank's own data
	results                    // all_reduce: what an owner has reduced
	countClasses  int64 = iota
	headerAligned       = 4096
)

// layout gives the offset of everything in a scratch region; it is the same on all
// ranks. Slots are those of the channels towards the rank that owns the region.
type layout struct {
	world    int64
	produced int64 // counter words of this rank as a writer: class × reader
	consumed int64 // counter words of this rank as a reader: class × writer
	credits  int64 // semaphores of readers, written by them: class × reader, a line each
	slots    int64 // class × writer × slotsEach
	stride   int64 // from slot to slot: a line with the semaphore, its mark and the message's length, then data
	capacity int64 // bytes of data in a slot, a multiple of a line
}

// newLayout divides a scratch region; ok is false if it is too small.
func newLayout(world int, scratchBytes int64) (l layout, ok bool) {
	n := int64(world)
	at := int64(0)
	take := func(bytes int64) int64 {
		start := at
		at += (bytes + line - 1) / line * line
		return start
	}
	l.world = n
	l.produced = take(countClasses * n * word)
	l.consumed = take(countClasses * n * word)
	l.credits = take(countClasses * n * line)
	l.slots = (at + headerAligned - 1) / headerAligned * headerAligned
	l.stride = (scratchBytes - l.slots) / (countClasses * n * slotsEach) / line * line
	l.capacity = l.stride - line
	return l, l.capacity >= leastCapacity
}

func (l *layout) producedWord(c class) int64 { return l.produced + int64(c)*l.world*word }
func (l *layout) consumedWord(c class) int64 { return l.consumed + int64(c)*l.world*word }
func (l *layout) creditLine(c class) int64   { return l.credits + int64(c)*l.world*line }

// slotsFrom returns the first slot of the channel from writer.
func (l *layout) slotsFrom(c class, writer int) int64 {
	return l.slots + (int64(c)*l.world+int64(writer))*slotsEach*l.stride
}

// channelStride leads from the slots of one channel to those from the next
// writer.
func (l *layout) channelStride() int64 { return slotsEach * l.stride }
