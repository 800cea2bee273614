package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// maxMessage bounds every message from a plugin but those with device images;
// the largest plan takes less than half of it.
const maxMessage = 4 << 20

// toRPC makes a status of a transport's error: the contract's code, rank and
// message travel in the details.
func toRPC(err error) error {
	if err = plugin.ErrorOf(err); err == nil {
		return nil
	}
	m := proto.FromError(err)
	s, detailErr := status.New(codes.Unknown, m.Message).WithDetails(m)
	if detailErr != nil {
		return status.Error(codes.Unknown, m.Message)
	}
	return s.Err()
}

// fromRPC returns the error of a failed call: the transport's own if it sent one, else
// what gRPC's code means here, under the contract's codes.
func fromRPC(operation string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return plugin.Errorf(plugin.Internal, "%s: %w", operation, err)
	}
	if m := detail(s); m != nil {
		e := proto.ToError(m)
		own := &transportError{e.Message}
		e.Message = check.Behind(operation+": ", e.Message)
		e.Cause = own
		return e
	}
	said := plugin.Clip(s.Message())
	e := &plugin.Error{Code: plugin.Internal, Rank: -1}
	switch s.Code() {
	case codes.Canceled:
		e.Code, e.Cause, said = plugin.Aborted, context.Canceled, "the call was given up"
	case codes.DeadlineExceeded:
		e.Code, e.Cause, said = plugin.Timeout, context.DeadlineExceeded, "the plugin did not respond in time"
	case codes.Unavailable:
		e.Code, said = plugin.PluginDied, "the connection to the plugin is lost"
	case codes.ResourceExhausted, codes.InvalidArgument:
		e.Code, said = plugin.Protocol, "the message breaks a limit: "+said
	case codes.Unimplemented:
		e.Code, said = plugin.Protocol, "the plugin does not know this call: "+said
	default:
		said = "the call failed: " + said
	}
	e.Message = operation + ": " + said
	return e
}

// transportError is an error that the transport itself has sent.
type transportError struct{ Message string }

func (e *transportError) Error() string { return e.Message }

func detail(s *status.Status) *proto.Error {
	for _, d := range s.Details() {
		if m, ok := d.(*proto.Error); ok {
			return m
		}
	}
	return nil
}

// refusal reports whether a failed call failed in the transport, which then
// has nothing that would need to be undone.
func refusal(err error) bool {
	s, ok := status.FromError(err)
	return ok && detail(s) != nil
}

// ofContext returns the context's error of a call that failed because its context has
// ended. The plugin sees the cancellation as well, and the deadline somewhat earlier, and its reply may
// come first: the error is the context's all the same, in the plugin's words and with its
// rank. Codes that say more than that a call was given up are kept.
func (c *Client) ofContext(ctx context.Context, operation string, begun time.Time, err error) error {
	ended := ctx.Err()
	if deadline, has := ctx.Deadline(); ended == nil && has {
		left := time.Until(deadline) // 0 or less: the context's own timer has not run yet
		if left <= 0 || plugin.CodeOf(err) == plugin.Timeout && left <= early(deadline.Sub(begun)) {
			ended = context.DeadlineExceeded
		}
	}
	if ended == nil {
		return err
	}
	switch plugin.CodeOf(err) {
	case plugin.Timeout, plugin.Aborted, plugin.Internal:
	default:
		return err
	}
	e := &plugin.Error{Code: plugin.Aborted, Rank: -1, Cause: ended, Message: operation + ": the caller gave the call up"}
	if errors.Is(ended, context.DeadlineExceeded) {
		e.Code = plugin.Timeout
		e.Message = fmt.Sprintf("%s: %s did not respond within %s", operation, c, seconds(time.Since(begun)))
	}
	var said *plugin.Error
	if own := new(transportError); errors.As(err, &own) && errors.As(err, &said) {
		e.Rank, e.Message, e.Cause = said.Rank, said.Message, &replied{ended}
	}
	return e
}

// replied is a context error that the plugin has returned itself.
type replied struct{ error }

func (a *replied) Unwrap() error { return a.error }

// noReply reports whether a call failed because no reply came before its deadline.
func noReply(err error) bool {
	var heard *replied
	return plugin.CodeOf(err) == plugin.Timeout && errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &heard)
}

// responds makes a call that costs the plugin little, after one that was given up at its deadline so long after it had
// begun, and reports whether there is a reply.
func (c *Client) responds(since time.Duration, f func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(c.life, min(max(since/8, settleTimeout/10), settleTimeout))
	defer cancel()
	err := f(ctx)
	return isReply(err) || refusal(err)
}

// isReply reports whether a call has got a result or an error from the plugin: a status says that the plugin lives,
// whichever it is, and so does a message that is too long, as images may be. The three that gRPC also makes here, where
// nothing came, do not count.
func isReply(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return false
	}
	return true
}

// seconds words a time for people.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// call makes one call to the plugin. It ends when the plugin does, and then
// returns why the plugin ended rather than how that looked from the call. When
// ctx ends, so does the call, with ctx's error.
func (c *Client) call(given context.Context, operation string, f func(context.Context) error) error {
	if err := c.over(); err != nil {
		return named(operation, err)
	}
	begun := time.Now()
	ctx, cancel := context.WithCancel(given)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err := f(ctx)
	if err == nil {
		return nil
	}
	if _, isStatus := status.FromError(err); isStatus {
		err = fromRPC(operation, err)
	} else {
		err = named(operation, err)
	}
	err = c.ofContext(given, operation, begun, err)
	if plugin.CodeOf(err) == plugin.PluginDied && c.over() == nil {
		waitFor(c.done, deathLag) // the process's end follows the connection's
	}
	if dead := c.over(); dead != nil && !errors.Is(err, context.DeadlineExceeded) {
		return named(operation, dead)
	}
	return err
}

// named puts the operation in front of an error.
func named(operation string, err error) error {
	return &plugin.Error{Code: plugin.CodeOf(err), Rank: -1, Message: operation + ": " + err.Error(), Cause: err}
}
