package plans

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// exchanging is an endpoint that publishes its text, or fails.
type exchanging struct {
	plugin.Endpoint
	text    string
	failure error
	asked   int
	connect func(context.Context) error
}

func (e *exchanging) Publish(context.Context, plugin.Exchange) ([]byte, error) {
	e.asked++
	return []byte(e.text), e.failure
}

func (e *exchanging) Connect(ctx context.Context, _ plugin.Exchange, _ [][]byte) error {
	if e.connect != nil {
		return e.connect(ctx)
	}
	return nil
}

// planning returns a rank's planner with transports that exchange bytes.
func planning(rank int, names []string, endpoints ...*exchanging) *Planner {
	pl := &Planner{Observer: &diagnosis.Observer{Rank: rank, World: 2, Logger: slog.New(slog.DiscardHandler)},
		Absent: map[string]string{}}
	for i, e := range endpoints {
		pl.Transports = append(pl.Transports, &Transport{Name: names[i], Features: plugin.FeatureExchange, Endpoint: e})
	}
	return pl
}

// heard has both ranks hear both parts of both, and returns their errors.
func heard(parts [2][2]round.Part) (errs [2]error) {
	for rank := range parts {
		for i, p := range parts[rank] {
			if errs[rank] == nil {
				errs[rank] = p.Hear([][]byte{parts[0][i].Mine, parts[1][i].Mine})
			}
		}
	}
	return errs
}

// What an endpoint cannot publish fails no communicator that does without its transport, as another rank cannot use
// it. The error of one that stays is that of all ranks.
func TestPublishingForATransportThatIsLeftOut(t *testing.T) {
	for _, fails := range []string{"out", "in", ""} {
		var parts [2][2]round.Part
		var published [2]*Publication
		for rank := range parts {
			names := []string{"out", "in"}
			endpoints := []*exchanging{{text: "of out"}, {text: "of in"}}
			absent := map[string]error{}
			if rank == 1 {
				names, endpoints = names[1:], endpoints[1:]
				absent["out"] = plugin.Errorf(plugin.Unsupported, "no such device")
			}
			for i, e := range endpoints {
				if rank == 0 && names[i] == fails {
					e.failure = plugin.Errorf(plugin.System, "no id is left")
				}
			}
			pl := planning(rank, names, endpoints...)
			parts[rank][0] = pl.LeaveOut(absent, true)
			published[rank], parts[rank][1] = pl.Publish(t.Context(), nil)
		}
		for rank, err := range heard(parts) {
			if fails == "in" {
				require.EqualError(t, err, "rank 0: publishing transport in: no id is left", "rank %d", rank)
				continue
			}
			require.NoError(t, err, "rank %d", rank)
			require.Empty(t, published[rank].Connect(t.Context(), false))
			require.Equal(t, [][][]byte{{[]byte("of in")}, {[]byte("of in")}}, published[rank].all)
		}
	}
}

// A rank that has failed already asks no endpoint: the others wait for it.
func TestARankThatHasFailedPublishesNothing(t *testing.T) {
	e := &exchanging{}
	planning(0, []string{"in"}, e).Publish(t.Context(), plugin.Errorf(plugin.System, "another does not open"))
	require.Zero(t, e.asked)
}

// meeting is a group of one rank each of whose exchanges ends when a late rank comes.
type meeting struct{ late []time.Duration }

func (m *meeting) Agree(context.Context, string, error) error { return nil }

func (m *meeting) AllGather(_ context.Context, _ string, payload []byte) ([][]byte, error) {
	time.Sleep(m.late[0])
	m.late = m.late[1:]
	return [][]byte{payload}, nil
}

// connecting returns the planner of a rank whose call needs that its endpoint connects, and which meets late ranks
// before and after that.
func connecting(timeout time.Duration, connect func(context.Context) error, late ...time.Duration) *Planner {
	pl := planning(0, []string{"in"}, &exchanging{connect: connect})
	pl.SetTimeout(timeout)
	pl.World, pl.Stall, pl.Topology = 1, timeout, topology.New([]topology.Place{{}})
	pl.Table, pl.Group = selector.New(), &meeting{late}
	pl.Transports[0].Ask = offering(plugin.Support{Algorithms: []plugin.Algorithm{
		{Name: "own", Latency: 1, Bandwidth: 1}}})
	return pl
}

var sum = call.Call{Collective: plugin.AllReduce, DType: plugin.Float32, Size: 4}

// Endpoints have the time of a call to connect, whenever the last rank has come.
func TestLateRanksLeaveTheTimeToConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = time.Minute
		var left time.Duration
		pl := connecting(timeout, func(ctx context.Context) error {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			return plugin.Errorf(plugin.System, "no route")
		}, timeout*9/10, 0)
		_, err := pl.Prepare(t.Context(), 1, &sum)
		require.ErrorContains(t, err, "no route")
		require.Greater(t, left, timeout/2)
	})
}

// Ranks that wait inside their transports for one that could not connect learn it from the failure of the communicator.
// Where they come by themselves, it stays as it is.
func TestARankThatCannotConnectIsNotWaitedFor(t *testing.T) {
	for late, failures := range map[time.Duration]int{unheardTime / 2: 0, 2 * unheardTime: 1} {
		synctest.Test(t, func(t *testing.T) {
			var reasons []string
			pl := connecting(time.Minute, func(context.Context) error {
				return plugin.Errorf(plugin.System, "no route")
			}, 0, late)
			pl.Fail = func(reason *plugin.Error, spread bool) {
				require.True(t, spread)
				reasons = append(reasons, reason.Message)
			}
			_, err := pl.Prepare(t.Context(), 1, &sum)
			require.ErrorContains(t, err, "no route")
			time.Sleep(2 * unheardTime)
			synctest.Wait() // orders what the timer wrote before what follows
			require.Len(t, reasons, failures, "ranks that come after %v", late)
			for _, reason := range reasons {
				require.Equal(t, "rank 0: connecting transport in for all_reduce/own: no route", reason)
			}
		})
	}
}
