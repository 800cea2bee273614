package conformance_test

import (
	"context"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/transports/shm"
)

const nonsenseEnv = "SHUNT_TEST_NONSENSE"

// nonsense is shm with a result of Supports that breaks the contract.
type nonsense struct{ shm.Transport }

func (n nonsense) Info() plugin.Info {
	i := n.Transport.Info()
	i.Name = "nonsense"
	return i
}

// results are the ways to break it, and what a report says of each.
var results = map[string]struct {
	support func(plugin.Request) plugin.Support
	want    string
}{
	"panic": {func(plugin.Request) plugin.Support { panic("no such rail") },
		"panicked in supports scatter_v: no such rail"},
	"neither":  {func(plugin.Request) plugin.Support { return plugin.Support{} }, "neither algorithms nor a reason"},
	"latency":  {one(func(a *plugin.Algorithm) { a.Latency = -1 }), "latency -1"},
	"nan":      {one(func(a *plugin.Algorithm) { a.Latency = math.NaN() }), "latency NaN"},
	"still":    {one(func(a *plugin.Algorithm) { a.Bandwidth = 0 }), "bandwidth 0"},
	"limits":   {one(func(a *plugin.Algorithm) { a.MinBytes, a.MaxBytes = 9, 8 }), "its limits are 9 to 8 bytes"},
	"unending": {one(func(a *plugin.Algorithm) { a.Name = strings.Repeat("x", 100) }), "algorithm name of 100 bytes"},
	"many": {func(plugin.Request) plugin.Support { return plugin.Support{Algorithms: make([]plugin.Algorithm, 1000)} },
		"1000 algorithms, want at most 32"},
	"binary": {func(plugin.Request) plugin.Support { return plugin.Support{Reason: "no\x00\xff"} },
		"is not printable UTF-8"},
	"rank": {func(r plugin.Request) plugin.Support {
		return plugin.Support{Reason: strings.Repeat("x", 1+r.Rank)}
	}, "asked by the last rank it returns something else"},
}

func one(change func(*plugin.Algorithm)) func(plugin.Request) plugin.Support {
	return func(plugin.Request) plugin.Support {
		a := plugin.Algorithm{Name: "one", Latency: 1, Bandwidth: 1}
		change(&a)
		return plugin.Support{Algorithms: []plugin.Algorithm{a}}
	}
}

// Supports returns nonsense for a collective that nothing else here needs.
func (n nonsense) Supports(req plugin.Request) plugin.Support {
	if how, ok := results[os.Getenv(nonsenseEnv)]; ok && req.Collective == plugin.ScatterV {
		return how.support(req)
	}
	return n.Transport.Supports(req)
}

// failing returns the details of the failed results in a short run of next to no cases.
func failing(t *testing.T, cfg conformance.Config) (details []string) {
	t.Helper()
	cfg.Worlds, cfg.Short, cfg.Filter = []int{2}, true, regexp.MustCompile(`^barrier`)
	report, err := conformance.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Outcome == conformance.Failed {
			if !strings.HasPrefix(r.Name, "supports/w2/") {
				t.Errorf("another case failed: %s: %s", r.Name, r.Detail)
			}
			details = append(details, r.Detail)
		}
	}
	return details
}

// A result of Supports that breaks the contract is a failed case, whatever the host
// makes of it.
func TestNonsenseOfSupportsFails(t *testing.T) {
	for how, a := range results {
		t.Run(how, func(t *testing.T) {
			details := failing(t, conformance.Config{Transport: "builtin:nonsense", Env: []string{nonsenseEnv + "=" + how}})
			if len(details) == 0 || !strings.Contains(details[0], a.want) {
				t.Errorf("%q, want %q", details, a.want)
			}
		})
	}
	if details := failing(t, conformance.Config{Transport: "builtin:nonsense"}); len(details) > 0 {
		t.Errorf("without nonsense: %q", details)
	}
}

// A run that ends early ends with the results of Supports too: they are cases.
func TestNonsenseOfSupportsCountsAsFailures(t *testing.T) {
	details := failing(t, conformance.Config{Transport: "builtin:nonsense", Env: []string{nonsenseEnv + "=neither"},
		MaxFailures: 1})
	if len(details) != 1 {
		t.Errorf("%d failures are reported, want 1: %q", len(details), details)
	}
}

// Text without an end can only come through the ABI of C.
func TestUnterminatedTextFails(t *testing.T) {
	path, err := ctransport.BuildStuck(t.TempDir(), "endless")
	if err != nil {
		t.Fatal(err)
	}
	details := failing(t, conformance.Config{Transport: "shared:" + path})
	if len(details) == 0 || !strings.Contains(details[0], "the name of algorithm 0: it is longer than 63 bytes") {
		t.Errorf("%q", details)
	}
}

// messages is shm for messages alone, without memory for the host's algorithms.
type messages struct{ shm.Transport }

func (m messages) Info() plugin.Info {
	i := m.Transport.Info()
	i.Name = "messages"
	return i
}

func (m messages) Supports(req plugin.Request) plugin.Support {
	if !req.Collective.PointToPoint() {
		return plugin.Support{Reason: "messages alone"}
	}
	return m.Transport.Supports(req)
}

func (m messages) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := m.Transport.Open(ctx, c)
	return messagesEndpoint{e}, err
}

type messagesEndpoint struct{ plugin.Endpoint }

func (m messagesEndpoint) Regions() []plugin.Region {
	regions := slices.Clone(m.Endpoint.Regions())
	for i := range regions {
		if regions[i].Role == plugin.RegionRoleScratch {
			regions[i].Role = plugin.RegionRolePrivate
		}
	}
	return regions
}

// Scenarios of whatever collectives there are, are skipped where a transport has none.
func TestScenariosOfNoCollectiveAreSkipped(t *testing.T) {
	names := []string{"mixed_sequence", "late_sequence", "fresh_memory", "zero_mix", "page_end"}
	report, err := conformance.Run(t.Context(), conformance.Config{Transport: "builtin:messages", Worlds: []int{2},
		Short: true, Filter: regexp.MustCompile("^(send_recv_ring|" + strings.Join(names, "|") + ")/")})
	if err != nil {
		t.Fatal(err)
	}
	skipped := map[string]bool{}
	for _, r := range report.Results {
		want := conformance.Passed
		if r.Case != nil && slices.Contains(names, r.Case.Scenario) {
			want, skipped[r.Case.Scenario] = conformance.Skipped, true
		}
		if r.Outcome != want || (want == conformance.Skipped && !strings.Contains(r.Detail, "no collective that all ranks")) {
			t.Errorf("%s: %s, want %s: %s", r.Name, r.Outcome, want, r.Detail)
		}
	}
	if len(skipped) != len(names) || report.Count(conformance.Passed) == 0 {
		t.Errorf("skipped %v of %d cases", skipped, len(report.Results))
	}
}
