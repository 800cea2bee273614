package survey

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// PatternBytes is the length of the pattern that each rank writes into each other's memory.
const PatternBytes = 4096

var failProbe = failpoint.New("device.probe", "a pattern that a peer wrote into this GPU's memory, as it is read")

// pattern returns the bytes that writer writes for reader: different for every pair and
// communicator, so that memory of another pair or time is not taken for it.
func pattern(id uint64, writer, reader int) []byte {
	random := rand.New(rand.NewPCG(id, uint64(writer)<<32|uint64(reader)))
	b := make([]byte, PatternBytes)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], random.Uint64())
	}
	return b
}

// GPUs moves patterns between the GPUs of ranks.
type GPUs struct {
	*Survey
	Driver  cuda.Driver
	Context cuda.Context
	Bus     string // of this rank's GPU
	Copies  *memory.Staging
}

// ProbeBytes returns the memory of every rank that a probe needs.
func (g *GPUs) ProbeBytes() int64 { return 2 * int64(g.World) * PatternBytes }

// Probe moves a pattern between every pair of GPUs in both directions, by writing and by reading peer memory, before
// anything relies on it: some machines report peer access and then lose or mix up bytes. id is the communicator's
// number, regions are ProbeBytes or more of each rank, the first of which are zero before and after.
func (g *GPUs) Probe(ctx context.Context, tag string, id uint64, regions []*memory.DeviceMapping) error {
	// Places for what peers write, then for what this rank writes to each.
	at := func(rank, place int) cuda.Ptr { return regions[rank].Address() + cuda.Ptr(place*PatternBytes) }
	if err := g.Group.Agree(ctx, tag+" written", g.writePatterns(id, at)); err != nil {
		return err
	}
	if err := g.Group.Agree(ctx, tag+" read", g.readPatterns(id, at)); err != nil {
		return err
	}
	// The next agreement of Init comes before anything else is written there.
	err := g.Driver.Set(g.Context, at(g.Rank, 0), 0, g.ProbeBytes(), g.Copies.Stream())
	return g.Group.Agree(ctx, tag+" cleared", g.Copies.Wait(err))
}

// writePatterns lays this rank's patterns out in its own memory and has the GPU
// write each into its peer's.
func (g *GPUs) writePatterns(id uint64, at func(rank, place int) cuda.Ptr) error {
	for peer := range g.World {
		from := at(g.Rank, g.World+peer)
		if err := g.Copies.Put(from, pattern(id, g.Rank, peer)); err != nil {
			return g.Copies.Wait(err)
		}
		if err := g.Driver.Copy(g.Context, at(peer, g.Rank), from, PatternBytes, g.Copies.Stream()); err != nil {
			return fmt.Errorf("writing into the GPU memory of %s: %w", g.PeerName(peer), g.Copies.Wait(err))
		}
	}
	return g.Copies.Wait(nil)
}

// readPatterns looks at what peers wrote here, and reads back what this rank
// wrote there.
func (g *GPUs) readPatterns(id uint64, at func(rank, place int) cuda.Ptr) error {
	got := make([]byte, PatternBytes)
	for peer := range g.World {
		if err := g.Copies.Get(got, at(g.Rank, peer)); err != nil {
			return err
		}
		failProbe.Corrupt(got)
		if want := pattern(id, peer, g.Rank); !bytes.Equal(got, want) {
			return g.broken("wrote %d bytes into", peer, got, want)
		}
	}
	for peer := range g.World {
		back := at(g.Rank, g.World+peer) // what stood there was read by the copies
		err := g.Driver.Set(g.Context, back, 0, PatternBytes, g.Copies.Stream())
		if err == nil {
			err = g.Driver.Copy(g.Context, back, at(peer, g.Rank), PatternBytes, g.Copies.Stream())
		}
		if err == nil {
			err = g.Copies.Get(got, back)
		}
		if err != nil {
			return fmt.Errorf("reading the GPU memory of %s: %w", g.PeerName(peer), g.Copies.Wait(err))
		}
		if want := pattern(id, g.Rank, peer); !bytes.Equal(got, want) {
			return plugin.Errorf(plugin.Device, "rank %d's GPU (%s) read %d bytes of the memory of %s's (%s), and %s", g.Rank,
				g.Bus, PatternBytes, g.PeerName(peer), g.busOf(peer), difference(got, want))
		}
	}
	return nil
}

// broken returns the error of a pattern that did not arrive.
func (g *GPUs) broken(did string, peer int, got, want []byte) error {
	return plugin.Errorf(plugin.Device, "the GPU (%s) of %s "+did+
		" the memory of rank %d's (%s), and %s; peer-to-peer access between the two does not work: look for an IOMMU or PCIe ACS that is on, or SHUNT_TRANSPORTS",
		g.busOf(peer), g.PeerName(peer), PatternBytes, g.Rank, g.Bus, difference(got, want))
}

func (g *GPUs) busOf(rank int) string {
	for _, gpu := range g.Topology.Places[rank].GPUs {
		return gpu.PCI
	}
	return "unknown"
}

// difference says in words how two patterns differ.
func difference(got, want []byte) string {
	wrong, first := 0, -1
	for i := range want {
		if got[i] != want[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Sprintf("%d of them are wrong, the first at offset %d: %#02x instead of %#02x", wrong, first, got[first],
		want[first])
}
