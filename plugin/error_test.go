package plugin

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever error comes, it has one code; one that was given goes before that of a context's end.
func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, OK},
		{errors.New("x"), Internal},
		{Mismatch, Mismatch},
		{&Error{Code: 99}, Internal},
		{&Error{Code: OK}, Internal},
		{fmt.Errorf("x: %w", Errorf(Unsupported, "y")), Unsupported},
		{context.Canceled, Aborted},
		{fmt.Errorf("x: %w", context.Canceled), Aborted},
		{context.DeadlineExceeded, Timeout},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), Timeout},
		{Errorf(PluginDied, "x: %w", context.DeadlineExceeded), PluginDied},
	} {
		require.Equal(t, c.want, CodeOf(c.err), "%v", c.err)
	}
}
