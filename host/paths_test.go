package host_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// cubeMesh is the NVLinks of a DGX-1: eight GPUs, each joined to four others.
var cubeMesh = [8][8]int{
	{0, 1, 1, 2, 2, 0, 0, 0},
	{1, 0, 2, 1, 0, 2, 0, 0},
	{1, 2, 0, 2, 0, 0, 1, 0},
	{2, 1, 2, 0, 0, 0, 0, 1},
	{2, 0, 0, 0, 0, 1, 1, 2},
	{0, 2, 0, 0, 1, 0, 2, 1},
	{0, 0, 1, 0, 1, 2, 0, 2},
	{0, 0, 0, 1, 2, 1, 2, 0},
}

func onCubeMesh(a, b int) int { return cubeMesh[a][b] }

// onDevices runs ranks on the given devices of a machine, each in a process that sees all of them, and returns what the
// ranks' transports are given of NVLink, and the errors.
func onDevices(t *testing.T, m *cudatest.Management, access func(device, peer int) bool, devices []int,
	body func(*rank) error) (nvlink []bool, errs []error) {
	t.Helper()
	defer host.ReplaceManagement(func() (cuda.Management, error) { return m, nil })()
	nvlink = make([]bool, len(devices))
	drivers := gpusOf(t, devices, cudatest.Options{Devices: 8, CanAccess: access})
	errs = deviceErrors(t, drivers, func(rank int, o *host.Options) { o.Device = devices[rank] }, func(r *rank) error {
		nvlink[r.Rank()] = host.NVLink(r.Communicator)
		if body == nil {
			return nil
		}
		return body(r)
	})
	return nvlink, errs
}

// The transports of a set of GPUs of a mesh get NVLink exactly if each two of the set are joined, and the same on all
// ranks.
func TestNVLinkIsWhatEachPairHas(t *testing.T) {
	m := cudatest.NewManagement(8, onCubeMesh)
	for _, devices := range [][]int{{0, 1}, {0, 5}, {0, 1, 2}, {1, 4}, {0, 1, 2, 3}, {4, 5, 6, 7}, {2, 3, 6}, {7, 3},
		{0, 1, 5}} {
		t.Run(fmt.Sprint(devices), func(t *testing.T) {
			want := make([]bool, len(devices))
			for rank := range want {
				want[rank] = true
				for _, a := range devices {
					for _, b := range devices {
						if a != b && cubeMesh[a][b] == 0 {
							want[rank] = false
						}
					}
				}
			}
			got, errs := onDevices(t, m, nil, devices, nil)
			require.NoError(t, errors.Join(errs...))
			require.Equal(t, want, got)
		})
	}
}

// A direction without NVLink, or of which nothing is known, seen by one rank alone, decides for all ranks.
func TestOneDirectionWithoutNVLinkDecidesForAll(t *testing.T) {
	whole := cudatest.NewManagement(3, nil)
	for name, spoil := range map[string]func(m *cudatest.Management){
		"PCIe":                      func(m *cudatest.Management) { m.PathOf = oneWay(m, cuda.PeerNotSupported) },
		"unknown":                   func(m *cudatest.Management) { m.PathOf = oneWay(m, cuda.PeerUnknown) },
		"NVML does not know a peer": func(m *cudatest.Management) { m.Devices = m.Devices[:2] },
		"links of one GPU are down": func(m *cudatest.Management) {
			m.Devices[2].Links = nil
			m.PathOf = func(int, int) cuda.Path { return cuda.Path{} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &cudatest.Management{Devices: append([]cuda.ManagedGPU{}, whole.Devices...)}
			spoil(m)
			got, errs := onDevices(t, m, nil, []int{0, 1, 2}, nil)
			require.NoError(t, errors.Join(errs...))
			require.Equal(t, []bool{false, false, false}, got)
		})
	}
	got, errs := onDevices(t, whole, nil, []int{0, 1, 2}, nil)
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, []bool{true, true, true}, got)
}

// oneWay returns the paths of a machine: NVLink, except from device 1 to device 2.
func oneWay(m *cudatest.Management, status cuda.PeerStatus) func(a, b int) cuda.Path {
	return func(a, b int) cuda.Path {
		if a == 1 && b == 2 {
			return cuda.Path{NVLink: status}
		}
		return cuda.Path{}
	}
}

// Without NVML nothing is known of links: lines are fenced, and peer access is tried.
func TestWithoutNVMLNoNVLinkIsAssumed(t *testing.T) {
	defer host.ReplaceManagement(func() (cuda.Management, error) { return nil, errors.New("no NVML") })()
	var mu sync.Mutex
	var got []bool
	deviceWorld(t, 2, func(r *rank) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, host.NVLink(r.Communicator))
		return nil
	})
	require.Equal(t, []bool{false, false}, got)
}

// anywhere is cudaipc under another name, which says that it does without peer access.
type anywhere struct{ cudaipctest.Transport }

func (a anywhere) Info() plugin.Info {
	info := a.Transport.Info()
	info.Name, info.Features = "anywhere", info.Features&^plugin.FeaturePeerAccess
	return info
}

// Where one transport lacks peer access another one serves, and explain says why the first does not.
func TestWithoutPeerAccessAnotherTransportServes(t *testing.T) {
	defer host.ReplaceManagement(func() (cuda.Management, error) { return nil, errors.New("no NVML") })()
	drivers := gpusOf(t, []int{0, 1}, cudatest.Options{Devices: 2, CanAccess: func(int, int) bool { return false }})
	errs := deviceErrors(t, drivers, func(_ int, o *host.Options) {
		o.Transports = []string{"builtin:cudaipc", "builtin:anywhere"}
	}, func(r *rank) error {
		e, err := r.Explain(plugin.AllReduce, plugin.Float32, plugin.OpSum, 64)
		if err != nil {
			return err
		}
		var reasons []string
		for _, rejected := range e.Rejected {
			if rejected.Name == "cudaipc" {
				reasons = append(reasons, rejected.Reason)
			}
		}
		want := "GPU 0000:01:00.0 of rank 0 and GPU 0000:02:00.0 of rank 1 do not reach each other's memory: the CUDA driver allows none"
		if !slices.Equal(reasons, []string{want}) {
			return fmt.Errorf("cudaipc was rejected for %q", reasons)
		}
		if !strings.HasPrefix(e.Chosen, "anywhere/") {
			return fmt.Errorf("%s was chosen", e.Chosen)
		}
		return r.meet()
	})
	require.NoError(t, errors.Join(errs...))
}

// A transport that needs peer access is not opened where one pair lacks it, on any rank; the reason names the pair.
func TestNoPeerAccessLeavesTheTransportOut(t *testing.T) {
	pcie := cudatest.NewManagement(3, func(int, int) int { return 0 })
	mig := cudatest.NewManagement(3, nil)
	mig.Devices[1].MIG = true
	for name, c := range map[string]struct {
		m       *cudatest.Management
		access  func(a, b int) bool
		devices []int
		fails   string
	}{
		"the driver denies it one way": {pcie, func(a, b int) bool { return a != 2 || b != 0 }, []int{0, 1, 2},
			"GPU 0000:01:00.0 of rank 0 and GPU 0000:03:00.0 of rank 2 do not reach each other's memory: the CUDA driver allows none"},
		"MIG": {mig, nil, []int{0, 1},
			"GPU 0000:01:00.0 of rank 0 and GPU 0000:02:00.0 of rank 1 do not reach each other's memory: a MIG device reaches no other device's memory"},
		"one MIG device alone":      {mig, nil, []int{1}, ""},
		"a pair without the others": {pcie, func(a, b int) bool { return a != 2 && b != 2 }, []int{0, 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := onDevices(t, c.m, c.access, c.devices, nil)
			for rank, err := range errs {
				if c.fails == "" {
					require.NoError(t, err, rank)
					continue
				}
				require.ErrorIs(t, err, plugin.Unsupported, rank)
				require.ErrorContains(t, err, "no transport serves cuda memory: cudaipc: "+c.fails)
			}
		})
	}
}
