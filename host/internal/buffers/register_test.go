package buffers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// Peers that have died, or that have stopped because another has, map nothing: registration does not wait for them.
func TestRegistrationEndsWithTheCommunicator(t *testing.T) {
	o := &diagnosis.Observer{World: 2}
	o.SetTimeout(time.Hour)
	o.Failure.SetUp("")
	r := &Registry{Observer: o, wake: make(chan struct{}, 1), made: time.Now()}
	r.exports[0] = export{bytes: 1, generation: 1}
	ended := make(chan error, 1)
	go func() { ended <- r.settle(t.Context(), &Export{generation: 1}) }()
	<-r.wake // it waits
	o.Failure.Set(&plugin.Error{Code: plugin.PeerDied, Rank: 1, Message: "rank 1 died"})
	require.ErrorIs(t, <-ended, plugin.PeerDied)
}

// A buffer stays exported while its user waits for peers to map it, however long they take: the user
// is told that they are slow, and not that the memory was freed. Without a user it is given up.
func TestSlowPeersAreNoFreedMemory(t *testing.T) {
	r := aRegistry(t)
	at := r.export(t)
	x := &Export{at: at, generation: r.exports[at].generation}
	r.Failure.SetUp("")
	ctx, cancel := context.WithCancel(t.Context())
	for len(r.wake) > 0 {
		<-r.wake
	}
	ended := make(chan error, 1)
	go func() { ended <- r.settle(ctx, x) }()
	<-r.wake // it waits
	r.mu.Lock()
	r.exports[at].shared, r.exports[at].entered = true, time.Now().Add(-2*fetchTime)
	r.mu.Unlock()
	r.tellKernels()
	require.Equal(t, staying, r.exports[at].leaving)
	cancel()
	require.ErrorIs(t, <-ended, plugin.Timeout)
	r.tellKernels()
	require.Equal(t, withdrawn, r.exports[at].leaving)
}
