package host_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// moody is a transport whose Supports returns what a test sets. It is registered twice
// under different names, as the ranks of a test are in one process, and then calls
// itself the same.
type moody struct {
	shm.Transport
	name   string
	answer func(plugin.Request, plugin.Support) plugin.Support
}

var sober, drunk = &moody{name: "sober"}, &moody{name: "drunk"}

func init() {
	host.Register(sober)
	host.Register(drunk)
	sober.name, drunk.name = "moody", "moody"
}

func (m *moody) Info() plugin.Info {
	info := m.Transport.Info()
	info.Name = m.name
	return info
}

func (m *moody) Supports(req plugin.Request) plugin.Support {
	support := m.Transport.Supports(req)
	if m.answer != nil {
		return m.answer(req, support)
	}
	return support
}

// Where a plugin's Supports differs between ranks, they return an error that names the plugin, before anyone waits.
func TestRanksThatChooseDifferentlyAreTold(t *testing.T) {
	defer func() { drunk.answer = nil }()
	odd := map[string]struct {
		collective plugin.Collective
		answer     func(plugin.Support) plugin.Support
		want       string
	}{
		"failed": {plugin.AllReduce, func(plugin.Support) plugin.Support { return plugin.Support{Reason: "it has a headache"} },
			"and rank 1 generic/put_one_shot"},
		"one algorithm less": {plugin.AllReduce, func(s plugin.Support) plugin.Support {
			s.Algorithms = slices.Clone(s.Algorithms[1:])
			return s
		}, "two_shot"},
		"other costs": {plugin.Broadcast, func(s plugin.Support) plugin.Support {
			s.Algorithms = slices.Clone(s.Algorithms)
			s.Algorithms[0].Latency *= 100
			return s
		}, "one_shot"},
		"other limits": {plugin.AllGather, func(s plugin.Support) plugin.Support {
			s.Algorithms = slices.Clone(s.Algorithms)
			s.Algorithms[0].MaxBytes = 4
			return s
		}, "one_shot for up to 4 bytes"},
		"of what is prepared at init": {plugin.Send, func(s plugin.Support) plugin.Support {
			s.Algorithms = slices.Clone(s.Algorithms[1:])
			return s
		}, "send of"},
	}
	for name, test := range odd {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			drunk.answer = func(req plugin.Request, s plugin.Support) plugin.Support {
				if req.Collective == test.collective {
					return test.answer(s)
				}
				return s
			}
			errs := worldErrors(t, 3, func(rank int, o *host.Options) {
				o.Timeout, o.Transports = time.Minute, []string{"builtin:sober"}
				if rank == 1 {
					o.Transports = []string{"builtin:drunk"}
				}
			}, func(c *host.Communicator) error {
				x := make([]float32, 6)
				err := c.Do(&host.Operation{Collective: test.collective, Send: at(x[3:]), Recv: at(x[:3]), Count: 1,
					DType: plugin.Float32})
				if err == nil {
					return errWrong
				}
				return err
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, "ranks choose different algorithms for", "rank %d", rank)
				require.ErrorContains(t, err, "rank 1", "rank %d", rank)
				require.ErrorContains(t, err, "moody", "rank %d", rank)
				require.ErrorContains(t, err, test.want, "rank %d", rank)
			}
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}
