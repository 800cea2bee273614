package conformance

import (
	"reflect"
	"testing"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// The offers are those for all dtypes and ops, at the sizes of any of them.
func TestOffersOfAllDTypesAndOps(t *testing.T) {
	explain := func(c plugin.Collective, d plugin.DType, op plugin.Op, bytes int64) (selector.Explanation, error) {
		all := plugin.Algorithm{Name: "all", Latency: 1, Bandwidth: 1, MaxBytes: 64}
		list := []plugin.Algorithm{all}
		switch {
		case c == plugin.Broadcast && d.Bytes() == 8:
			list = append(list, plugin.Algorithm{Name: "words", Latency: 2, Bandwidth: 1, MinBytes: 16})
		case c == plugin.Reduce && d == plugin.Float32 && op == plugin.OpMax:
			list = append(list, plugin.Algorithm{Name: "max", Latency: 2, Bandwidth: 1})
		case c == plugin.Reduce && d == plugin.Float64:
			list[0].MaxBytes = 0
		case c != plugin.Broadcast && c != plugin.Reduce:
			list = nil
		}
		var candidates []selector.Candidate
		for _, a := range list {
			candidates = append(candidates, selector.Candidate{Transport: "t", Algorithm: a, Qualified: "t/" + a.Name})
		}
		choice, err := selector.New().Compile(plugin.Request{Collective: c, DType: d, Op: op, World: 2}, candidates, nil)
		if err != nil {
			return selector.Explanation{}, err
		}
		return choice.Explain(bytes), nil
	}
	sizes := []int64{0, 8, 64, 1024}
	broadcast := []offer{{Collective: plugin.Broadcast, Algorithm: "t/all", Bytes: []int64{0, 8, 64}},
		{Collective: plugin.Broadcast, Algorithm: "t/words", Bytes: []int64{64, 1024}}}
	reduce := []offer{{Collective: plugin.Reduce, Algorithm: "t/all", Bytes: sizes},
		{Collective: plugin.Reduce, Algorithm: "t/max", Bytes: sizes}}
	for _, test := range []struct {
		dtypes []plugin.DType
		want   map[plugin.Collective][]offer
	}{
		{nil, map[plugin.Collective][]offer{plugin.Broadcast: broadcast, plugin.Reduce: reduce}},
		{[]plugin.DType{plugin.Uint8}, map[plugin.Collective][]offer{plugin.Broadcast: broadcast[:1],
			plugin.Reduce: {{Collective: plugin.Reduce, Algorithm: "t/all", Bytes: []int64{0, 8, 64}}}}},
	} {
		offers, err := offersOf(explain, test.dtypes, sizes)
		if err != nil {
			t.Fatal(err)
		}
		got := map[plugin.Collective][]offer{}
		for _, o := range offers {
			got[o.Collective] = append(got[o.Collective], o)
		}
		for collective, want := range test.want {
			if reflect.DeepEqual(got[collective], want) {
				delete(got, collective)
			}
		}
		if len(got) > 0 {
			t.Errorf("%v: got %+v, want %+v", test.dtypes, got, test.want)
		}
	}
}
