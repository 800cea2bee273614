package proto

import (
	"errors"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
)

// through sends a message through its encoding.
func through[M protobuf.Message](t *testing.T, from, to M) M {
	t.Helper()
	b, err := protobuf.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, protobuf.Unmarshal(b, to))
	return to
}

var request = plugin.Request{
	Collective: plugin.AllReduce, DType: plugin.Float8E5m2, Op: plugin.OpPremulSum, Bytes: math.MaxInt64,
	World: 3, Hosts: 2, Memory: plugin.MemoryKindCuda, Rank: 2, PeerRead: true, NVLink: true, Symmetric: true,
	DeviceCounts: true,
}

func everyFieldPlan(t testing.TB) *plugin.Plan {
	p, err := probe.Plan(request)
	require.NoError(t, err)
	p.Consts = append(p.Consts, math.MinInt64, math.MaxInt64, -1)
	p.Kernels = []plugin.Kernel{{Image: "i", Name: "n", Grid: [3]uint16{1, 2, 3}, Block: [3]uint16{4, 5, 6},
		Shared: plugin.None, FirstArg: 1, CountArgs: 1}}
	p.Args = []plugin.Arg{{Ref: 1, Value: plugin.None, Bytes: 8}, {Ref: plugin.None, Value: 9, Bytes: 4}}
	return p
}

func TestEverythingSurvivesTheWayThere(t *testing.T) {
	require.Equal(t, request, ToRequest(through(t, FromRequest(request), &Request{})))

	info := plugin.Info{Name: "n", Version: "v", Features: 1<<63 | 5, Memory: []plugin.MemoryKind{0, 1}, Doc: "d",
		MaxWorld: 7}
	m := through(t, FromInfo(info), &InfoReply{})
	require.Equal(t, info, ToInfo(m))
	require.Equal(t, uint32(plugin.VersionMajor), m.VersionMajor)

	support := plugin.Support{Reason: "r", Algorithms: []plugin.Algorithm{{Name: "a", MinBytes: 1, MaxBytes: 2,
		Latency: 3.5, Bandwidth: 4.5}}}
	s, err := ToSupport(through(t, FromSupport(support), &SupportsReply{}))
	require.NoError(t, err)
	require.Equal(t, support, s)

	config := plugin.OpenConfig{Communicator: math.MaxUint64, Rank: 1, World: 2, Memory: 1, Device: -1,
		Options: map[string]string{"a": "b"}}
	open := through(t, FromOpenConfig(77, config), &OpenRequest{})
	require.Equal(t, config, ToOpenConfig(open))
	require.Equal(t, uint64(77), open.Endpoint)

	region := plugin.Region{ID: 3, Role: 2, Memory: 1, Bytes: 4,
		Handle: plugin.Handle{Kind: 3, Generation: 5, Offset: 6, Bytes: 7, Data: []byte("x"), FD: 8}}
	rm := through(t, FromRegion(region), &Region{})
	require.True(t, rm.GetHandle().GetHasFd())
	r, err := ToRegion(rm)
	require.NoError(t, err)
	region.Handle.FD = -1
	require.Equal(t, region, r)

	images := []plugin.Image{{Name: "a", Data: []byte{1, 2}}}
	require.Equal(t, images, ToImages(through(t, FromImages(images), &ImagesReply{})))

	e := ToError(through(t, FromError(&plugin.Error{Code: plugin.Device, Rank: 5, Message: "m"}), &Error{}))
	require.Equal(t, &plugin.Error{Code: plugin.Device, Rank: 5, Message: "m"}, e)
	require.Equal(t, plugin.Internal, ToError(FromError(errors.New("plain"))).Code)
	for _, code := range []int32{0, -1, 99} {
		require.Equal(t, plugin.Internal, ToError(&Error{Code: code, Rank: 1 << 30}).Code, "an error is never a success")
	}

	plan := everyFieldPlan(t)
	pm, err := FromPlan(plan)
	require.NoError(t, err)
	got, err := ToPlan(through(t, pm, &Plan{}))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(plan, got, cmpopts.EquateEmpty()))
}

// A world size that breaks the contract is named as the transport gave it.
func TestAWorldBelowZeroKeepsItsSign(t *testing.T) {
	require.Equal(t, -3, ToInfo(FromInfo(plugin.Info{MaxWorld: -3})).MaxWorld)
}

func TestLargestPlanFitsAMessage(t *testing.T) {
	p := &plugin.Plan{Algorithm: "a", World: 1, Consts: make([]int64, plugin.MaxRegisters),
		Refs: make([]plugin.Ref, plugin.MaxRefs), Steps: make([]plugin.Step, plugin.MaxSteps)}
	for i := range p.Consts {
		p.Consts[i] = math.MinInt64
	}
	for i := range p.Refs {
		p.Refs[i] = plugin.Ref{Space: 2, Region: plugin.None, Rank: plugin.None, Offset: plugin.None, Scale: plugin.None}
	}
	for i := range p.Steps {
		p.Steps[i] = plugin.Step{Kind: 9, Alu: 9, Dst: plugin.None, A: plugin.None, B: plugin.None, C: plugin.None,
			N: plugin.None}
	}
	m, err := FromPlan(p)
	require.NoError(t, err)
	require.Less(t, protobuf.Size(m), 4<<20)
}

func TestPlansThatDoNotFitAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Plan){
		"step 1: operand 65536 does not fit 16 bits":      func(p *Plan) { p.Steps[1].A = 1 << 16 },
		"ref 0: operand 4294967295 does not fit 16 bits":  func(p *Plan) { p.Refs[0].Offset = math.MaxUint32 },
		"32769 steps, want at most 32768":                 func(p *Plan) { p.Steps = make([]*Step, 32769) },
		"32769 refs, want at most 32768":                  func(p *Plan) { p.Refs = make([]*Ref, 32769) },
		"32769 constants, want at most 32768":             func(p *Plan) { p.Consts = make([]int64, 32769) },
		"2049 tracks, want at most 2048":                  func(p *Plan) { p.Tracks = make([]*Track, 2049) },
		"4294967295 temporaries, at most 32768":           func(p *Plan) { p.Temps = math.MaxUint32 },
		"100000 bytes of algorithm name, want at most 64": func(p *Plan) { p.Algorithm = strings.Repeat("x", 100000) },
		"kernel 0: 2 dimensions, want 3":                  func(p *Plan) { p.Kernels[0].Grid = p.Kernels[0].Grid[:2] },
		"argument 1: operand 70000 does not fit 16 bits":  func(p *Plan) { p.Args[1].Bytes = 70000 },
		"track 0: operand 65537 does not fit 16 bits":     func(p *Plan) { p.Tracks[0].Count = 65537 },
	} {
		m, err := FromPlan(everyFieldPlan(t))
		require.NoError(t, err)
		change(m)
		_, err = ToPlan(m)
		require.ErrorIs(t, err, plugin.Protocol, want)
		require.ErrorContains(t, err, want)
	}
	_, err := ToPlan(nil)
	require.ErrorIs(t, err, plugin.Protocol)
	_, err = ToPlan(&Plan{Steps: []*Step{nil}, Refs: []*Ref{nil}, Tracks: []*Track{nil}, Args: []*Arg{nil}})
	require.NoError(t, err, "absent messages are zero")
	_, err = FromPlan(&plugin.Plan{Natives: []plugin.Native{{Function: 1}}})
	require.ErrorContains(t, err, "native functions")
}

func FuzzPlan(f *testing.F) {
	m, err := FromPlan(everyFieldPlan(f))
	require.NoError(f, err)
	b, err := protobuf.Marshal(m)
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Plan
		if protobuf.Unmarshal(b, &m) != nil {
			return
		}
		p, err := ToPlan(&m)
		if err != nil {
			return
		}
		if check.Plan(p, request, p.Algorithm) != nil {
			return
		}
		again, err := FromPlan(p)
		if err != nil {
			t.Fatalf("a valid plan cannot be sent on: %v", err)
		}
		q, err := ToPlan(again)
		if err != nil || !cmp.Equal(p, q, cmpopts.EquateEmpty()) {
			t.Fatalf("a plan changed on its way: %v\n%s", err, cmp.Diff(p, q))
		}
	})
}

func FuzzSupports(f *testing.F) {
	b, err := protobuf.Marshal(FromSupport(probe.Transport{}.Supports(request)))
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m SupportsReply
		if protobuf.Unmarshal(b, &m) != nil {
			return
		}
		s, err := ToSupport(&m)
		if err != nil || s.Validate() != nil {
			return
		}
		for _, a := range s.Algorithms {
			if math.IsNaN(a.Latency+a.Bandwidth) || a.Bandwidth <= 0 || a.MinBytes < 0 || len(a.Name) > plugin.MaxName {
				t.Fatalf("accepted %+v", a)
			}
		}
	})
}

func FuzzRegions(f *testing.F) {
	b, err := protobuf.Marshal(&OpenReply{Regions: []*Region{FromRegion(plugin.Region{Bytes: 1,
		Handle: plugin.Handle{Kind: 1, Generation: 1, Bytes: 1}})}})
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m OpenReply
		if protobuf.Unmarshal(b, &m) != nil {
			return
		}
		var regions []plugin.Region
		for _, r := range m.Regions {
			c, err := ToRegion(r)
			if err != nil {
				return
			}
			c.Handle.FD = 3
			regions = append(regions, c)
		}
		if check.Regions(regions, plugin.FeatureMemory) != nil {
			return
		}
		for _, r := range regions {
			h := r.Handle
			if h.Kind != plugin.HandleKindNone && (h.Offset < 0 || r.Bytes <= 0 || h.Offset+r.Bytes > h.Bytes ||
				h.Offset+r.Bytes < 0) {
				t.Fatalf("accepted %+v", r)
			}
		}
	})
}

// The contract is said three times; nothing may be in one place only.
func TestMessagesHaveTheFieldsOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../shunt_transport.h")
	require.NoError(t, err)
	messages, err := os.ReadFile("transport.proto")
	require.NoError(t, err)
	for c, m := range map[string]string{
		"shunt_request": "Request", "shunt_algorithm": "Algorithm", "shunt_handle": "Handle", "shunt_region": "Region",
		"shunt_ref": "Ref", "shunt_step": "Step", "shunt_track": "Track", "shunt_kernel": "Kernel", "shunt_arg": "Arg",
		"shunt_image": "Image",
	} {
		inHeader := fields(t, string(header), `typedef struct `+c+` \{([^}]*)\}`, `(\w+)(?:\[\w+\])?;`)
		inProto := fields(t, string(messages), `message `+m+` \{([^}]*)\}`, `(\w+) = \d+;`)
		for i, name := range inProto {
			if name == "has_fd" {
				inProto[i] = "fd"
			}
		}
		require.ElementsMatch(t, inHeader, inProto, c)
	}
}

// comment finds comments of C and of protobuf.
var comment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// fields lists the names in a structure, without those that only C needs.
func fields(t *testing.T, text, structure, field string) (names []string) {
	t.Helper()
	body := regexp.MustCompile(structure).FindStringSubmatch(text)
	require.NotNil(t, body, structure)
	declared := comment.ReplaceAllString(body[1], "")
	for _, f := range regexp.MustCompile(field).FindAllStringSubmatch(declared, -1) {
		switch f[1] {
		case "struct_size", "reserved", "data_bytes":
		case "bytes":
			if strings.Contains(structure, "image") {
				continue
			}
			fallthrough
		default:
			names = append(names, f[1])
		}
	}
	return names
}
