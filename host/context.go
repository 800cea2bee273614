package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// noteContext is deferred by a call, with the caller's context. Where that has ended and the error has the code of it,
// the error says so, and errors.Is sees the context's error and its cause. Other ranks return the error without.
func noteContext(ctx context.Context, err *error) {
	end := contextEnd(ctx)
	if *err == nil || end == nil || plugin.CodeOf(*err) != plugin.CodeOf(end) {
		return
	}
	noted := &plugin.Error{Code: plugin.CodeOf(*err), Rank: -1, Cause: errors.Join(*err, end),
		Message: fmt.Sprintf("%v; the context of this call has ended: %v", *err, end)}
	if e := (*plugin.Error)(nil); errors.As(*err, &e) {
		noted.Rank = e.Rank
	}
	*err = noted
}

// contextEnd returns the error of a context that has ended, with its cause and the code of its own; nil: it goes on.
func contextEnd(ctx context.Context) error {
	end, cause := ctx.Err(), context.Cause(ctx)
	if deadline, ok := ctx.Deadline(); end == nil && ok && !time.Now().Before(deadline) {
		end = context.DeadlineExceeded // its timer is late
	}
	if end == nil {
		return nil
	}
	message, code := end.Error(), plugin.CodeOf(end)
	if cause != nil && !errors.Is(end, cause) {
		message, end = cause.Error(), errors.Join(end, cause) // the code says whether it was canceled or late
	}
	return &plugin.Error{Code: code, Rank: -1, Message: message, Cause: end}
}
