package proto

import (
	"errors"

	"github.com/shunt-ccl/shunt/plugin"
)

// FromInfo returns the message that describes a transport, with the contract
// version that this code was built with.
func FromInfo(i plugin.Info) *InfoReply {
	m := &InfoReply{
		Name: i.Name, Version: i.Version, Features: uint64(i.Features), Doc: i.Doc,
		VersionMajor: plugin.VersionMajor, VersionMinor: plugin.VersionMinor, MaxWorld: uint32(i.MaxWorld),
	}
	for _, k := range i.Memory {
		m.Memory = append(m.Memory, uint32(k))
	}
	return m
}

// ToInfo returns the description that a message holds, without its contract version.
func ToInfo(m *InfoReply) plugin.Info {
	i := plugin.Info{
		Name: m.GetName(), Version: m.GetVersion(), Features: plugin.Feature(m.GetFeatures()), Doc: m.GetDoc(),
		MaxWorld: int(int32(m.GetMaxWorld())), // one below 0 is to be reported as that
	}
	for _, k := range m.GetMemory() {
		i.Memory = append(i.Memory, plugin.MemoryKind(k))
	}
	return i
}

// FromRequest returns the message of a request.
func FromRequest(r plugin.Request) *Request {
	return &Request{
		Collective: uint32(r.Collective), Dtype: uint32(r.DType), Op: uint32(r.Op), Bytes: r.Bytes,
		World: int32(r.World), Hosts: int32(r.Hosts), Memory: uint32(r.Memory), Rank: int32(r.Rank), PeerRead: r.PeerRead,
		Symmetric: r.Symmetric, DeviceCounts: r.DeviceCounts, Nvlink: r.NVLink,
	}
}

// ToRequest returns the request that a message holds.
func ToRequest(m *Request) plugin.Request {
	return plugin.Request{
		Collective: plugin.Collective(m.GetCollective()), DType: plugin.DType(m.GetDtype()), Op: plugin.Op(m.GetOp()),
		Bytes: m.GetBytes(), World: int(m.GetWorld()), Hosts: int(m.GetHosts()),
		Memory: plugin.MemoryKind(m.GetMemory()), Rank: int(m.GetRank()), PeerRead: m.GetPeerRead(),
		Symmetric: m.GetSymmetric(), DeviceCounts: m.GetDeviceCounts(), NVLink: m.GetNvlink(),
	}
}

// FromSupport returns the message of a result of Supports.
func FromSupport(s plugin.Support) *SupportsReply {
	m := &SupportsReply{Reason: s.Reason}
	for _, a := range s.Algorithms {
		m.Algorithms = append(m.Algorithms, &Algorithm{
			Name: a.Name, MinBytes: a.MinBytes, MaxBytes: a.MaxBytes, Latency: a.Latency, Bandwidth: a.Bandwidth,
			Numerics: uint32(a.Numerics),
		})
	}
	return m
}

// ToSupport returns the result that a message holds.
func ToSupport(m *SupportsReply) (plugin.Support, error) {
	if err := atMost("algorithms", len(m.GetAlgorithms()), plugin.MaxAlgorithms); err != nil {
		return plugin.Support{}, err
	}
	s := plugin.Support{Reason: m.GetReason()}
	for _, a := range m.GetAlgorithms() {
		s.Algorithms = append(s.Algorithms, plugin.Algorithm{
			Name: a.GetName(), MinBytes: a.GetMinBytes(), MaxBytes: a.GetMaxBytes(), Latency: a.GetLatency(),
			Bandwidth: a.GetBandwidth(), Numerics: plugin.Numerics(a.GetNumerics()),
		})
	}
	return s, nil
}

// FromOpenConfig returns the request that opens the endpoint of the given number.
func FromOpenConfig(endpoint uint64, c plugin.OpenConfig) *OpenRequest {
	return &OpenRequest{
		Endpoint: endpoint, Communicator: c.Communicator, Rank: int32(c.Rank), World: int32(c.World),
		Memory: uint32(c.Memory), Device: int32(c.Device), Options: c.Options,
		MaxSms: uint32(c.MaxSMs),
	}
}

// ToOpenConfig converts the configuration of an endpoint.
func ToOpenConfig(m *OpenRequest) plugin.OpenConfig {
	return plugin.OpenConfig{
		Communicator: m.GetCommunicator(), Rank: int(m.GetRank()), World: int(m.GetWorld()),
		Memory: plugin.MemoryKind(m.GetMemory()), Device: int(m.GetDevice()), Options: m.GetOptions(),
		MaxSMs: int(m.GetMaxSms()),
	}
}

// FromRegion returns the message of a region; its descriptor, if it has one,
// travels apart.
func FromRegion(r plugin.Region) *Region {
	h := r.Handle
	return &Region{
		Id: r.ID, Role: uint32(r.Role), Memory: uint32(r.Memory), Bytes: r.Bytes,
		Handle: &Handle{
			Kind: uint32(h.Kind), Generation: h.Generation, Offset: h.Offset, Bytes: h.Bytes, Data: h.Data, HasFd: h.FD >= 0,
		},
	}
}

// ToRegion returns the region that a message holds. Its FD is -1: the carrier puts
// the descriptor in when the message says that there is one.
func ToRegion(m *Region) (plugin.Region, error) {
	h := m.GetHandle()
	if err := atMost("bytes of handle data", len(h.GetData()), plugin.MaxHandleData); err != nil {
		return plugin.Region{}, err
	}
	return plugin.Region{
		ID: m.GetId(), Role: plugin.RegionRole(m.GetRole()), Memory: plugin.MemoryKind(m.GetMemory()), Bytes: m.GetBytes(),
		Handle: plugin.Handle{
			Kind: plugin.HandleKind(h.GetKind()), Generation: h.GetGeneration(), Offset: h.GetOffset(),
			Bytes: h.GetBytes(), Data: h.GetData(), FD: -1,
		},
	}, nil
}

// FromExchange returns the message of what bytes are exchanged for.
func FromExchange(x plugin.Exchange) *Exchange {
	return &Exchange{Request: FromRequest(x.Request), Algorithm: x.Algorithm}
}

// ToExchange converts the message.
func ToExchange(m *Exchange) plugin.Exchange {
	return plugin.Exchange{Request: ToRequest(m.GetRequest()), Algorithm: m.GetAlgorithm()}
}

// FromImages returns the message of device code.
func FromImages(images []plugin.Image) *ImagesReply {
	m := &ImagesReply{}
	for _, i := range images {
		m.Images = append(m.Images, &Image{Name: i.Name, Data: i.Data})
	}
	return m
}

// ToImages returns the device code that a message holds.
func ToImages(m *ImagesReply) []plugin.Image {
	var images []plugin.Image
	for _, i := range m.GetImages() {
		images = append(images, plugin.Image{Name: i.GetName(), Data: i.GetData()})
	}
	return images
}

// FromError returns the message of an error: its code, the rank where it began and
// its text.
func FromError(err error) *Error {
	m := &Error{Code: int32(plugin.CodeOf(err)), Rank: -1, Message: err.Error()}
	var e *plugin.Error
	if errors.As(err, &e) {
		m.Rank = int32(e.Rank)
	}
	return m
}

// ToError returns the error that a message holds. A code outside the table becomes
// Internal, and OK too: an error is never a success.
func ToError(m *Error) *plugin.Error {
	e := &plugin.Error{Code: plugin.Code(m.GetCode()), Rank: int(m.GetRank()), Message: m.GetMessage()}
	if e.Code <= plugin.OK || e.Code > plugin.Internal {
		e.Code = plugin.Internal
	}
	if e.Rank < -1 || e.Rank >= plugin.MaxWorld {
		e.Rank = -1
	}
	return e
}

func atMost(what string, n, limit int) error {
	if n > limit {
		return plugin.Errorf(plugin.Protocol, "it has %d %s, want at most %d", n, what, limit)
	}
	return nil
}
