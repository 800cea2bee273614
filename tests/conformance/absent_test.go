package conformance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
)

// An absence alone is a skip, however it is wrapped; together with a wrong result, or of a plan that could not be made,
// it is none.
func TestAbsent(t *testing.T) {
	skip, wrong := absent("no send"), errors.New("turn 0: byte 3 is wrong")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {skip, true}, {pool.Fatal(fmt.Errorf("round 1: %w", skip)), true}, {wrong, false},
		{errors.Join(skip), true}, {errors.Join(skip, fmt.Errorf("step 2: %w", skip)), true},
		{errors.Join(skip, wrong), false}, {pool.Fatal(errors.Join(skip, wrong)), false},
		{fmt.Errorf("%w, %w", wrong, skip), false},
		{plugin.Errorf(plugin.Unsupported, "no plan"), false},
		{fmt.Errorf("step 2: %w", plugin.Errorf(plugin.Unsupported, "no plan")), false},
	} {
		if got := isAbsent(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
