package diagnosis

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// A rank that stays away is late after the timeout; time in which this process was stopped is no part of it.
func TestLateRanks(t *testing.T) {
	for name, stopped := range map[string]time.Duration{"at once": 0, "after a pause": time.Hour} {
		t.Run(name, func(t *testing.T) {
			e, err := executor.NewEngine(0, 2)
			require.NoError(t, err)
			defer e.Close()
			for rank := range 2 {
				page, err := unix.Mmap(-1, 0, executor.ControlBytes, unix.PROT_READ|unix.PROT_WRITE,
					unix.MAP_ANONYMOUS|unix.MAP_SHARED)
				require.NoError(t, err)
				defer unix.Munmap(page)
				memory := executor.Memory{Base: unsafe.Pointer(&page[0]), Bytes: executor.ControlBytes}
				require.NoError(t, e.SetControl(rank, memory))
			}
			e.Record(1, 1, uint32(plugin.AllReduce), 0, 0, 0, 0)
			e.Announce()
			o := &Observer{World: 2, Label: "world", Engine: e,
				Topology: &topology.Topology{Places: make([]topology.Place, 2)}}
			o.SetTimeout(time.Minute)
			var l Late
			var flights Flights
			begin := time.Now()
			now, paused := begin, time.Duration(0)
			for ; now.Sub(begin)-paused < o.Timeout(); now = now.Add(250 * time.Millisecond) {
				require.Nil(t, l.Look(o, &flights, true, func() bool { return false }, now), "after %v", now.Sub(begin))
				if paused == 0 && now.Sub(begin) > 20*time.Second {
					paused = stopped
					now = now.Add(stopped)
				}
			}
			reason := l.Look(o, &flights, true, func() bool { return false }, now.Add(time.Second/2))
			require.NotNil(t, reason)
			require.Equal(t, plugin.Timeout, reason.Code)
			require.Equal(t, 1, reason.Rank)
		})
	}
}
