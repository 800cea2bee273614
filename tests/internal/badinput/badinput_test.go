package badinput

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/shm"
)

func TestMain(m *testing.M) {
	host.Register(shm.Transport{})
	pool.Main()
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// ask runs a handler on a world of two and returns each rank's verdicts.
func ask(t *testing.T, p *pool.Pool, handler string, r request) [][]verdict {
	t.Helper()
	r.Transport = "builtin:shm"
	r.ID = "file://" + filepath.Join(t.TempDir(), "meet")
	payload, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	result, err := p.Run(context.Background(), pool.Case{Handler: handler, Payloads: [][]byte{payload},
		Timeout: 30 * time.Second})
	if err == nil {
		err = result.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	verdicts := make([][]verdict, len(result.Outcomes))
	for rank, o := range result.Outcomes {
		if err := json.Unmarshal(o.Payload, &verdicts[rank]); err != nil {
			t.Fatal(err)
		}
	}
	return verdicts
}

func two(t *testing.T, env ...string) *pool.Pool {
	t.Helper()
	p, err := pool.New(pool.Options{World: 2, Env: append(env, "SHUNT_STALL_WARNING=200ms")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// expect compares a verdict with a code and a part of the message.
func expect(t *testing.T, rank int, v verdict, code plugin.Code, message string) {
	t.Helper()
	if v.Code != code || !strings.Contains(v.Message, message) {
		t.Errorf("%s, rank %d: %s: %q, want %s with %q", v.Name, rank, v.Code, v.Message, code, message)
	}
	if v.After != "" {
		t.Errorf("%s, rank %d, afterwards: %s", v.Name, rank, v.After)
	}
}

func TestCalls(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for rank, verdicts := range ask(t, two(t), "badinput calls", request{}) {
		if len(verdicts) != 2*len(table.Calls) {
			t.Fatalf("rank %d: %d verdicts of %d calls", rank, len(verdicts), len(table.Calls))
		}
		for i, e := range table.Calls {
			code, _ := codeOf(e.Code)
			expect(t, rank, verdicts[2*i], code, expand(e.Message, rank))
			expect(t, rank, verdicts[2*i+1], code, expand(e.Message, rank))
		}
	}
}

func TestMismatches(t *testing.T) {
	table, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	ranks := two(t)
	for number, m := range table.Mismatches {
		mismatch := func(how string, warm bool) {
			t.Run(m.Name+"/"+how, func(t *testing.T) {
				for rank, verdicts := range ask(t, ranks, "badinput mismatch", request{Number: number, Warm: warm}) {
					for _, text := range m.Messages {
						expect(t, rank, verdicts[0], plugin.Mismatch, text)
					}
				}
			})
		}
		mismatch("first call", false)
		mismatch("later call", true)
	}
}

// named expects verdicts by name.
func named(t *testing.T, handler string, want map[string]string, code plugin.Code) {
	t.Helper()
	for rank, verdicts := range ask(t, two(t), handler, request{}) {
		if len(verdicts) != len(want) {
			t.Errorf("rank %d: %d verdicts, want %d", rank, len(verdicts), len(want))
		}
		for _, v := range verdicts {
			message, ok := want[v.Name]
			if !ok {
				t.Errorf("rank %d: no expectation of %s", rank, v.Name)
			}
			expect(t, rank, v, code, expand(message, rank))
		}
	}
}

func TestWindows(t *testing.T) {
	named(t, "badinput window", map[string]string{
		"symmetric null":                 "register_symmetric on rank %r: rank 0: the range has 16 bytes at 0x0",
		"symmetric of nothing":           "register_symmetric on rank %r: rank 0: the range has 0 bytes at 0x",
		"symmetric of less than nothing": "register_symmetric on rank %r: rank 0: the range has -9223372036854775808 bytes at 0x",
		"symmetric on one rank":          "register_symmetric on rank %r: rank 0: the range has 0 bytes at 0x",
		"negative window":                "new_window on rank %r: -1 bytes",
		"put behind the end":             "2 bytes at offset 99 exceed the window's 100",
		"get behind the end":             "101 bytes at offset 0 exceed the window's 100",
		"negative offset":                "offset -1 is negative",
		"overflowing offset":             "exceed the window's 100",
		"peer too large":                 "peer 2 is not a rank of a world of 2",
		"null source":                    "send memory is null but 1 bytes are needed",
		"misaligned offset":              "offset 2 is not a multiple of the 4 bytes of float32",
		"another communicator's window":  "the window belongs to another communicator",
		"closed window":                  "the window is closed",
	}, plugin.InvalidArgument)
}

func TestGroups(t *testing.T) {
	for rank, verdicts := range ask(t, two(t), "badinput groups", request{}) {
		want := []struct {
			code    plugin.Code
			message string
		}{
			{plugin.InvalidArgument, "a group takes send, recv and one-sided operations only"},
			{plugin.InvalidArgument, fmt.Sprintf("group on rank %d: 1 sends to itself but 0 receives from itself", rank)},
			{plugin.Mismatch, "sends 8 bytes to itself but receives 12"},
			{plugin.InvalidArgument, "count -1 is negative"},
			{plugin.InvalidArgument, "color -5 is negative"},
		}
		for i, v := range verdicts {
			expect(t, rank, v, want[i].code, want[i].message)
		}
	}
}

func TestClosedCommunicator(t *testing.T) {
	named(t, "badinput closed", map[string]string{
		"call": "communicator world is closed", "start": "communicator world is closed",
		"split": "communicator world is closed", "window": "communicator world is closed",
	}, plugin.Closed)
}

func TestSpecs(t *testing.T) {
	digits := strings.Repeat("0aF9", 16)
	for _, text := range []string{"shm", "shared:/x.so", "process:/x", "process:/x#sha256=" + digits} {
		if spec, err := carrier.ParseSpec(text); err != nil || (spec.SHA256 == "") != !strings.Contains(text, "#") {
			t.Errorf("%q: %v, %v", text, spec, err)
		}
	}
	for _, test := range []struct{ spec, message string }{
		{"", "no name or path"},
		{"builtin:", "no name or path behind builtin:"},
		{"network:shm", `unknown carrier "network"; known are builtin, shared and process`},
		{"shared:/" + strings.Repeat("x", 4096), "what is behind shared: has 4097 bytes, want at most 4096"},
		{"process:/x#sha256=abc", "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256=", "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256", "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256=" + digits[1:], "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256=" + digits + "0", "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256=" + digits[1:] + "g", "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256= " + digits[1:], "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256=" + digits + "#sha256=" + digits, "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256=" + digits + "&sha256=" + digits, "sha256 is not 64 hexadecimal digits"},
		{"process:/x#sha256=#sha256=" + digits, "sha256 is not 64 hexadecimal digits"},
		{"process:/x#SHA256=" + digits, `unknown pin "SHA256"`},
		{"process:/x#sha512=" + digits + digits, `unknown pin "sha512"`},
		{"process:/x#" + digits, "unknown pin"},
		{"process:/x#", `unknown pin ""`},
		{"process:#sha256=" + digits, "no name or path behind process:"},
		{"shared:/x#sha256=" + digits, "only process transports can be pinned"},
		{"builtin:shm#sha256=" + digits, "only process transports can be pinned"},
		{"shared:/a\x00b", "no name or path"},
	} {
		_, err := carrier.ParseSpec(test.spec)
		if plugin.CodeOf(err) != plugin.InvalidArgument || !strings.Contains(err.Error(), test.message) {
			t.Errorf("%q: %v, want %q", test.spec, err, test.message)
		}
	}
}

func TestInit(t *testing.T) {
	for _, test := range []struct {
		name    string
		options host.Options
		code    plugin.Code
		message string
	}{
		{"rank outside", host.Options{Rank: 2, World: 2}, plugin.InvalidArgument, "rank 2 of world 2"},
		{"negative rank", host.Options{Rank: -1, World: 2}, plugin.InvalidArgument, "rank -1 of world 2"},
		{"negative world", host.Options{World: -3}, plugin.InvalidArgument, "of world -3"},
		{"huge world", host.Options{World: 1 << 20}, plugin.InvalidArgument, "1048576"},
		{"negative timeout", host.Options{World: 1, Timeout: -1}, plugin.InvalidArgument, "timeout -1ns is negative"},
		{"garbage id", host.Options{World: 2, ID: "nonsense"}, plugin.InvalidArgument, "nonsense"},
		{"unknown transport", host.Options{World: 1, Transports: []string{"builtin:none"}}, plugin.PluginRejected,
			`no builtin transport "none"; this binary has shm`},
		{"transport twice", host.Options{World: 1, Transports: []string{"shm", "builtin:shm"}}, plugin.PluginRejected,
			"named twice"},
		{"missing plugin", host.Options{World: 1, Transports: []string{"process:/nonexistent"}}, plugin.PluginRejected,
			"/nonexistent"},
		{"missing library", host.Options{World: 1, Transports: []string{"shared:/nonexistent.so"}}, plugin.PluginRejected,
			"/nonexistent.so"},
		{"memory of another kind", host.Options{World: 1, Memory: plugin.MemoryKindCuda}, plugin.Unsupported, "cuda"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.options.ID == "" {
				test.options.ID = "file://" + filepath.Join(t.TempDir(), "meet")
			}
			comm, err := host.Init(t.Context(), test.options)
			if err == nil {
				t.Fatalf("no error; close: %v", comm.Close())
			}
			if plugin.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.message) {
				t.Errorf("%s: %v, want %s with %q", plugin.CodeOf(err), err, test.code, test.message)
			}
		})
	}
}

// FuzzTable feeds texts to the reader of the table, which other languages' tests
// share.
func FuzzValue(f *testing.F) {
	f.Add(`"x"`)
	f.Add(`12`)
	f.Fuzz(func(t *testing.T, text string) {
		var v value
		if err := json.Unmarshal([]byte(text), &v); err == nil {
			_, _ = enum(v, plugin.ParseDType)
		}
	})
}
