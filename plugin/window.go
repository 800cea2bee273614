package plugin

// A window is a region of role buffer of every rank, made for one-sided
// operations: a header, then the user's bytes. The header has two lines of 64
// bytes for each rank p. The first holds the semaphore that p raises here. The
// second is this rank's own: a word that counts how often it has raised its
// semaphore at p, and one that counts the raises of p that it has waited for.
const (
	windowLine    = 64
	windowPerRank = 2 * windowLine
	windowAlign   = 4096
)

// WindowHeader returns the length of a window's header in a world of the given size:
// the offset of the user's bytes, a multiple of a page.
func WindowHeader(world int) int64 {
	return (int64(world)*windowPerRank + windowAlign - 1) / windowAlign * windowAlign
}

// WindowSemaphore returns the offset of the semaphore that a rank raises.
func WindowSemaphore(rank int) int64 { return int64(rank) * windowPerRank }

// WindowRaised returns the offset of the count of this rank's raises at a rank.
func WindowRaised(rank int) int64 { return int64(rank)*windowPerRank + windowLine }

// WindowAwaited returns the offset of the count of a rank's raises waited for.
func WindowAwaited(rank int) int64 { return int64(rank)*windowPerRank + windowLine + 8 }
