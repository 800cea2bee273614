package sockets_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/internal/sockets"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func TestMain(m *testing.M) {
	machine.Register()
	host.Register(sockets.Transport{})
	pool.Main() // ranks are copies of this binary
	os.Exit(m.Run())
}

// spec returns the spec of the engine in a carrier, built from its command.
func spec(t *testing.T, carrier string) string {
	t.Helper()
	if carrier == "builtin" {
		return "builtin:sockets"
	}
	path := filepath.Join(t.TempDir(), "sockets")
	arguments := []string{"build", "-o", path}
	if carrier == "shared" {
		arguments = append(arguments, "-buildmode=c-shared")
	}
	if out, err := builttest.Command("go", append(arguments, "./"+carrier)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return carrier + ":" + path
}

// An engine without shared memory passes on one host and on several, in every carrier. A
// delay between hosts lasts its whole time, as no rank sees that the others wait: scenarios
// of nothing but delays run on one host. What it computes is the same in all carriers.
func TestConformance(t *testing.T) {
	kept := map[string]string{
		"builtin": `^([^h]|hosts\d/([^lr]|re)).*(float32|barrier)`,
		"shared":  `^([^hlr]|re|hosts\d/([^lr]|re)).*(float32|barrier)`,
	}
	kept["process"] = kept["shared"]
	for _, carrier := range []string{"builtin", "shared", "process"} {
		t.Run(carrier, func(t *testing.T) {
			conformance.Test(t, conformance.Config{
				Transport: spec(t, carrier), Worlds: []int{3}, Hosts: []int{1, 2, 3}, Short: true, MaxBytes: 80 << 10, MaxRounds: 2,
				Filter: regexp.MustCompile(kept[carrier]),
			})
		})
	}
}

// On CUDA memory kernels post the engine's commands, in calls and in replays of graphs: on
// one host and on two, in every carrier.
func TestDeviceConformance(t *testing.T) {
	for carrier, kept := range map[string]string{
		"builtin": `float32|barrier`,
		"shared":  `^(hosts2/)?(all_gather|all_to_all_v|send_recv|barrier).*(float32|barrier)`,
		"process": `^(hosts2/)?(all_gather|all_to_all_v|send_recv|barrier).*(float32|barrier)`,
	} {
		t.Run(carrier, func(t *testing.T) {
			conformance.Test(t, conformance.Config{
				Transport: spec(t, carrier), Worlds: []int{3}, Hosts: []int{1, 2}, Short: true, MaxBytes: 80 << 10, MaxRounds: 2,
				Memory: plugin.MemoryKindCuda, Filter: regexp.MustCompile(kept),
			})
		})
	}
}

// The same behind native steps.
func TestNativeDeviceConformance(t *testing.T) {
	config := native(t, "shared", "native")
	config.Memory, config.Hosts = plugin.MemoryKindCuda, nil
	conformance.Test(t, config)
}

// The same engine behind native steps, which start requests and poll them.
func TestNativeConformance(t *testing.T) {
	for _, carrier := range []string{"builtin", "shared"} {
		t.Run(carrier, func(t *testing.T) {
			conformance.Test(t, native(t, carrier, "native"))
		})
	}
}

func native(t *testing.T, carrier, steps string) conformance.Config {
	return conformance.Config{
		Transport: spec(t, carrier), Worlds: []int{3}, Hosts: []int{1, 3}, Short: true, MaxBytes: 80 << 10, MaxRounds: 2,
		Filter: regexp.MustCompile(`^([^hlr]|re|hosts\d/([^lr]|re)).*(float32|barrier)`),
		Env:    []string{"SHUNT_SOCKETS_STEPS=" + steps},
	}
}

// An engine whose Abort panics or does not return is found, in every carrier. One that ignores it leaves more to
// Close, which is allowed.
func TestConformanceFindsBrokenAborts(t *testing.T) {
	for _, carrier := range []string{"builtin", "shared", "process"} {
		engine := spec(t, carrier)
		for _, how := range []string{"panic", "hang", "ignore", ""} {
			t.Run(carrier+" "+how, func(t *testing.T) {
				report, err := conformance.Run(t.Context(), conformance.Config{
					Transport: engine, Worlds: []int{3}, Short: true, MaxFailures: 1, Timeout: 10 * time.Second,
					Filter: regexp.MustCompile(`^abort/.*n33/`), Env: []string{"SHUNT_SOCKETS_ABORT=" + how},
				})
				if err != nil {
					t.Fatal(err)
				}
				if how == "" || how == "ignore" {
					if err := report.Err(); err != nil {
						t.Error(err)
					}
					return
				}
				failed := slices.IndexFunc(report.Results, func(r conformance.CaseResult) bool {
					return r.Outcome == conformance.Failed
				})
				if failed < 0 {
					t.Fatalf("an engine whose abort is wrong (%s) passes", how)
				}
				detail, _, _ := strings.Cut(report.Results[failed].Detail, "\n")
				t.Log(detail)
			})
		}
	}
}

// What an engine leaves behind, what it takes for the message of its peer and what it reads of the caller's memory is
// found, though every byte that it delivers is right. Without a flaw the same cases pass.
func TestConformanceFindsFlaws(t *testing.T) {
	engine := spec(t, "process")
	flaws := maps.Clone(sockets.Flaws)
	flaws["none"] = ""
	for flaw, want := range flaws {
		t.Run(flaw, func(t *testing.T) {
			config := conformance.Config{
				Transport: engine, Worlds: []int{3}, Short: true, MaxFailures: 1,
				Filter: regexp.MustCompile(`^(lives|mistakes|page_end)/`), Env: []string{"SHUNT_SOCKETS_FLAW=" + flaw},
			}
			if flaw == "overread" {
				config.Transport, config.Env = "builtin:sockets", append(config.Env, "SHUNT_SOCKETS_STEPS=native")
			}
			report, err := conformance.Run(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			err = report.Err()
			if want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !slices.ContainsFunc(report.Results, func(r conformance.CaseResult) bool {
				return r.Outcome == conformance.Failed && strings.Contains(r.Detail, want)
			}) {
				t.Errorf("want a failure that says %q, got: %v", want, err)
			}
		})
	}
}

// A request that ends before its bytes have moved is found.
func TestConformanceFindsHastyRequests(t *testing.T) {
	config := native(t, "builtin", "hasty")
	config.Hosts, config.Filter = nil, regexp.MustCompile(`^all_(gather|reduce)/.*float32`)
	config.Timeout = 5 * time.Second
	report, err := conformance.Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err == nil {
		t.Error("a transport whose requests end early passes")
	} else if !slices.ContainsFunc(report.Results, func(c conformance.CaseResult) bool {
		return strings.Contains(c.Detail,
			", want ")
	}) {
		t.Errorf("it fails, but not by wrong results: %v", err)
	}
}
