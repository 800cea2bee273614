package buffers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// The ranks agree that peers have not mapped what some of them register, before their deadline, though one waits
// longer.
func TestSlowPeersAreNamedToAll(t *testing.T) {
	id, root, err := bootstrap.NewID("127.0.0.1:0")
	require.NoError(t, err)
	defer root.Close()
	const world = 3
	errs := make([]error, world)
	var ranks sync.WaitGroup
	for rank := range world {
		r := registryOf(t, rank, world)
		r.SetTimeout(time.Hour)
		r.Failure.SetUp("")
		p, err := r.gpu.Driver.Alloc(r.gpu.Context, 4096)
		require.NoError(t, err)
		ranks.Go(func() {
			s, err := bootstrap.Join(t.Context(), bootstrap.Config{Rank: rank, World: world, ID: id, HaveID: true,
				Timeout: 30 * time.Second})
			if err != nil {
				errs[rank] = err
				return
			}
			if err := s.All().Agree(t.Context(), "begin", nil); err != nil {
				t.Error(err)
			}
			if rank == 0 { // what the others register is not mapped
				ranks.Go(func() {
					for range r.wake { // they wait
						r.mu.Lock()
						for i := range r.exports[:r.high] {
							r.exports[i].known = r.everyone()
						}
						r.mu.Unlock()
					}
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second-time.Duration(rank)*200*time.Millisecond)
			errs[rank] = r.Register(ctx, s.All(), "register", p, 4096)
			cancel()
			close(r.wake)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "peers have not mapped 4096 bytes", "rank %d", rank)
	}
}

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
	r.SetTimeout(time.Hour)
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
