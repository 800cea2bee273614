// Package flawed is a transport with one flaw of those that no rule of plans is about: what it leaves behind, memory
// that is not as it should be, an option that is ignored, plans that are offered and not there, lengths and places that
// a small message never has. Flaws are all of them, and its test shows that the conformance suite finds each.
//
// It is shm with one plan of its own, an all_gather_v like that of the transport author's guide in pieces, and an
// all_reduce that only some dtypes have and that no cost chooses.
package flawed

import (
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// Flaw is one flaw, with the cases that find it.
type Flaw struct {
	Name  string
	Cases string // regular expression
	Want  string // in the text of the failure
	Full  bool   // a short run does not find it
}

// Flaws lists the flaws.
var Flaws = []Flaw{
	{Name: "options", Cases: "^barrier", Want: "it opens with SHUNT_FLAWED_OPTIONS_CONFORMANCE_UNKNOWN=1"},
	{Name: "leak_descriptor", Cases: "^lives/", Want: "open descriptors of the rank"},
	{Name: "leak_plan", Cases: "^lives/", Want: "open descriptors of the rank"},
	{Name: "leak_thread", Cases: "^lives/", Want: "threads of the rank"},
	{Name: "leak_memory", Cases: "^lives/", Want: "KiB of memory of the rank"},
	{Name: "leak_window", Cases: "^lives/", Want: "open descriptors of the rank"},
	{Name: "dirty_window", Cases: "^put_signal_wait/", Want: "want memory filled with zeros"},
	{Name: "no_plan_4", Cases: "^late_rank/", Want: "no plan for elements of 4 bytes"},
	{Name: "no_plan_2", Cases: "^changing_splits/.*bfloat16", Want: "no plan for elements of 2 bytes"},
	{Name: "no_plan_some", Cases: "^(all_reduce|mixed_sequence)/", Want: "no plan for some dtypes"},
	{Name: "recv_8", Cases: "^send_recv_order/", Want: "the element was never written"},
	{Name: "recv_8", Cases: "^group_exchange/", Want: "the element was never written"},
	{Name: "recv_32_bits", Cases: "^far_blocks/", Want: "with the last block 4 GiB behind the others"},
	{Name: "recv_31_bits", Cases: "^far_blocks/", Want: "with the last block 4 GiB behind the others"},
	{Name: "whole_vectors", Cases: "^all_gather_v/.*even", Want: "the element was never written"},
	{Name: "many_pieces", Cases: "^all_gather_v/.*/n9437191/", Want: "the element was never written", Full: true},
}

// Transport is the transport with the flaw of that name; "" is none.
type Transport struct {
	shm.Transport
	Flaw string
}

// Info describes the transport. Each flaw is a transport of its own.
func (t Transport) Info() plugin.Info {
	i := t.Transport.Info()
	i.Name = "flawed"
	if t.Flaw != "" {
		i.Name += "_" + t.Flaw
	}
	i.Features &^= plugin.FeatureMarks // its plan has its semaphores elsewhere
	return i
}

// Names of algorithms.
const (
	pieces = "pieces" // of all_gather_v
	some   = "some"   // of all_reduce, for some dtypes only
)

// Supports depends on the request alone.
func (t Transport) Supports(req plugin.Request) plugin.Support {
	if req.Collective == plugin.AllGatherV && req.Memory == plugin.MemoryKindHost && req.Hosts <= 1 {
		return plugin.Support{Algorithms: []plugin.Algorithm{{Name: pieces, Latency: 1, Bandwidth: 1000}}}
	}
	s := t.Transport.Supports(req)
	if req.Collective == plugin.AllReduce && len(s.Algorithms) > 0 && slices.Contains(t.some(), req.DType) {
		s.Algorithms = append(s.Algorithms, plugin.Algorithm{Name: some, Latency: 1000, Bandwidth: 1})
	}
	return s
}

// some are the dtypes of the dearer all_reduce.
func (t Transport) some() []plugin.DType {
	if t.Flaw == "no_plan_some" {
		return []plugin.DType{plugin.Float32}
	}
	return []plugin.DType{plugin.Int32, plugin.Int64}
}
