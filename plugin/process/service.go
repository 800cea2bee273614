package process

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// service implements the RPC service with a transport's methods.
type service struct {
	proto.UnimplementedTransportServer
	transport plugin.Transport
	conn      *net.UnixConn // where descriptors go
	images    digests

	mu        sync.Mutex
	endpoints map[uint64]*served
}

// served is one endpoint. Its lock ensures that methods are called one at a time, as
// the contract says, whatever the host does.
type served struct {
	mu       sync.Mutex
	endpoint plugin.Endpoint // nil before it is opened
	closed   bool

	aborting sync.Mutex     // held by Abort; taken after mu
	aborter  plugin.Aborter // nil: not open, or it has no Abort
	abortErr error          // a panic in Abort, which Close reports
}

func newService(t plugin.Transport, conn *net.UnixConn) *service {
	return &service{transport: t, conn: conn, endpoints: map[uint64]*served{}}
}

// slot returns the endpoint of a number, made if it is new: Open and the Close that
// gives it up may arrive in either order.
func (s *service) slot(id uint64) *served {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endpoints[id]
	if e == nil {
		e = &served{}
		s.endpoints[id] = e
	}
	return e
}

// with calls f on an open endpoint.
func (s *service) with(id uint64, f func(plugin.Endpoint) error) error {
	s.mu.Lock()
	e := s.endpoints[id]
	s.mu.Unlock()
	if e == nil {
		return toRPC(plugin.Errorf(plugin.Closed, "endpoint %d is not open", id))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.endpoint == nil {
		return toRPC(plugin.Errorf(plugin.Closed, "endpoint %d is not open", id))
	}
	return toRPC(f(e.endpoint))
}

func (s *service) Info(context.Context, *proto.InfoRequest) (*proto.InfoReply, error) {
	i := s.transport.Info()
	if err := i.Validate(); err != nil { // of a text that is not UTF-8 gRPC would not say which
		return nil, toRPC(err)
	}
	return proto.FromInfo(i), nil
}

func (s *service) Supports(_ context.Context, m *proto.SupportsRequest) (*proto.SupportsReply, error) {
	support := s.transport.Supports(proto.ToRequest(m.GetRequest()))
	if err := support.Validate(); err != nil {
		return nil, toRPC(err)
	}
	return proto.FromSupport(support), nil
}

func (s *service) Open(ctx context.Context, m *proto.OpenRequest) (*proto.OpenReply, error) {
	e := s.slot(m.GetEndpoint())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		s.remove(m.GetEndpoint())
		return nil, toRPC(plugin.Errorf(plugin.Closed, "endpoint %d was closed before it was open", m.GetEndpoint()))
	}
	if e.endpoint != nil {
		return nil, toRPC(plugin.Errorf(plugin.InvalidArgument, "endpoint %d is open already", m.GetEndpoint()))
	}
	opened := false
	defer func() {
		if !opened { // failed, or panicked
			s.remove(m.GetEndpoint())
		}
	}()
	endpoint, err := plugin.Opened(s.transport.Open(ctx, proto.ToOpenConfig(m)))
	if err != nil {
		return nil, toRPC(err)
	}
	reply := &proto.OpenReply{Images: s.images.digestOf(endpoint.Images())}
	for _, r := range endpoint.Regions() {
		if err := s.pass(m.GetEndpoint(), r); err != nil {
			_ = endpoint.Close()
			return nil, toRPC(err)
		}
		reply.Regions = append(reply.Regions, proto.FromRegion(r))
	}
	e.endpoint, opened = endpoint, true
	e.aborting.Lock()
	e.aborter, _ = endpoint.(plugin.Aborter)
	e.aborting.Unlock()
	return reply, nil
}

// pass sends a region's descriptor ahead of the message that describes it.
func (s *service) pass(endpoint uint64, r plugin.Region) error {
	if r.Handle.FD < 0 {
		return nil
	}
	return sendDescriptor(s.conn, endpoint, r.ID, r.Handle.FD)
}

func (s *service) Images(_ context.Context, m *proto.ImagesRequest) (reply *proto.ImagesReply, err error) {
	err = s.with(m.GetEndpoint(), func(e plugin.Endpoint) error {
		reply = proto.FromImages(e.Images())
		return nil
	})
	return reply, err
}

func (s *service) Allocate(ctx context.Context, m *proto.AllocateRequest) (reply *proto.AllocateReply, err error) {
	err = s.with(m.GetEndpoint(), func(e plugin.Endpoint) error {
		r, err := e.Allocate(ctx, m.GetId(), m.GetBytes())
		if err != nil {
			return err
		}
		if err := s.pass(m.GetEndpoint(), r); err != nil {
			_ = e.Free(context.WithoutCancel(ctx), m.GetId()) // the caller has given up, so it was not passed
			return err
		}
		reply = &proto.AllocateReply{Region: proto.FromRegion(r)}
		return nil
	})
	return reply, err
}

func (s *service) Free(ctx context.Context, m *proto.FreeRequest) (*proto.FreeReply, error) {
	err := s.with(m.GetEndpoint(), func(e plugin.Endpoint) error { return e.Free(ctx, m.GetId()) })
	return &proto.FreeReply{}, err
}

func (s *service) Prepare(ctx context.Context, m *proto.PrepareRequest) (reply *proto.PrepareReply, err error) {
	err = s.with(m.GetEndpoint(), func(e plugin.Endpoint) error {
		p, err := e.Prepare(ctx, proto.ToRequest(m.GetRequest()), m.GetAlgorithm())
		if err != nil {
			return err
		}
		converted, err := proto.FromPlan(p)
		if err != nil {
			return err
		}
		reply = &proto.PrepareReply{Plan: converted}
		return nil
	})
	return reply, err
}

// exchange calls f on an open endpoint that exchanges bytes.
func (s *service) exchange(id uint64, f func(plugin.Exchanger) error) error {
	return s.with(id, func(e plugin.Endpoint) error {
		x, ok := e.(plugin.Exchanger)
		if !ok {
			return plugin.Errorf(plugin.Unsupported, "the endpoint exchanges nothing: it has no methods Publish and Connect")
		}
		return f(x)
	})
}

func (s *service) Publish(ctx context.Context, m *proto.PublishRequest) (reply *proto.PublishReply, err error) {
	err = s.exchange(m.GetEndpoint(), func(e plugin.Exchanger) error {
		published, err := e.Publish(ctx, proto.ToExchange(m.GetExchange()))
		reply = &proto.PublishReply{Published: published}
		return err
	})
	return reply, err
}

func (s *service) Connect(ctx context.Context, m *proto.ConnectRequest) (*proto.ConnectReply, error) {
	err := s.exchange(m.GetEndpoint(), func(e plugin.Exchanger) error {
		return e.Connect(ctx, proto.ToExchange(m.GetExchange()), m.GetPublished())
	})
	return &proto.ConnectReply{}, err
}

// Abort does not wait for the calls on the endpoint, one of which it may be to end.
func (s *service) Abort(_ context.Context, m *proto.AbortRequest) (*proto.AbortReply, error) {
	s.mu.Lock()
	e := s.endpoints[m.GetEndpoint()]
	s.mu.Unlock()
	if e == nil {
		return &proto.AbortReply{}, nil
	}
	e.aborting.Lock()
	defer e.aborting.Unlock()
	defer func() {
		if p := recover(); p != nil {
			e.abortErr = plugin.Errorf(plugin.Internal, "the transport panicked in Abort: %v", p)
			panic(p) // to recoverPanics, which logs it
		}
	}()
	if e.aborter != nil {
		e.aborter.Abort(m.GetReason())
	}
	return &proto.AbortReply{}, nil
}

// Close of an endpoint that is not open yet keeps it from being opened.
func (s *service) Close(_ context.Context, m *proto.CloseRequest) (*proto.CloseReply, error) {
	e := s.slot(m.GetEndpoint())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.endpoint == nil {
		return &proto.CloseReply{}, nil
	}
	s.remove(m.GetEndpoint())
	e.aborting.Lock()
	e.aborter = nil
	failed := e.abortErr
	e.aborting.Unlock()
	return &proto.CloseReply{}, toRPC(errors.Join(failed, e.endpoint.Close()))
}

func (s *service) remove(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.endpoints, id)
}

// closeAll closes what the host left open. An endpoint that is busy is left to
// the end of the process.
func (s *service) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.endpoints {
		if e.mu.TryLock() {
			if e.endpoint != nil && !e.closed {
				_ = e.endpoint.Close()
			}
			e.mu.Unlock()
		}
	}
}
