package endpoints

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/plugin"
)

// checked is an endpoint that may have failed between calls.
type checked struct {
	endpoint
	failure atomic.Pointer[plugin.Error]
	told    chan string
}

func (c *checked) Check() error {
	if f := c.failure.Load(); f != nil {
		return f
	}
	return nil
}

func (c *checked) Abort(reason string) { c.told <- reason }

// watched returns the endpoints of a rank alone, on a GPU if there is to be one, and the reasons why they fail.
func watched(t *testing.T, kind plugin.MemoryKind, e *checked) (*Set, chan *plugin.Error) {
	s := aSet(0, 1, kind)
	reasons := make(chan *plugin.Error, 8)
	s.Failure.SetUp("")
	s.Lookout = time.Millisecond
	s.Fail = func(reason *plugin.Error, spread bool) {
		require.True(t, spread)
		if s.Failure.Set(reason) {
			s.Failure.Told()
			reasons <- reason
		}
	}
	var err error
	s.Engine, err = executor.NewEngine(0, 1)
	require.NoError(t, err)
	release := addGPU(t, s)
	t.Cleanup(func() {
		s.Engine.Close()
		release()
	})
	s.List = []*Endpoint{{Transport: plans.Transport{Name: "frail", Endpoint: e}}}
	s.listen()
	return s, reasons
}

// What fails in a transport between calls is the end of the communicator; nothing is looked at once that is halted.
func TestTransportsThatFailBetweenCalls(t *testing.T) {
	e := &checked{}
	s, reasons := watched(t, plugin.MemoryKindCuda, e)
	s.Watch(t.Context())
	e.failure.Store(&plugin.Error{Code: plugin.System, Rank: -1, Message: "the wire is cut"})
	reason := <-reasons
	require.Equal(t, plugin.System, reason.Code)
	require.Equal(t, "transport frail on rank 0: the wire is cut", reason.Message)
	require.NoError(t, s.Halt())
	require.NoError(t, s.Close())
	require.Empty(t, reasons, "it has failed once")
}

// On host memory nothing runs beside the operations.
func TestHostMemoryIsNotWatched(t *testing.T) {
	s, _ := watched(t, plugin.MemoryKindHost, &checked{})
	s.Watch(t.Context())
	require.NoError(t, s.Halt())
	require.NoError(t, s.Close())
}

// Operations on a GPU end at once with the communicator, but after the loss of a plugin they have a while: its process
// has gone, but not what it made.
func TestAbortTellsEndpointsAndTheGPU(t *testing.T) {
	for code, run := range map[plugin.Code]plugin.Code{plugin.Aborted: plugin.Aborted,
		plugin.PluginDied: plugin.InvalidArgument} {
		e := &checked{told: make(chan string, 1)}
		s, _ := watched(t, plugin.MemoryKindCuda, e)
		s.Abort(&plugin.Error{Code: code, Message: "enough"})
		require.Equal(t, "enough", <-e.told)
		require.Equal(t, run, plugin.CodeOf(s.GPU.Exec.Run(nil, &executor.Arguments{}, 0)), "no program")
		require.NoError(t, s.Halt())
		require.NoError(t, s.Close())
	}
}
