package launch

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/shunt-ccl/shunt/plugin"
)

// maxMessage bounds a message.
const maxMessage = 256 << 20

// Marker returns what begins a message, by a secret that no other output of a process has. A control character comes
// first, so that no JSON holds it, such as that of a lifeline which a terminal echoes.
func Marker(secret string) string { return "\x1eshunt-message " + secret + " " }

// WriteMessage writes a value as a message among a process's output: the marker, JSON, a line break.
func WriteMessage(w io.Writer, marker string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return plugin.Errorf(plugin.Internal, "%w", err)
	}
	if _, err = w.Write(append(append([]byte(marker), text...), '\n')); err != nil {
		return plugin.Errorf(plugin.System, "%w", err)
	}
	return nil
}

// Messages takes the messages out of a process's output, which it passes on.
type Messages struct {
	to      io.Writer
	marker  []byte
	take    func(json []byte)
	pending []byte // the beginning of a marker, or a message
	inside  bool   // a message
}

// NewMessages returns what passes output on to to, and the messages of that marker, without it, to take.
func NewMessages(to io.Writer, marker string, take func(json []byte)) *Messages {
	return &Messages{to: to, marker: []byte(marker), take: take}
}

// Write takes any piece of output.
func (m *Messages) Write(p []byte) (int, error) {
	searched := len(m.pending) // for a line break
	m.pending = append(m.pending, p...)
	for {
		if !m.inside {
			at := bytes.Index(m.pending, m.marker)
			m.inside = at >= 0
			if at < 0 {
				at = len(m.pending) - m.begun()
			}
			if err := m.pass(at); err != nil {
				return 0, err
			}
			if !m.inside {
				return len(p), nil
			}
			m.pending, searched = m.pending[len(m.marker):], 0
		}
		end := bytes.IndexByte(m.pending[searched:], '\n')
		if end < 0 {
			if len(m.pending) > maxMessage {
				return 0, plugin.Errorf(plugin.Protocol, "a message is longer than %d bytes", maxMessage)
			}
			return len(p), nil
		}
		m.take(m.pending[:searched+end])
		m.pending, m.inside = m.pending[searched+end+1:], false
	}
}

// begun returns how many bytes at the end may be the beginning of a marker.
func (m *Messages) begun() int {
	for n := min(len(m.marker)-1, len(m.pending)); n > 0; n-- {
		if bytes.HasSuffix(m.pending, m.marker[:n]) {
			return n
		}
	}
	return 0
}

// pass passes n bytes on.
func (m *Messages) pass(n int) error {
	if n == 0 {
		return nil
	}
	_, err := m.to.Write(m.pending[:n])
	m.pending = m.pending[n:]
	return err
}

// Close passes on what could have become a message. One that is not whole is dropped.
func (m *Messages) Close() error {
	if m.inside {
		return nil
	}
	return m.pass(len(m.pending))
}
