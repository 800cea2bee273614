package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// Introduction is a rank's description of itself when a communicator is made.
type Introduction struct {
	ID         uint64 `json:"id"`    // proposal for the communicator's number; rank 0's counts
	Place      []byte `json:"place"` // topology.Place, encoded
	Release    string `json:"release"`
	Transports string `json:"transports"`
	Choice     string `json:"choice"` // digest of the algorithms that the user forces
	Costs      string `json:"costs"`  // digest of the costs by which algorithms are chosen; rank 0's count
	Memory     string `json:"memory"` // kind of memory that the communicator moves
	// most multiprocessors that this rank lets the communicator's kernels occupy; 0: any
	MaxSMs   int    `json:"max_sms,omitempty"`
	Checks   bool   `json:"checks,omitempty"`    // SHUNT_CHECK is on
	ShareGPU bool   `json:"share_gpu,omitempty"` // SHUNT_SHARE_GPU is on; ranks share one where it is on all of them
	Named    bool   `json:"named,omitempty"`     // this rank's user has named the transports
	Probe    uint64 `json:"probe"`               // address of a word in this process, 0: peers are not to read its memory
	Value    uint64 `json:"value"`               // what the word says
}

// maxIntroduction bounds what a peer may send.
const maxIntroduction = 256 << 10

func (i Introduction) encode() []byte {
	data, err := json.Marshal(i)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return data
}

func decodeIntroduction(data []byte) (i Introduction, err error) {
	if len(data) > maxIntroduction {
		return i, plugin.Errorf(plugin.Protocol, "an introduction has %d bytes, want at most %d", len(data), maxIntroduction)
	}
	if err := json.Unmarshal(data, &i); err != nil {
		return i, plugin.Errorf(plugin.Protocol, "malformed introduction: %w", err)
	}
	return i, nil
}

// Found sums up the ranks' introductions.
type Found struct {
	ID       uint64 // the communicator's number
	MaxSMs   int    // the smallest budget of multiprocessors; 0: none
	Checks   bool   // SHUNT_CHECK is on, on some rank: all compare their calls then
	Named    bool   // some rank's user has named the transports: they are named for all
	Topology *topology.Topology
	Costs    string // digest of rank 0's costs
	Unlike   []int  // ranks that have other costs than rank 0
	PeerRead bool   // every rank can read every other rank's memory, once Readers was heard
	Readers  round.Part

	introductions []Introduction
	word          probe // for PeerRead
}

// Introduce gathers the places of all ranks and checks that they load the same transports. mine is this rank's; with
// peerRead, peers may find out whether they can read its memory.
func (s *Survey) Introduce(ctx context.Context, mine Introduction, peerRead bool) (*Found, error) {
	var word probe
	if peerRead && s.Memory == plugin.MemoryKindHost {
		word = newProbe()
		mine.Probe, mine.Value = word.published()
	}
	answers, err := s.Group.AllGather(ctx, "introduce themselves ("+s.Label+")", mine.encode())
	if err != nil {
		return nil, s.WrapError(s.Call, err)
	}
	places := make([]topology.Place, len(answers))
	found := &Found{introductions: make([]Introduction, len(answers)), word: word}
	for rank, answer := range answers {
		peer, err := decodeIntroduction(answer)
		if err == nil && peer.Release != mine.Release { // before anything that may be encoded otherwise
			return nil, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("init: rank %d runs Shunt %s, rank %d runs Shunt %s; install one version for all ranks", s.Rank,
					mine.Release, rank, cmp.Or(peer.Release, "before 1.1.0"))}
		}
		if err == nil {
			places[rank], err = topology.Decode(peer.Place)
		}
		if err != nil {
			return nil, plugin.Errorf(plugin.Protocol, "init: rank %d sent a malformed introduction: %w", rank, err)
		}
		if rank == 0 {
			found.ID, found.Costs = peer.ID, peer.Costs
		}
		if peer.Costs != found.Costs {
			found.Unlike = append(found.Unlike, rank)
		}
		if peer.Transports != mine.Transports {
			return nil, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("init: ranks load different transports: rank %d has %q, rank %d has %q", s.Rank,
					mine.Transports, rank, peer.Transports)}
		}
		if peer.Choice != mine.Choice {
			return nil, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("init: SHUNT_ALGO differs between rank %d and rank %d", s.Rank, rank)}
		}
		if peer.MaxSMs < 0 {
			return nil, plugin.Errorf(plugin.Protocol, "init: rank %d has a budget of %d multiprocessors", rank, peer.MaxSMs)
		}
		if peer.MaxSMs > 0 && (found.MaxSMs == 0 || peer.MaxSMs < found.MaxSMs) {
			found.MaxSMs = peer.MaxSMs
		}
		found.Checks, found.Named = found.Checks || peer.Checks, found.Named || peer.Named
		places[rank].Rank, found.introductions[rank] = rank, peer
	}
	for rank, i := range found.introductions {
		if i.Memory != mine.Memory {
			return nil, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("init: rank %d is on %s memory, rank %d on %s memory", s.Rank, mine.Memory, rank, i.Memory)}
		}
	}
	found.Topology = topology.New(places)
	alone := slices.ContainsFunc(found.introductions, func(i Introduction) bool { return !i.ShareGPU })
	if a, b, g, shared := found.Topology.SharedGPU(); shared && alone {
		return nil, &plugin.Error{Code: plugin.InvalidArgument, Rank: b, Message: fmt.Sprintf(
			"init: ranks %d (pid %d) and %d (pid %d) both use GPU %s (%s) of host %s; give each rank a GPU of its own, as with Options.Device or CUDA_VISIBLE_DEVICES, or set SHUNT_SHARE_GPU=on on all ranks",
			a, places[a].PID, b, places[b].PID, g.UUID, g.PCI, places[b].Host)}
	}
	return found, nil
}
