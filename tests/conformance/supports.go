package conformance

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
)

// broken is a result of Supports, or of Open, that breaks the contract.
type broken struct {
	Method  string
	Request string
	Detail  string
}

// brokenResults asks a transport everything that calls can ask, and checks that it returns
// within the limits, alike on every rank and alike when asked again. Of each collective it
// reports the first few.
func brokenResults(ctx context.Context, l *carrier.Loaded, world int, memory plugin.MemoryKind) []broken {
	const most = 3 // of a collective
	var list []broken
	for _, collective := range plugin.Collectives() {
		found := 0
		for _, req := range requests(collective, l.Info.Features, world, memory) {
			detail := brokenResult(ctx, l, req)
			if detail == "" {
				continue
			}
			list = append(list, broken{"supports", fmt.Sprintf("%s of %s, op %s, world %d, %d hosts, peer_read %v, symmetric %v, device_counts %v",
				req.Collective, req.DType, req.Op, req.World, req.Hosts, req.PeerRead, req.Symmetric, req.DeviceCounts), detail})
			if found++; found == most || ctx.Err() != nil {
				break
			}
		}
	}
	return list
}

// brokenResult returns the error in the result of one request; "" if there is none.
func brokenResult(ctx context.Context, l *carrier.Loaded, req plugin.Request) string {
	first, err := l.Ask(ctx, req)
	if err != nil {
		return err.Error()
	}
	for what, other := range map[string]int{"asked again": 0, "asked by the last rank": req.World - 1} {
		req.Rank = other
		second, err := l.Ask(ctx, req)
		if err != nil {
			return what + ": " + err.Error()
		}
		if !reflect.DeepEqual(first, second) {
			return fmt.Sprintf("%s it returns something else: %+v, and then %+v", what, first, second)
		}
	}
	return ""
}

// requests returns the requests about a collective that a transport gets.
func requests(collective plugin.Collective, features plugin.Feature, world int,
	memory plugin.MemoryKind) []plugin.Request {
	ops := []plugin.Op{plugin.OpSum}
	if collective.Reduces() {
		ops = plugin.Ops()
	}
	flags := []plugin.Request{{}, {PeerRead: true}}
	if memory == plugin.MemoryKindCuda {
		flags = []plugin.Request{{}, {Symmetric: true}}
		if collective == plugin.AllToAllV && features&plugin.FeatureDeviceCounts != 0 {
			flags = append(flags, plugin.Request{DeviceCounts: true})
		}
	}
	var list []plugin.Request
	for _, of := range []struct{ world, hosts int }{{world, 1}, {world + 1, 2}, {plugin.MaxWorld, 1}} {
		for _, dtype := range plugin.DTypes() {
			for _, op := range ops {
				for _, req := range flags {
					req.Collective, req.DType, req.Op, req.World, req.Hosts, req.Memory = collective, dtype, op, of.world, of.hosts,
						memory
					list = append(list, req)
				}
			}
		}
	}
	return list
}

// acceptedOptions opens an endpoint with an option that no transport has: a name that a user has misspelt must not pass
// in silence.
func acceptedOptions(ctx context.Context, l *carrier.Loaded, memory plugin.MemoryKind, device int) []broken {
	const unknown = "conformance_unknown"
	config := plugin.OpenConfig{Communicator: math.MaxUint64, World: 1, Memory: memory, Device: -1,
		Options: map[string]string{unknown: "1"}}
	if memory == plugin.MemoryKindCuda {
		config.Device = device
	}
	endpoint, err := l.Transport.Open(ctx, config)
	variable := "SHUNT_" + strings.ToUpper(l.Info.Name+"_"+unknown)
	switch {
	case err == nil:
		return []broken{{"open", "unknown option", fmt.Sprintf("it opens with %s=1, want an error that names %s", variable,
			unknown) + closing(endpoint)}}
	case !strings.Contains(err.Error(), unknown):
		return []broken{{"open", "unknown option", fmt.Sprintf("with %s=1 want an error that names %s, got: %v", variable,
			unknown, err)}}
	}
	return nil
}

// closing returns what is to be added of an endpoint that cannot be closed either.
func closing(endpoint plugin.Endpoint) string {
	if err := endpoint.Close(); err != nil {
		return fmt.Sprintf("; and its end fails: %v", err)
	}
	return ""
}
