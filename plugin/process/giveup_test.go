package process

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// noReplyTo is a call that has got no reply before the deadline of its context.
func noReplyTo(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// A plugin whose endpoint is free again after a call that came to its deadline is not killed, however long its images
// are: they do not fit into a message of other calls.
func TestAPluginWithLongImagesResponds(t *testing.T) {
	for _, bytes := range []int{8, 2 * maxMessage, 8 * maxMessage} {
		t.Run(strconv.Itoa(bytes), func(t *testing.T) {
			c := start(t, "probe")
			e := open(t, c, probe.OptionImage, strconv.Itoa(bytes)).(*endpoint)
			eventually(t, time.Minute, "a reply", func() bool { return e.responds(8 * settleTimeout) })
			_, err := e.Prepare(t.Context(), allReduce, probe.Algorithm)
			require.NoError(t, err)
		})
	}
}

// supporting is a plugin whose first replies about support never come.
type supporting struct {
	proto.TransportClient
	late int
}

func (s *supporting) Supports(ctx context.Context, _ *proto.SupportsRequest, _ ...grpc.CallOption) (
	*proto.SupportsReply, error) {
	if s.late--; s.late >= 0 {
		return nil, noReplyTo(ctx)
	}
	return proto.FromSupport(plugin.Support{Reason: "it does nothing"}), nil
}

// A deadline that leaves no time is the caller's affair: a plugin that replies is not killed for it.
func TestAPluginOutlivesADeadlineThatLeavesNoTime(t *testing.T) {
	c := start(t, "probe")
	ask := c.Transport().(transport).Ask
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	e := open(t, c)
	for name, call := range map[string]func(context.Context) error{
		"supports": func(ctx context.Context) error { _, err := ask(ctx, allReduce); return err },
		"prepare":  func(ctx context.Context) error { _, err := e.Prepare(ctx, allReduce, probe.Algorithm); return err },
	} {
		err := call(past)
		require.ErrorIs(t, err, plugin.Timeout, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.ErrorContains(t, err, "probe: "+name, name)
		require.NoError(t, c.Err(), name)
		require.NoError(t, call(t.Context()), name)
	}
}

// One that has missed a short deadline is asked once more before it is killed.
func TestSupportsIsAskedAgainBeforeAPluginIsKilled(t *testing.T) {
	rpc := &supporting{late: 1}
	c := &Client{rpc: rpc, life: t.Context(), done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := transport{c}.Ask(ctx, allReduce)
	require.ErrorIs(t, err, plugin.Timeout)
	require.NoError(t, c.Err())
	s, err := transport{c}.Ask(t.Context(), allReduce)
	require.NoError(t, err)
	require.Equal(t, "it does nothing", s.Reason)
}

// A plugin that replies to the question after a call that was given up is not stuck, whatever it replies: gRPC in
// Python has a plain status for any exception. The three statuses that gRPC makes itself for want of a reply are none.
func TestAnyStatusOfThePluginIsAReply(t *testing.T) {
	none := []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable}
	c := &Client{life: t.Context()}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		replies := c.responds(time.Second, func(context.Context) error { return status.Error(code, "busy") })
		require.Equal(t, !slices.Contains(none, code), replies, "%v", code)
	}
	own := toRPC(plugin.Errorf(plugin.Timeout, "the device is busy"))
	require.True(t, c.responds(time.Second, func(context.Context) error { return own }))
	require.False(t, c.responds(time.Second, noReplyTo))
}
