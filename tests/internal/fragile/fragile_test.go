package fragile_test

import (
	"flag"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/fragile"
	"github.com/shunt-ccl/shunt/tests/pool"
)

var seeds = flag.Uint64("fragile.seeds", 2, "how many seeds each mutant is run with")

func TestMain(m *testing.M) {
	host.Register(fragile.Transport{})
	for _, mutant := range fragile.Mutants {
		host.Register(fragile.Transport{Mutant: mutant.Name})
	}
	pool.Main()
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// short returns the part of the short run that has delays.
func short(mutant string, seed uint64) conformance.Config {
	return conformance.Config{
		Transport: "builtin:" + fragile.Transport{Mutant: mutant}.Info().Name, Worlds: []int{3}, Short: true, MaxFailures: 1,
		Filter: regexp.MustCompile(`^(late_|run_ahead/)`), Seed: seed,
	}
}

// The transport is right as long as it is not broken, so that what breaks it is found
// for what it breaks.
func TestTransportIsRight(t *testing.T) {
	for seed := range *seeds {
		conformance.Test(t, short("", seed))
	}
}

// Every way to break a rule in a plan is found by the cases with delays of a short run,
// whatever the seed.
func TestMutantsAreFound(t *testing.T) {
	peers := peersCanBeRead(t)
	for _, mutant := range fragile.Mutants {
		t.Run(mutant.Name, func(t *testing.T) {
			if mutant.Peers && !peers {
				t.Skip("ranks cannot read each other's memory on this machine (process_vm_readv)")
			}
			for seed := range *seeds {
				cfg := short(mutant.Name, seed)
				if mutant.Stuck {
					cfg.Timeout = 3 * time.Second
				}
				start := time.Now()
				report, err := conformance.Run(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				failed := failures(report)
				if len(failed) == 0 {
					t.Errorf("rule %d, %s: seed %d: not found in %d cases", mutant.Rule, mutant.Why, seed, len(report.Results))
					continue
				}
				t.Logf("seed %d: found after %.1f s by case %d, %s", seed, time.Since(start).Seconds(), len(report.Results),
					failed[0].Name)
				if !strings.Contains(failed[0].Detail, "SHUNT_DELAYS=") ||
					!strings.Contains(failed[0].Detail, "again: shunt conformance ") {
					t.Errorf("the failure does not say how to repeat it:\n%s", failed[0].Detail)
				}
			}
		})
	}
}

// peersCanBeRead reports whether ranks can read each other's memory, which one algorithm
// needs.
func peersCanBeRead(t *testing.T) bool {
	cfg := short("", 0)
	cfg.Filter = regexp.MustCompile(`^all_gather/`)
	report, err := conformance.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(report.Results, func(r conformance.CaseResult) bool {
		return r.Algorithm == "fragile/offer"
	})
}

func failures(report *conformance.Report) (list []conformance.CaseResult) {
	for _, r := range report.Results {
		if r.Outcome == conformance.Failed {
			list = append(list, r)
		}
	}
	return list
}
