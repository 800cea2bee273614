package selector

import (
	"fmt"
	"math"
	"strings"
)

// String says which algorithm serves which sizes. Choices that are made alike have
// equal ones.
func (c *Choice) String() string {
	var ranges []string
	for i, last := range c.upTo {
		name := "none"
		if c.index[i] >= 0 {
			name = c.candidates[c.index[i]].Qualified
		}
		if last < math.MaxInt64 {
			name += fmt.Sprintf(" up to %d bytes", last)
		}
		ranges = append(ranges, name)
	}
	return strings.Join(ranges, ", ")
}

// Offers says what each transport has for the call, by its name: its algorithms with
// their limits, or why it has none.
func (c *Choice) Offers() map[string]string {
	offers := map[string]string{}
	for name, reason := range c.rejections {
		if !strings.Contains(name, "/") {
			offers[name] = "none, " + reason
		}
	}
	for _, candidate := range c.candidates {
		offer := candidate.Algorithm.Name
		switch a := candidate.Algorithm; {
		case a.MinBytes > 0 && a.MaxBytes > 0:
			offer += fmt.Sprintf(" for %d to %d bytes", a.MinBytes, a.MaxBytes)
		case a.MinBytes > 0:
			offer += fmt.Sprintf(" for %d bytes and more", a.MinBytes)
		case a.MaxBytes > 0:
			offer += fmt.Sprintf(" for up to %d bytes", a.MaxBytes)
		}
		if before := offers[candidate.Transport]; before != "" {
			offer = before + ", " + offer
		}
		offers[candidate.Transport] = offer
	}
	return offers
}
