package host_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// exchanging is a transport whose endpoints keep what they are given, and fail where a test says so.
type exchanging struct {
	shm.Transport
	mu sync.Mutex
	manner
	given []given
}

// manner is the behaviour of endpoints that a test sets; nil: correct.
type manner struct {
	publish func(rank int, x plugin.Exchange) ([]byte, error)
	connect func(ctx context.Context, rank int, x plugin.Exchange) error
	prepare func(e plugin.Endpoint, req plugin.Request) (*plugin.Plan, error) // broadcasts only
	close   func(rank int)
	abort   func(rank int)
	regions func(rank int, own []plugin.Region) []plugin.Region
}

type given struct {
	rank     int
	exchange plugin.Exchange
	all      [][]byte
}

type exchangingEndpoint struct {
	plugin.Endpoint
	of    *exchanging
	rank  int
	plans map[string]bool // plans that were exchanged for
}

var exchanger = &exchanging{}

func init() { host.Register(exchanger) }

func (e *exchanging) Info() plugin.Info {
	info := e.Transport.Info()
	info.Name = "exchanging"
	info.Features |= plugin.FeatureExchange
	return info
}

func (e *exchanging) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	endpoint, err := e.Transport.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	return &exchangingEndpoint{endpoint, e, config.Rank, map[string]bool{}}, nil
}

// saying returns what a rank publishes unless a test says otherwise.
func saying(rank int, x plugin.Exchange) []byte {
	return fmt.Appendf(nil, "%d %s %s %s", rank, x.Request.Collective, x.Request.DType, x.Algorithm)
}

func (e *exchangingEndpoint) Publish(_ context.Context, x plugin.Exchange) ([]byte, error) {
	e.of.mu.Lock()
	defer e.of.mu.Unlock()
	if e.of.publish != nil {
		return e.of.publish(e.rank, x)
	}
	return saying(e.rank, x), nil
}

func (e *exchangingEndpoint) Connect(ctx context.Context, x plugin.Exchange, all [][]byte) error {
	e.of.mu.Lock()
	e.of.given = append(e.of.given, given{e.rank, x, all})
	e.plans[fmt.Sprint(x.Request.Collective, x.Request.DType, x.Algorithm)] = true
	e.of.mu.Unlock()
	if e.of.connect != nil {
		return e.of.connect(ctx, e.rank, x)
	}
	return nil
}

func (e *exchangingEndpoint) Regions() []plugin.Region {
	if e.of.regions != nil {
		return e.of.regions(e.rank, e.Endpoint.Regions())
	}
	return e.Endpoint.Regions()
}

func (e *exchangingEndpoint) Close() error {
	if e.of.close != nil {
		e.of.close(e.rank)
	}
	return e.Endpoint.Close()
}

func (e *exchangingEndpoint) Abort(string) {
	if e.of.abort != nil {
		e.of.abort(e.rank)
	}
}

func (e *exchangingEndpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	e.of.mu.Lock()
	known := e.plans[fmt.Sprint(req.Collective, req.DType, algorithm)]
	e.of.mu.Unlock()
	if !known {
		return nil, plugin.Errorf(plugin.Internal, "prepare of %s/%s before its exchange", req.Collective, algorithm)
	}
	if e.of.prepare != nil && req.Collective == plugin.Broadcast {
		return e.of.prepare(e.Endpoint, req)
	}
	return e.Endpoint.Prepare(ctx, req, algorithm)
}

// exchanged runs a broadcast in a world of three whose transport exchanges, and
// returns each rank's error.
func exchanged(t *testing.T, of manner, body func(c *host.Communicator) error) []error {
	t.Helper()
	exchanger.manner, exchanger.given = of, nil
	began := time.Now()
	errs := worldErrors(t, 3, func(_ int, o *host.Options) {
		o.Timeout, o.Transports = time.Minute, []string{"builtin:exchanging"}
	}, body)
	require.Less(t, time.Since(began), 20*time.Second, "%v", errs)
	return errs
}

func broadcastTwice(c *host.Communicator) error {
	for range 2 {
		x := []float32{float32(c.Rank() + 1)}
		if err := c.Do(&host.Operation{Collective: plugin.Broadcast, Send: at(x), Recv: at(x), Count: 1,
			DType: plugin.Float32}); err != nil {
			return err
		}
		if err := equal(x, []float32{1}); err != nil {
			return err
		}
	}
	return nil
}

// Every rank gets what every rank has published: once for its endpoint, and once for
// each plan, before the plan is prepared.
func TestEveryRankGetsWhatAllHavePublished(t *testing.T) {
	for rank, err := range exchanged(t, manner{}, broadcastTwice) {
		require.NoError(t, err, "rank %d", rank)
	}
	times := map[string]int{}
	for _, g := range exchanger.given {
		require.Len(t, g.all, 3)
		for rank, b := range g.all {
			require.Equal(t, string(saying(rank, g.exchange)), string(b))
		}
		times[fmt.Sprint(g.rank, g.exchange.Request.Collective, g.exchange.Request.DType, g.exchange.Algorithm)]++
		if g.exchange.Algorithm != "" {
			require.Equal(t, g.rank, g.exchange.Request.Rank)
			require.Equal(t, 3, g.exchange.Request.World)
		}
	}
	endpoints, broadcasts := 0, 0
	for what, n := range times {
		require.Equal(t, 1, n, what)
	}
	for _, g := range exchanger.given {
		if g.exchange.Algorithm == "" {
			endpoints++
		}
		if g.exchange.Request.Collective == plugin.Broadcast {
			broadcasts++
		}
	}
	require.Equal(t, 3, endpoints)
	require.NotZero(t, broadcasts)
}

// Many ranks have more to exchange than the store passes on at once, and get it in parts.
func TestWhatIsPublishedComesInParts(t *testing.T) {
	most := round.Most
	round.Most = 3 * 1000
	defer func() { round.Most = most }()
	long := func(rank int, x plugin.Exchange) []byte {
		return append(saying(rank, x), bytes.Repeat([]byte{byte(rank)}, plugin.MaxPublished-100)...)
	}
	for rank, err := range exchanged(t, manner{publish: func(rank int, x plugin.Exchange) ([]byte, error) {
		return long(rank, x), nil
	}}, broadcastTwice) {
		require.NoError(t, err, "rank %d", rank)
	}
	require.NotEmpty(t, exchanger.given)
	for _, g := range exchanger.given {
		for rank, b := range g.all {
			require.Equal(t, string(long(rank, g.exchange)), string(b))
		}
	}
}

// What one rank alone cannot do is every rank's error, names it, and comes long before
// the deadline: in the exchange of endpoints, of plans prepared at init, and of a call's.
func TestAnExchangeThatFailsOnOneRankFailsOnAll(t *testing.T) {
	isFor := map[string]func(plugin.Exchange) bool{
		"endpoints": func(x plugin.Exchange) bool { return x.Algorithm == "" },
		"init": func(x plugin.Exchange) bool {
			return x.Algorithm != "" && x.Request.Collective == plugin.Send && x.Request.DType == plugin.Float16
		},
		"last init": func(x plugin.Exchange) bool {
			return x.Algorithm != "" && x.Request.Collective == plugin.Recv && x.Request.DType == plugin.Int64
		},
		"call": func(x plugin.Exchange) bool { return x.Algorithm != "" && x.Request.Collective == plugin.Broadcast },
	}
	for when, is := range isFor {
		for what, fail := range map[string]struct {
			of   manner
			want string
		}{
			"publish": {manner{publish: func(rank int, x plugin.Exchange) ([]byte, error) {
				if rank == 1 && is(x) {
					return nil, plugin.Errorf(plugin.OutOfMemory, "no id is left")
				}
				return saying(rank, x), nil
			}}, "no id is left"},
			"too much": {manner{publish: func(rank int, x plugin.Exchange) ([]byte, error) {
				if rank == 1 && is(x) {
					return make([]byte, plugin.MaxPublished+1), nil
				}
				return bytes.Repeat([]byte{255}, plugin.MaxPublished), nil
			}}, "it has 2049 bytes, want at most 2048"},
			"connect": {manner{connect: func(_ context.Context, rank int, x plugin.Exchange) error {
				if rank == 1 && is(x) {
					return plugin.Errorf(plugin.OutOfMemory, "no route to rank 2")
				}
				return nil
			}}, "no route to rank 2"},
		} {
			t.Run(when+" "+what, func(t *testing.T) {
				for rank, err := range exchanged(t, fail.of, broadcastTwice) {
					require.ErrorContains(t, err, fail.want, "rank %d", rank)
					require.ErrorContains(t, err, "rank 1", "rank %d", rank)
					require.ErrorContains(t, err, "transport exchanging", "rank %d", rank)
					require.NotContains(t, strings.ReplaceAll(err.Error(), "on rank 0: ", ""), "rank 0", "rank %d", rank)
					var reason *plugin.Error
					require.ErrorAs(t, err, &reason)
					require.Equal(t, 1, reason.Rank, "rank %d: %v", rank, err)
				}
			})
		}
	}
}

// A rank that cannot map memory is named alone where endpoints exchange bytes after that, too.
func TestARankThatCannotMapIsNamedBeforeAnExchange(t *testing.T) {
	for rank, err := range exchanged(t, manner{regions: func(rank int, own []plugin.Region) []plugin.Region {
		if rank != 1 {
			return own
		}
		return append(slices.Clip(own), plugin.Region{ID: uint32(len(own)), Role: plugin.RegionRoleLocal, Bytes: 1,
			Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Bytes: 1, FD: -1}})
	}}, broadcastTwice) {
		require.EqualError(t, err, fmt.Sprintf("init on rank %d: rank 1: mapping region 2 of role local: transport exchanging: "+
			"a handle of kind cuda_vmm cannot be mapped as host memory", rank))
	}
}

// Ranks that call different collectives get that error, although the bytes that one of
// them waits for are never published.
func TestRanksThatCallDifferentlyAreToldBeforeTheyExchange(t *testing.T) {
	errs := exchanged(t, manner{}, func(c *host.Communicator) error {
		x := make([]float32, 6)
		collective := plugin.AllGather
		if c.Rank() == 2 {
			collective = plugin.ReduceScatter
		}
		return c.Do(&host.Operation{Collective: collective, Send: at(x[3:]), Recv: at(x[:3]), Count: 1,
			DType: plugin.Float32})
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.ErrorContains(t, err, "reduce_scatter", "rank %d", rank)
	}
}

// What keeps ranks from making a communicator is said once, behind the name of the call that makes it.
func TestFailuresNameTheCallThatMakesTheCommunicator(t *testing.T) {
	for what, prepare := range map[string]func(c *host.Communicator) error{
		"split":  func(c *host.Communicator) error { _, err := c.Split(context.Background(), 0, 0); return err },
		"shrink": func(c *host.Communicator) error { _, err := c.Shrink(context.Background()); return err },
		"init":   nil,
	} {
		var broken atomic.Bool
		broken.Store(prepare == nil)
		errs := exchanged(t, manner{connect: func(_ context.Context, rank int, _ plugin.Exchange) error {
			if broken.Load() && rank == 1 {
				return plugin.Errorf(plugin.System, "no queue pair is left")
			}
			return nil
		}}, func(c *host.Communicator) error {
			if err := c.Barrier(nil); err != nil {
				return err
			}
			broken.Store(true)
			return prepare(c)
		})
		for rank, err := range errs {
			require.EqualError(t, err,
				fmt.Sprintf("%s on rank %d: rank 1: connecting transport exchanging: no queue pair is left", what, rank))
		}
	}
}

// The error of a rank that has waited for another gives way to what failed there.
func TestTheRankThatCannotConnectIsNamed(t *testing.T) {
	for _, code := range []plugin.Code{plugin.Timeout, plugin.PeerDied} {
		for _, reason := range []string{"no queue pair is left", ""} {
			errs := exchanged(t, manner{connect: func(_ context.Context, rank int, _ plugin.Exchange) error {
				if rank == 1 && reason != "" {
					return plugin.Errorf(plugin.System, "%s", reason)
				}
				return plugin.Errorf(code, "rank %d waited for a peer", rank)
			}}, func(*host.Communicator) error { return nil })
			for rank, err := range errs {
				want := cmp.Or(reason, "rank 0 waited for a peer")
				require.ErrorContains(t, err, "connecting transport exchanging: "+want, "rank %d, %v", rank, code)
			}
		}
	}
}

// Ranks that wait in their transports for one that could not connect are told, long before the timeout: by Abort, and
// by the end of the context of Connect, at init and in a call.
func TestRanksThatConnectHearOfOneThatCannot(t *testing.T) {
	for _, by := range []string{"abort", "context"} {
		for _, when := range []plugin.Collective{plugin.AllReduce, plugin.Broadcast} { // the first for the endpoints
			t.Run(fmt.Sprint(by, " ", when), func(t *testing.T) {
				aborted := [3]chan struct{}{make(chan struct{}), make(chan struct{}), make(chan struct{})}
				began := time.Now()
				errs := exchanged(t, manner{
					connect: func(ctx context.Context, rank int, x plugin.Exchange) error {
						if x.Request.Collective != when || (x.Algorithm == "") != (when == plugin.AllReduce) {
							return nil
						}
						if rank == 1 {
							return plugin.Errorf(plugin.System, "no queue pair is left")
						}
						told := (<-chan struct{})(aborted[rank])
						if by == "context" {
							told = ctx.Done()
						}
						select {
						case <-told:
							return plugin.Errorf(plugin.Aborted, "rank %d was told", rank)
						case <-time.After(20 * time.Second):
							return plugin.Errorf(plugin.Timeout, "rank %d was not told", rank)
						}
					},
					abort: func(rank int) { close(aborted[rank]) },
				}, broadcastTwice)
				require.Less(t, time.Since(began), 15*time.Second)
				for rank, err := range errs {
					require.ErrorContains(t, err, "no queue pair is left", "rank %d", rank)
					require.NotContains(t, err.Error(), "panicked", "it is told once")
				}
			})
		}
	}
}

// Wherever one rank fails, and however badly, every rank's error names the call and itself once, then the other rank.
func TestErrorsOfOtherRanksHaveOneForm(t *testing.T) {
	fail := func(code plugin.Code, rank int, x plugin.Request) error {
		if rank == 1 && x.Collective == plugin.Broadcast {
			return plugin.Errorf(code, "no queue pair is left")
		}
		return nil
	}
	for _, code := range []plugin.Code{plugin.System, plugin.Timeout} {
		for where, of := range map[string]manner{
			"publish": {publish: func(rank int, x plugin.Exchange) ([]byte, error) {
				return saying(rank, x), fail(code, rank, x.Request)
			}},
			"connect": {connect: func(_ context.Context, rank int, x plugin.Exchange) error { return fail(code, rank, x.Request) }},
			"prepare": {prepare: func(e plugin.Endpoint, req plugin.Request) (*plugin.Plan, error) {
				if err := fail(code, req.Rank, req); err != nil {
					return nil, err
				}
				return e.Prepare(t.Context(), req, "one_shot")
			}},
		} {
			for what, body := range map[string]func(c *host.Communicator) error{
				"call": broadcastTwice,
				"text": func(c *host.Communicator) error {
					_, err := c.PlanTexts(plugin.Broadcast, plugin.Float32, plugin.OpSum, 4)
					return err
				},
			} {
				for rank, err := range exchanged(t, of, body) {
					require.Error(t, err, "%s, %s", where, what)
					require.Regexp(t, fmt.Sprintf(`^broadcast on rank %d: rank 1: \w+ing .*no queue pair is left`, rank), err.Error(),
						"%s, %s, %v", where, what, code)
				}
			}
		}
	}
}

// The error of a plan that cannot be prepared has one name of its algorithm, its call and its rank.
func TestFailuresToPrepareDoNotRepeatThemselves(t *testing.T) {
	errs := exchanged(t, manner{prepare: func(e plugin.Endpoint, req plugin.Request) (*plugin.Plan, error) {
		return e.Prepare(t.Context(), req, "two_shot")
	}}, broadcastTwice)
	for rank, err := range errs {
		require.EqualError(t, err, fmt.Sprintf("broadcast on rank %d: rank 0: preparing exchanging/one_shot: "+
			`there is no algorithm "two_shot" for broadcast in a world of 3`, rank))
	}
}
