package endpoints

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestTransportsReachTheRanksOrSayWhyNot(t *testing.T) {
	const engine = plugin.FeatureMultiHost | plugin.FeatureExchange
	twoHosts := func(s *Set) { s.Topology.Places[1].HostID = "another" }
	optional := func(s *Set) { s.Optional = true }
	const shared = "the ranks are on one host, whose memory they share; name it in SHUNT_TRANSPORTS to use it"
	for name, test := range map[string]struct {
		features plugin.Feature
		memory   plugin.MemoryKind
		change   func(*Set)
		want     string
	}{
		"one host":                    {0, plugin.MemoryKindHost, optional, ""},
		"two hosts":                   {0, plugin.MemoryKindHost, twoHosts, "it reaches ranks of one host only"},
		"two hosts and an engine":     {engine, plugin.MemoryKindHost, twoHosts, ""},
		"an engine on one host":       {engine, plugin.MemoryKindHost, optional, shared},
		"an engine with memory":       {engine | plugin.FeatureMemory, plugin.MemoryKindHost, optional, ""},
		"an engine of GPUs":           {engine, plugin.MemoryKindCuda, optional, ""},
		"an engine that was named":    {engine, plugin.MemoryKindHost, func(*Set) {}, ""},
		"GPUs without peer access":    {plugin.FeaturePeerAccess, plugin.MemoryKindCuda, apart, "GPU bus a of rank 0 and GPU bus b of rank 1 do not reach each other's memory: a test"},
		"peer access is not needed":   {0, plugin.MemoryKindCuda, apart, ""},
		"a GPU of two ranks":          {plugin.FeatureOwnGpu, plugin.MemoryKindCuda, oneGPU, "ranks 0 and 1 share GPU bus a"},
		"two ranks may have one GPU":  {0, plugin.MemoryKindCuda, oneGPU, ""},
		"each rank has a GPU, needed": {plugin.FeatureOwnGpu | plugin.FeaturePeerAccess, plugin.MemoryKindCuda, optional, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := aSet(0, 2, test.memory)
			test.change(s)
			require.Equal(t, test.want, s.outOfReach(plugin.Info{Features: test.features}))
		})
	}
}

func apart(s *Set) {
	no := topology.Path{Access: topology.AccessNo, Why: "a test"}
	s.Topology.SetPaths([][]topology.Path{{{}, no}, {no, {}}})
}

func oneGPU(s *Set) { s.Topology.Places[1].GPUs = s.Topology.Places[0].GPUs }

func TestMalformedRegionsNameTheTransport(t *testing.T) {
	for want, regions := range map[string][]plugin.Region{
		"transport bad publishes 17 regions, want at most 16": make([]plugin.Region, plugin.MaxRegions+1),
		"transport bad: region 1 has id 3 and 0 bytes":        {{ID: 0}, {ID: 3}},
		"transport bad: region 0 has id 0 and -1 bytes":       {{Bytes: -1}},
		"transport bad: region 0 has a memfd handle without a descriptor": {{
			Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, FD: -1}}},
	} {
		s, e := aSet(0, 1, plugin.MemoryKindHost), &endpoint{regions: regions}
		_, err := s.Open(t.Context(), []*carrier.Loaded{of("bad", plugin.MemoryKindHost, given(e, nil))}, plugin.OpenConfig{}, none)
		require.ErrorIs(t, err, plugin.Protocol)
		require.EqualError(t, err, want)
		require.NoError(t, s.Close())
		require.True(t, e.closed)
	}
}

// The error of a transport that cannot close names it, and the rank.
func TestCloseNamesTheTransport(t *testing.T) {
	s, e := aSet(1, 2, plugin.MemoryKindHost), &endpoint{failure: plugin.Errorf(plugin.System, "it sticks")}
	_, err := s.Open(t.Context(), []*carrier.Loaded{of("one", plugin.MemoryKindHost, given(e, nil))}, plugin.OpenConfig{}, none)
	require.NoError(t, err)
	err = s.Close()
	require.EqualError(t, err, "closing transport one on rank 1: it sticks")
	require.ErrorIs(t, err, plugin.System)
}

// given opens an endpoint, or returns an error.
func given(e *endpoint, err error) func(plugin.OpenConfig) (plugin.Endpoint, error) {
	return func(plugin.OpenConfig) (plugin.Endpoint, error) {
		if err != nil {
			return nil, err
		}
		return e, nil
	}
}

func TestTransportsThatDoNotOpen(t *testing.T) {
	unsupported := plugin.Errorf(plugin.Unsupported, "no such device")
	full := plugin.Errorf(plugin.OutOfMemory, "memory is full")
	for name, test := range map[string]struct {
		optional bool
		failure  error
		kind     plugin.MemoryKind
		want     string
		absent   bool
	}{
		"optional":           {true, unsupported, plugin.MemoryKindHost, "", true},
		"named":              {false, unsupported, plugin.MemoryKindHost, "opening transport other: no such device", false},
		"for another reason": {true, full, plugin.MemoryKindHost, "opening transport other: memory is full", false},
		"of no use":          {true, nil, plugin.MemoryKindCuda, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := aSet(0, 1, plugin.MemoryKindHost)
			s.Optional = test.optional
			absent, err := s.Open(t.Context(), []*carrier.Loaded{of("one", plugin.MemoryKindHost, given(&endpoint{}, nil)),
				of("other", test.kind, given(nil, test.failure))}, plugin.OpenConfig{}, none)
			if test.want != "" {
				require.EqualError(t, err, test.want)
			} else {
				require.NoError(t, err)
				require.Equal(t, []string{"one"}, names(s))
			}
			require.Equal(t, test.absent, absent["other"] != nil)
			require.NoError(t, s.Close())
		})
	}
	s := aSet(0, 2, plugin.MemoryKindHost)
	_, err := s.Open(t.Context(), []*carrier.Loaded{of("gpus", plugin.MemoryKindCuda, nil)}, plugin.OpenConfig{}, none)
	require.EqualError(t, err, "no transport serves host memory: gpus serves cuda")
	s.Topology.Places[0].Host, s.Topology.Places[1].Host, s.Topology.Places[1].HostID = "a", "b", "another"
	const hosts = "; rank 0 runs on host a and rank 1 on host b, and containers with a network or a host name of their own " +
		"count as hosts"
	_, err = s.Open(t.Context(), []*carrier.Loaded{of("near", plugin.MemoryKindHost, nil)}, plugin.OpenConfig{}, none)
	require.EqualError(t, err, "the ranks run on 2 hosts and no transport reaches other hosts"+hosts)
	s.Plans.Absent["far"] = "no library"
	require.EqualError(t, connect(t.Context(), s),
		"no transport serves host memory: far: no library; near: it reaches ranks of one host only"+hosts)
}

// Without a transport, all ranks return the reasons; a rank whose endpoint cannot be closed returns that too.
func TestNoTransportIsLeft(t *testing.T) {
	errs := eachRank(t, 2, plugin.MemoryKindHost, func(ctx context.Context, s *Set) error {
		e := &endpoint{}
		if s.Rank == 1 {
			e.failure = plugin.Errorf(plugin.System, "it sticks")
		}
		if err := openAll(ctx, s, of("one", plugin.MemoryKindHost, given(e, nil))); err != nil {
			return err
		}
		s.Plans.Absent["one"], s.Plans.Absent["other"] = "rank 0 cannot use it", "it is far away"
		return connect(ctx, s)
	})
	const want = "no transport serves host memory: one: rank 0 cannot use it; other: it is far away"
	require.EqualError(t, errs[0], want)
	require.EqualError(t, errs[1], want+"\nclosing transport one: it sticks")
	require.ErrorIs(t, errs[1], plugin.Unsupported)
}

// Places in the executor's table are alike on all ranks, whatever one of them cannot open.
func TestPlacesAreAlikeOnAllRanks(t *testing.T) {
	var places [2]uint32
	for rank, failure := range []error{nil, plugin.Errorf(plugin.Unsupported, "not here")} {
		s := aSet(rank, 2, plugin.MemoryKindHost)
		s.Optional = true
		_, err := s.Open(t.Context(), []*carrier.Loaded{of("one", plugin.MemoryKindHost, given(&endpoint{}, failure)),
			of("two", plugin.MemoryKindHost, given(&endpoint{}, nil))}, plugin.OpenConfig{}, none)
		require.NoError(t, err)
		places[rank] = s.List[len(s.List)-1].Base
	}
	require.Equal(t, [2]uint32{plugin.MaxRegions, plugin.MaxRegions}, places)
}
