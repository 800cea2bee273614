// Package copies keeps one copy of what the endpoints of a transport publish alike:
// images are tens of MB, and each communicator has an endpoint.
package copies

import (
	"bytes"
	"sync"
)

// Set holds what was published last under each name. The zero value is empty.
type Set struct {
	mu    sync.Mutex
	known map[string][]byte
}

// Of returns a copy of data, the one that the set has if it is the same. Nobody may write into it. data stays the
// caller's.
func (s *Set) Of(name string, data []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(s.known[name], data) {
		if s.known == nil {
			s.known = map[string][]byte{}
		}
		s.known[name] = bytes.Clone(data)
	}
	return s.known[name]
}
