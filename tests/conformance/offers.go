package conformance

import (
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// offersOf asks the selector which algorithms could serve every collective: at every size, with any of the dtypes (nil:
// all) and ops. A collective that nothing serves has no offer.
func offersOf(explain explainer, dtypes []plugin.DType, sizes []int64) ([]offer, error) {
	var offers []offer
	for _, collective := range plugin.Collectives() {
		first, seen := len(offers), map[string]bool{}
		for _, s := range signatures(collective, dtypes) {
			small, smallErr := explain(collective, s.dtype, s.op, sizes[0])
			large, largeErr := explain(collective, s.dtype, s.op, sizes[len(sizes)-1])
			// Both ends say which algorithms there are, and within which limits.
			ends := fmt.Sprint(limits(small), smallErr, limits(large), largeErr)
			if seen[ends] {
				continue
			}
			seen[ends] = true
			for _, bytes := range sizes {
				e, err := explain(collective, s.dtype, s.op, bytes)
				if plugin.CodeOf(err) == plugin.Unsupported {
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("explain %s of %d bytes: %w", collective, bytes, err)
				}
				for _, name := range offered(e) {
					i := slices.IndexFunc(offers[first:], func(o offer) bool { return o.Algorithm == name })
					if i < 0 {
						i = len(offers) - first
						offers = append(offers, offer{Collective: collective, Algorithm: name})
					}
					o := &offers[first+i]
					o.Bytes = append(o.Bytes, bytes)
				}
			}
		}
		for i := range offers[first:] {
			o := &offers[first+i]
			slices.Sort(o.Bytes)
			o.Bytes = slices.Compact(o.Bytes)
		}
	}
	return offers, nil
}

// signature is what algorithms of a collective may depend on beside the size.
type signature struct {
	dtype plugin.DType
	op    plugin.Op
}

// signatures returns those of a collective. What only moves elements knows their size alone.
func signatures(collective plugin.Collective, dtypes []plugin.DType) []signature {
	if dtypes == nil {
		dtypes = plugin.DTypes()
	}
	ops := plugin.Ops()
	if !collective.Reduces() {
		ops = []plugin.Op{plugin.OpSum}
	}
	var list []signature
	for _, d := range dtypes {
		same := func(s signature) bool { return s.dtype.Bytes() == d.Bytes() }
		if !collective.Reduces() && slices.ContainsFunc(list, same) {
			continue
		}
		for _, op := range ops {
			list = append(list, signature{d, op})
		}
	}
	return list
}

// offered returns the algorithms that could serve what is explained: the chosen one first.
func offered(e selector.Explanation) []string {
	var names []string
	if e.Chosen != "" {
		names = append(names, e.Chosen)
	}
	for _, other := range e.Fallback {
		names = append(names, other.Name)
	}
	return names
}

// limits returns the names of the algorithms that could serve what is explained, and why others could not.
func limits(e selector.Explanation) []string {
	list := offered(e)
	for _, r := range e.Rejected {
		list = append(list, r.Name+": "+r.Reason)
	}
	slices.Sort(list)
	return list
}
