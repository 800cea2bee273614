package conformance

import (
	"errors"
	"fmt"
	"testing"
)

// Test runs the matrix as subtests of t, one for each world and collective or
// scenario. Cases that a transport cannot do are logged with the reason; if
// nothing could run, the test fails.
func Test(t *testing.T, cfg Config) {
	t.Helper()
	report, err := Run(t.Context(), cfg)
	if report == nil {
		t.Fatal(err)
	}
	type key struct {
		world int
		group string
	}
	groups := map[key][]*CaseResult{}
	var order []key
	for i := range report.Results {
		result := &report.Results[i]
		k := key{0, result.group()}
		if result.Case != nil {
			k.world = result.Case.World
		}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], result)
	}
	for _, k := range order {
		t.Run(fmt.Sprintf("world=%d/%s", k.world, k.group), func(t *testing.T) {
			for _, result := range groups[k] {
				if result.Outcome == Failed {
					t.Errorf("%s\n%s", result.Name, indent(result.Detail))
				}
			}
		})
	}
	reasons, times := report.skips()
	for _, reason := range reasons {
		t.Logf("skipped %d: %s", times[reason], reason)
	}
	t.Logf("%s: %d passed, %d failed, %d skipped in %v", cfg.Transport, report.Count(Passed), report.Count(Failed),
		report.Count(Skipped), report.Duration)
	if err != nil { // ranks may still run: nothing that they use must be taken away
		t.Fatal(errors.Join(err, report.Err()))
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}
