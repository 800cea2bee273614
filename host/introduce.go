package host

import (
	"encoding/json"

	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// introduction is what a rank says about itself when a communicator is made.
type introduction struct {
	ID         uint64 `json:"id"`    // proposal for the communicator's number; rank 0's counts
	Place      []byte `json:"place"` // topology.Place, encoded
	Transports string `json:"transports"`
	Choice     string `json:"choice"`            // digest of what decides the choice of algorithms
	Memory     string `json:"memory"`            // kind of memory that the communicator moves
	MaxSMs     int    `json:"max_sms,omitempty"` // most multiprocessors that this rank lets the communicator's kernels occupy; 0: any
	Probe      uint64 `json:"probe"`             // address of a word in this process, 0: peers are not to read its memory
	Value      uint64 `json:"value"`             // what the word says
}

// maxIntroduction bounds what a peer may send.
const maxIntroduction = 256 << 10

func (i introduction) encode() []byte {
	data, err := json.Marshal(i)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return data
}

func decodeIntroduction(data []byte) (introduction, topology.Place, error) {
	var i introduction
	if len(data) > maxIntroduction {
		return i, topology.Place{}, plugin.Errorf(plugin.Protocol, "introduction of %d bytes, at most %d", len(data), maxIntroduction)
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return i, topology.Place{}, plugin.Errorf(plugin.Protocol, "malformed introduction: %w", err)
	}
	place, err := topology.Decode(i.Place)
	return i, place, err
}
