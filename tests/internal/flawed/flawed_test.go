package flawed_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/flawed"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func TestMain(m *testing.M) {
	host.Register(flawed.Transport{})
	for i, flaw := range flawed.Flaws {
		if i > 0 && flawed.Flaws[i-1].Name == flaw.Name {
			continue // several scenarios find it
		}
		host.Register(flawed.Transport{Flaw: flaw.Name})
	}
	pool.Main() // ranks are copies of this binary
	os.Exit(m.Run())
}

func run(t *testing.T, transport, cases string, full bool) *conformance.Report {
	t.Helper()
	report, err := conformance.Run(t.Context(), conformance.Config{
		Transport: "builtin:" + transport, Worlds: []int{2}, Short: !full, MaxFailures: 1, Filter: regexp.MustCompile(cases),
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// Without a flaw all the cases pass that find one.
func TestTransportIsRight(t *testing.T) {
	for _, flaw := range flawed.Flaws {
		if err := run(t, "flawed", flaw.Cases, flaw.Full).Err(); err != nil {
			t.Errorf("%s: %v", flaw.Cases, err)
		}
	}
}

// Every flaw is found, and the failure says what is wrong.
func TestFlawsAreFound(t *testing.T) {
	for _, flaw := range flawed.Flaws {
		t.Run(flaw.Name, func(t *testing.T) {
			report := run(t, flawed.Transport{Flaw: flaw.Name}.Info().Name, flaw.Cases, flaw.Full)
			if !slices.ContainsFunc(report.Results, func(r conformance.CaseResult) bool {
				return r.Outcome == conformance.Failed && strings.Contains(r.Detail, flaw.Want)
			}) {
				t.Errorf("want a failure that says %q, got: %v", flaw.Want, report.Err())
			}
		})
	}
}
