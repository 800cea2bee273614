package buffers

import (
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
