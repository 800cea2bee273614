package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// probeBytes is what each rank writes into each other's memory.
const probeBytes = 4096

var failProbe = failpoint.NewData("device.probe", "a pattern that a peer wrote into this GPU's memory, as it is read")

// pattern is what writer writes for reader: different for every pair and
// communicator, so that memory of another pair or time is not taken for it.
func pattern(id uint64, writer, reader int) []byte {
	random := rand.New(rand.NewPCG(id, uint64(writer)<<32|uint64(reader)))
	b := make([]byte, probeBytes)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], random.Uint64())
	}
	return b
}

// probe moves a pattern between every pair of GPUs in both directions, by
// writing and by reading peer memory, before anything relies on it: some
// machines report peer access and then lose or mix up bytes. It is collective. The memory is the
// first region of each transport, which is zero before and after.
func (d *device) probe(ctx context.Context, id uint64) error {
	c := d.comm
	if c.world == 1 {
		return nil
	}
	for i, a := range c.attached {
		regions := a.Endpoint.Regions()
		// Places for what peers write, then for what this rank writes to each.
		need := 2 * int64(c.world) * probeBytes
		if len(regions) == 0 || regions[0].Memory != plugin.MemoryKindCuda || regions[0].Bytes < need {
			continue // alike on all ranks, as regions are
		}
		tag := fmt.Sprintf("probe %s %d", c.label, i)
		at := func(rank, place int) cuda.Ptr {
			return d.address(a, rank) + cuda.Ptr(place*probeBytes)
		}
		if err := c.group.Agree(ctx, tag+" written", d.writePatterns(id, at)); err != nil {
			return err
		}
		if err := c.group.Agree(ctx, tag+" read", d.readPatterns(id, at)); err != nil {
			return err
		}
		// The next agreement of Init comes before anything else is written there.
		err := d.driver.Set(d.context, at(c.rank, 0), 0, need, d.copies.Stream())
		if err == nil {
			err = d.driver.SynchronizeStream(d.context, d.copies.Stream())
		}
		if err := c.group.Agree(ctx, tag+" cleared", err); err != nil {
			return err
		}
	}
	return nil
}

// address is where the first region of a rank is mapped here.
func (d *device) address(a *attached, rank int) cuda.Ptr {
	return a.mappings[rank].(deviceMapping).mapping.Address()
}

// writePatterns lays this rank's patterns out in its own memory and has the GPU
// write each into its peer's.
func (d *device) writePatterns(id uint64, at func(rank, place int) cuda.Ptr) error {
	c := d.comm
	for peer := range c.world {
		from := at(c.rank, c.world+peer)
		if err := d.copies.Put(from, pattern(id, c.rank, peer)); err != nil {
			return err
		}
		if err := d.driver.Copy(d.context, at(peer, c.rank), from, probeBytes, d.copies.Stream()); err != nil {
			return fmt.Errorf("writing into the GPU memory of %s: %w", c.observer.PeerName(peer), err)
		}
	}
	return d.driver.SynchronizeStream(d.context, d.copies.Stream())
}

// readPatterns looks at what peers wrote here, and reads back what this rank
// wrote there.
func (d *device) readPatterns(id uint64, at func(rank, place int) cuda.Ptr) error {
	c := d.comm
	got := make([]byte, probeBytes)
	for peer := range c.world {
		if err := d.copies.Get(got, at(c.rank, peer)); err != nil {
			return err
		}
		failProbe.Corrupt(got)
		if want := pattern(id, peer, c.rank); !bytes.Equal(got, want) {
			return d.broken("wrote %d bytes into", peer, got, want)
		}
	}
	for peer := range c.world {
		back := at(c.rank, c.world+peer) // what stood there was read by the copies
		err := d.driver.Set(d.context, back, 0, probeBytes, d.copies.Stream())
		if err == nil {
			err = d.driver.Copy(d.context, back, at(peer, c.rank), probeBytes, d.copies.Stream())
		}
		if err == nil {
			err = d.copies.Get(got, back)
		}
		if err != nil {
			return fmt.Errorf("reading the GPU memory of %s: %w", c.observer.PeerName(peer), err)
		}
		if want := pattern(id, c.rank, peer); !bytes.Equal(got, want) {
			return plugin.Errorf(plugin.Device, "rank %d's GPU (%s) read %d bytes of the memory of %s's (%s), and %s", c.rank, d.info.Bus, probeBytes, c.observer.PeerName(peer), d.busOf(peer), difference(got, want))
		}
	}
	return nil
}

// broken is the error of a pattern that did not arrive.
func (d *device) broken(did string, peer int, got, want []byte) error {
	return plugin.Errorf(plugin.Device, "the GPU (%s) of %s "+did+" the memory of rank %d's (%s), and %s; peer-to-peer access between the two does not work: look for an IOMMU or PCIe ACS that is on, or SHUNT_TRANSPORTS",
		d.busOf(peer), d.comm.observer.PeerName(peer), probeBytes, d.comm.rank, d.info.Bus, difference(got, want))
}

func (d *device) busOf(rank int) string {
	for _, g := range d.comm.observer.Topology.Places[rank].GPUs {
		return g.PCI
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
	return fmt.Sprintf("%d of them are wrong, the first at offset %d: %#02x instead of %#02x", wrong, first, got[first], want[first])
}
