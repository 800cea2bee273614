package process

import (
	"context"
	"errors"
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
	if err == nil {
		return nil
	}
	m := proto.FromError(err)
	m.Message = check.Clip(m.Message)
	s, detailErr := status.New(codes.Unknown, m.Message).WithDetails(m)
	if detailErr != nil {
		return status.Error(codes.Unknown, m.Message)
	}
	return s.Err()
}

// fromRPC is the error of a failed call: the transport's own if it sent one,
// else what gRPC says, under the contract's codes.
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
		e.Message = operation + ": " + check.Clip(e.Message)
		return e
	}
	code, cause := plugin.Internal, error(nil)
	switch s.Code() {
	case codes.Canceled:
		code, cause = plugin.Aborted, context.Canceled
	case codes.DeadlineExceeded:
		code, cause = plugin.Timeout, context.DeadlineExceeded
	case codes.Unavailable:
		code = plugin.PluginDied
	case codes.ResourceExhausted, codes.Unimplemented, codes.InvalidArgument:
		code = plugin.Protocol
	}
	return &plugin.Error{Code: code, Rank: -1, Message: operation + ": " + check.Clip(s.Message()), Cause: cause}
}

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

// ofContext is the error of a call whose context has ended, if that is why it
// failed. The plugin sees the deadline and the cancellation as well, and its
// answer may come first: it is the context's error all the same, with what the
// plugin said in the message. Codes that say more than that a call was given up
// are kept.
func ofContext(ctx context.Context, operation string, err error) error {
	ended := ctx.Err()
	if deadline, has := ctx.Deadline(); ended == nil && has && !time.Now().Before(deadline) {
		ended = context.DeadlineExceeded // the context's own timer has not run yet
	}
	if ended == nil {
		return err
	}
	switch plugin.CodeOf(err) {
	case plugin.Timeout, plugin.Aborted, plugin.Internal:
	default:
		return err
	}
	code := plugin.Aborted
	if errors.Is(ended, context.DeadlineExceeded) {
		code = plugin.Timeout
	}
	message := err.Error()
	if !errors.Is(err, ended) {
		message = operation + ": " + ended.Error() + " (" + message + ")"
	}
	return &plugin.Error{Code: code, Rank: -1, Message: message, Cause: ended}
}

// call makes one call to the plugin. It ends when the plugin does, and then
// answers why the plugin ended rather than how that looked from the call. When
// ctx ends, so does the call, with ctx's error.
func (c *Client) call(given context.Context, operation string, f func(context.Context) error) error {
	if err := c.Err(); err != nil {
		return named(operation, err)
	}
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
	err = ofContext(given, operation, err)
	if plugin.CodeOf(err) == plugin.PluginDied {
		waitFor(c.done, deathLag) // the process's end follows the connection's
	}
	if dead := c.Err(); dead != nil && !errors.Is(err, context.DeadlineExceeded) {
		return named(operation, dead)
	}
	return err
}

// named puts the operation in front of an error.
func named(operation string, err error) error {
	return &plugin.Error{Code: plugin.CodeOf(err), Rank: -1, Message: operation + ": " + err.Error(), Cause: err}
}
