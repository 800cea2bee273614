package plans

import (
	"context"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// offering returns a Supports that always gives the same support.
func offering(support plugin.Support) func(context.Context, plugin.Request) (plugin.Support, error) {
	return func(context.Context, plugin.Request) (plugin.Support, error) { return support, nil }
}

// The generic algorithms serve what a transport leaves to them, but do not
// stretch its memory to other hosts.
func TestGenericAlgorithmsReachAsFarAsTheTransport(t *testing.T) {
	refusing := plugin.Support{Reason: "it reaches one host"}
	own := plugin.Support{Algorithms: []plugin.Algorithm{{Name: "own", Latency: 1, Bandwidth: 1}}}
	for _, test := range []struct {
		support plugin.Support
		hosts   int
		want    string // names of the algorithms
	}{
		{refusing, 1, "generic/put_one_shot generic/put_two_shot"},
		{refusing, 2, ""},
		{own, 1, "own generic/put_one_shot generic/put_two_shot"},
		{own, 2, "own generic/put_one_shot generic/put_two_shot"},
	} {
		req := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 4, Hosts: test.hosts,
			Memory: plugin.MemoryKindHost}
		a := &Transport{Ask: offering(test.support), Scratch: &plugin.Region{Bytes: 16 << 20}}
		got, err := a.Supports(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, algorithm := range got.Algorithms {
			names = append(names, algorithm.Name)
		}
		if strings.Join(names, " ") != test.want || got.Reason != test.support.Reason {
			t.Errorf("%+v on %d hosts: %v, reason %q", test.support, test.hosts, names, got.Reason)
		}
		a.Scratch = nil
		if got, err := a.Supports(t.Context(), req); err != nil || len(got.Algorithms) != len(test.support.Algorithms) {
			t.Errorf("%+v without scratch: %v", test.support, got.Algorithms)
		}
	}
}

// Where neither the transport nor the generic algorithms over its scratch serve a request, both say why.
func TestBothReasons(t *testing.T) {
	req := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 4, Hosts: 1,
		Memory: plugin.MemoryKindHost}
	small := &plugin.Region{Bytes: 100}
	for _, test := range []struct{ own, want string }{
		{"it has no plans of its own", "it has no plans of its own; over its scratch region: 100 bytes of scratch are too few for 4 ranks"},
		{"", "100 bytes of scratch are too few for 4 ranks"},
	} {
		a := &Transport{Ask: offering(plugin.Support{Reason: test.own}), Scratch: small}
		got, err := a.Supports(t.Context(), req)
		if err != nil || len(got.Algorithms) > 0 || got.Reason != test.want {
			t.Errorf("%+v, %v, want the reason %q", got, err, test.want)
		}
	}
}
