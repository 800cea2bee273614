package survey

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// OpenManagement finds NVML. Tests replace it.
var OpenManagement = cuda.OpenManagement

// Paths finds out how every two GPUs of the ranks are connected, and enters it in the topology. Every rank looks at the
// ways from its own GPU, and all get what each has found, so that the results are equal: protocols that need whole
// lines, and transports that need peers' memory, must be those of all ranks or of none.
func (s *Survey) Paths(ctx context.Context, driver cuda.Driver) error {
	if s.World == 1 || s.Memory != plugin.MemoryKindCuda || len(s.Topology.Hosts()) > 1 {
		return nil
	}
	row := s.lookFrom(driver)
	answers, err := s.Group.AllGather(ctx, "compare the paths between their GPUs ("+s.Label+")", topology.EncodePaths(row))
	if err != nil {
		return s.WrapError(s.Call, err)
	}
	rows := make([][]topology.Path, len(answers))
	for rank, answer := range answers {
		if rows[rank], err = topology.DecodePaths(answer, s.World); err != nil {
			return plugin.Errorf(plugin.Protocol, "init: rank %d sent malformed paths of its GPU: %w", rank, err)
		}
	}
	s.Topology.SetPaths(rows)
	return nil
}

// seen holds the paths between GPUs that this process has found, from and to UUIDs. They stay as they are, and NVML
// takes milliseconds for one, while every communicator asks: torch makes a job for each group.
var seen = struct {
	sync.Mutex
	paths map[way]topology.Path
}{paths: map[way]topology.Path{}}

type way struct {
	driver   cuda.Driver
	from, to string
}

// lookFrom returns the paths from this rank's GPU to each rank's.
func (s *Survey) lookFrom(driver cuda.Driver) []topology.Path {
	row := make([]topology.Path, s.World)
	mine := s.Topology.Places[s.Rank].GPUs
	var opened view
	look := sync.OnceValues(func() (_ *view, err error) {
		opened, err = newView(driver, mine)
		return &opened, err
	})
	defer func() { s.close(opened.management) }()
	for rank, place := range s.Topology.Places {
		switch {
		case len(mine) != 1 || len(place.GPUs) != 1:
			err := fmt.Errorf("rank %d has %d GPUs, rank %d %d", s.Rank, len(mine), rank, len(place.GPUs))
			row[rank] = topology.UnknownPath(err)
		case mine[0].UUID == place.GPUs[0].UUID:
			row[rank] = topology.SamePath()
		default:
			row[rank] = pathOf(way{driver, mine[0].UUID, place.GPUs[0].UUID}, place.GPUs[0], look)
		}
		if p := row[rank]; rank != s.Rank && p.NVLinks == 0 && mine != nil && len(place.GPUs) == 1 &&
			mine[0].UUID != place.GPUs[0].UUID {
			s.Logger.Info("a path between GPUs without NVLink: what ranks store at each other is fenced, which is slower",
				"communicator", s.Label, "rank", s.Rank, "peer", rank, "path", p.Kind(), "peer_access", p.Access, "reason", p.Why)
		}
	}
	return row
}

// close closes NVML, where it was opened: its descriptors and memory would stay as long as the process.
func (s *Survey) close(management cuda.Management) {
	if management == nil {
		return
	}
	if err := management.Close(); err != nil {
		s.Logger.Warn("NVML is not closed", "communicator", s.Label, "rank", s.Rank, "error", err)
	}
}

// pathOf returns the path to a GPU, which look finds where it has not been seen. What NVML could not say is asked
// again.
func pathOf(w way, peer topology.GPU, look func() (*view, error)) topology.Path {
	seen.Lock()
	defer seen.Unlock()
	if p, ok := seen.paths[w]; ok {
		return p
	}
	v, err := look()
	p, err := v.toward(peer, err)
	if err == nil {
		seen.paths[w] = p
	}
	return p
}

// view holds the GPUs that this process sees from its own.
type view struct {
	management cuda.Management
	gpu        cuda.ManagedGPU
	driver     cuda.Driver
	ordinal    int
	ordinals   map[string]int // of the devices that CUDA sees, by UUID
}

// newView asks NVML and CUDA. The view is of use even with an error, which says why NVML knows nothing.
func newView(driver cuda.Driver, mine []topology.GPU) (view, error) {
	v := view{driver: driver, ordinals: map[string]int{}}
	if len(mine) != 1 {
		return v, errors.New("not one GPU")
	}
	v.ordinal = mine[0].Ordinal
	if devices, err := driver.Devices(); err == nil {
		for _, d := range devices {
			v.ordinals[d.UUIDString()] = d.Ordinal
		}
	}
	var err error
	if v.management, err = OpenManagement(); err == nil {
		v.gpu, err = v.management.GPU(mine[0].UUID)
	}
	return v, err
}

// toward returns the path to another GPU, with an error where NVML did not say what it is. unmanaged is the reason why
// NVML cannot be used, or nil.
func (v *view) toward(peer topology.GPU, unmanaged error) (topology.Path, error) {
	var can topology.CanAccess
	if ordinal, visible := v.ordinals[peer.UUID]; visible {
		if access, err := v.driver.CanAccess(v.ordinal, ordinal); err == nil {
			can = &access
		}
	}
	path, err := cuda.UnknownPath(), unmanaged
	if err == nil {
		path, err = v.management.Path(v.gpu.UUID, peer.UUID)
	}
	if err != nil {
		path = cuda.UnknownPath()
	}
	p := topology.Toward(&v.gpu, peer.PCI, path, can)
	if err != nil && p.Access != topology.AccessNo {
		p.Why = err.Error()
	}
	return p, err
}
