package regroup

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// longestLabel bounds a label, in bytes: it stands in tags, of which the rendezvous takes 255, and it grows with every
// generation of communicators.
const longestLabel = 120

// Label returns a label of at most longestLabel bytes, on all ranks the same. Of a longer one the middle is replaced by
// a digest of the whole.
func Label(label string) string {
	if len(label) <= longestLabel {
		return label
	}
	const kept = (longestLabel - 20) / 2
	sum := sha256.Sum256([]byte(label))
	return fmt.Sprintf("%s..%x..%s", label[:kept], sum[:8], label[len(label)-kept:])
}

// Counters number what ranks do together, each kind by itself: in labels and tags, where all ranks have counted alike.
// The zero value has counted nothing.
type Counters struct {
	mu     sync.Mutex
	counts map[string]int
}

// Next returns the next number of a kind, from 1 on.
func (c *Counters) Next(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[kind]++
	return c.counts[kind]
}
