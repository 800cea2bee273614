package round

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// pair is a group of this rank and another, whose parts are what it is given.
type pair struct {
	other [][]byte
	tags  map[string]bool
}

func (p *pair) AllGather(_ context.Context, tag string, payload []byte) ([][]byte, error) {
	if p.tags[tag] {
		return nil, errors.New("two exchanges have one tag")
	}
	p.tags[tag] = true
	if len(p.other) == 0 {
		return nil, errors.New("there was an exchange more than the payloads need")
	}
	part := p.other[0]
	p.other = p.other[1:]
	return [][]byte{payload, part}, nil
}

// part encodes one rank's bytes of one exchange of Gather.
func part(left uint32, b string) []byte {
	var w wire.Writer
	w.U32(left)
	w.Bytes([]byte(b))
	return w.B
}

func gather(t *testing.T, mine []byte, other ...[]byte) ([][]byte, error) {
	t.Helper()
	most := Most
	Most = 2 * (4 + 16)
	defer func() { Most = most }()
	return Gather(t.Context(), &pair{other, map[string]bool{}}, 2, "gather", mine)
}

// Ranks get all payloads, in as many exchanges as the longest one needs.
func TestGather(t *testing.T) {
	for _, c := range []struct {
		mine  string
		other [][]byte
	}{
		{"", [][]byte{part(0, "")}},
		{"four", [][]byte{part(0, "fou")}},
		{"", [][]byte{part(5, "four"), part(1, "four"), part(0, "f")}},
		{"fourfourf", [][]byte{part(0, ""), part(0, ""), part(0, "")}},
	} {
		var whole []byte
		for _, b := range c.other {
			whole = append(whole, b[8:]...)
		}
		all, err := gather(t, []byte(c.mine), c.other...)
		require.NoError(t, err)
		require.Equal(t, c.mine, string(all[0]))
		require.True(t, bytes.Equal(whole, all[1]), "%q", all[1])
	}
}

// A rank that announces what it does not send keeps the others neither busy nor filling their memory.
func TestGatherRefuses(t *testing.T) {
	for name, other := range map[string][][]byte{
		"nothing":                     {nil},
		"bytes behind its part":       {append(part(0, "four"), 0)},
		"no end":                      {part(4, "four"), part(4, "")},
		"more than was to come":       {part(4, "four"), part(4, "four")},
		"less than was to come":       {part(8, "four"), part(0, "four")},
		"a part that was not to come": {part(0, "four"), part(0, "four")},
		"too much":                    {part(Longest, "four")},
	} {
		_, err := gather(t, []byte("four and more"), other...)
		require.Equal(t, plugin.Protocol, plugin.CodeOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "rank 1 sent a malformed part", name)
	}
}
