package process

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// endpoint is the host's end of an endpoint in the plugin's process. It owns
// the descriptors of its regions, so they stay valid when the plugin dies.
type endpoint struct {
	client  *Client
	id      uint64
	config  plugin.OpenConfig
	regions []plugin.Region
	images  []plugin.Image
	buffers map[uint32]plugin.Region
	refused bool // the transport itself said that there is no endpoint
	closed  bool
}

func (e *endpoint) operation(name string) string {
	return fmt.Sprintf("%s: %s on rank %d", e.client.info.Name, name, e.config.Rank)
}

func (e *endpoint) call(ctx context.Context, name string, f func(context.Context) error) error {
	if e.closed {
		return plugin.Errorf(plugin.Closed, "%s: the endpoint is closed", e.operation(name))
	}
	if err := ctx.Err(); err != nil {
		return named(e.operation(name), err) // the plugin has had no time to reply
	}
	begun := time.Now()
	err := e.client.call(ctx, e.operation(name), f)
	if since := time.Since(begun); noReply(err) && (name == "close" || !e.responds(since)) {
		return named(e.operation(name), e.client.stuck(name, since))
	}
	return err
}

// responds reports whether the endpoint is ready for another call after one was given up
// at its deadline. A transport that watches its context is; one that is stuck still holds
// the endpoint.
func (e *endpoint) responds(since time.Duration) bool {
	return e.client.responds(since, func(ctx context.Context) error {
		_, err := e.client.rpc.Images(ctx, &proto.ImagesRequest{Endpoint: e.id})
		return err
	})
}

// receive makes a region of its message and the descriptor that came apart.
func (e *endpoint) receive(ctx context.Context, m *proto.Region) (plugin.Region, error) {
	r, err := proto.ToRegion(m)
	if err != nil || !m.GetHandle().GetHasFd() {
		return r, err
	}
	if r.Handle.FD, err = e.client.arrivals.take(ctx, e.id, r.ID); err != nil {
		return r, err
	}
	if err := checkDescriptor(r); err != nil {
		unix.Close(r.Handle.FD)
		return r, err
	}
	return r, nil
}

// checkDescriptor makes sure that mapping the region cannot fault the host: a
// memfd is as long as the handle says, and stays so.
func checkDescriptor(r plugin.Region) error {
	if r.Handle.Kind != plugin.HandleKindMemfd {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(r.Handle.FD, &st); err != nil {
		return plugin.Errorf(plugin.System, "region %d: fstat: %w", r.ID, err)
	}
	seals, err := unix.FcntlInt(uintptr(r.Handle.FD), unix.F_GET_SEALS, 0)
	if err != nil {
		return plugin.Errorf(plugin.Protocol, "region %d: its descriptor is not a memfd: %w", r.ID, err)
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		if _, err := unix.FcntlInt(uintptr(r.Handle.FD), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
			return plugin.Errorf(plugin.Protocol, "region %d: its memfd cannot be sealed against shrinking (create it with MFD_ALLOW_SEALING): %w", r.ID, err)
		}
	}
	if err := unix.Fstat(r.Handle.FD, &st); err != nil { // again, now that it cannot shrink
		return plugin.Errorf(plugin.System, "region %d: fstat: %w", r.ID, err)
	}
	if st.Size < r.Handle.Bytes {
		return plugin.Errorf(plugin.Protocol, "region %d: its memfd has %d bytes, its handle says %d", r.ID, st.Size,
			r.Handle.Bytes)
	}
	return nil
}

func (e *endpoint) Regions() []plugin.Region { return e.regions }

func (e *endpoint) Images() []plugin.Image { return e.images }

// Allocate has the plugin allocate a buffer; its descriptor becomes this
// endpoint's.
func (e *endpoint) Allocate(ctx context.Context, id uint32, bytes int64) (r plugin.Region, err error) {
	name := fmt.Sprintf("allocate buffer %d of %d bytes", id, bytes)
	if _, taken := e.buffers[id]; taken || int64(id) < int64(len(e.regions)) {
		return r, plugin.Errorf(plugin.InvalidArgument, "%s: the id is taken", e.operation(name))
	}
	e.client.arrivals.discard(e.id, id) // of an earlier buffer, which would be taken for this one
	err = e.call(ctx, name, func(ctx context.Context) error {
		reply, err := e.client.rpc.Allocate(ctx, &proto.AllocateRequest{Endpoint: e.id, Id: id, Bytes: bytes})
		if err != nil {
			return err
		}
		if got := reply.GetRegion().GetId(); got != id {
			return plugin.Errorf(plugin.Protocol, "asked for buffer %d, got region %d", id, got)
		}
		if r, err = e.receive(ctx, reply.GetRegion()); err != nil {
			return err
		}
		if err := check.Buffer(r, id, bytes); err != nil {
			closeRegion(r)
			return err
		}
		return nil
	})
	if err != nil {
		// Whether the plugin has made it is unknown; it must not keep it.
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = e.call(ctx, "free", func(ctx context.Context) error {
			_, err := e.client.rpc.Free(ctx, &proto.FreeRequest{Endpoint: e.id, Id: id})
			return err
		})
		e.client.arrivals.discard(e.id, id) // which would keep the memory
		return plugin.Region{}, err
	}
	e.buffers[id] = r
	return r, nil
}

// Free releases a buffer, here and in the plugin.
func (e *endpoint) Free(ctx context.Context, id uint32) error {
	name := fmt.Sprintf("free buffer %d", id)
	r, ok := e.buffers[id]
	if !ok {
		return plugin.Errorf(plugin.InvalidArgument, "%s: there is no such buffer", e.operation(name))
	}
	delete(e.buffers, id)
	closeRegion(r)
	return e.call(ctx, name, func(ctx context.Context) error {
		_, err := e.client.rpc.Free(ctx, &proto.FreeRequest{Endpoint: e.id, Id: id})
		return err
	})
}

// Prepare fetches and checks a plan.
func (e *endpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (p *plugin.Plan, err error) {
	name := fmt.Sprintf("prepare %s/%s", req.Collective, clip(algorithm, plugin.MaxName))
	err = e.call(ctx, name, func(ctx context.Context) error {
		reply, err := e.client.rpc.Prepare(ctx, &proto.PrepareRequest{Endpoint: e.id, Request: proto.FromRequest(req),
			Algorithm: algorithm})
		if err != nil {
			return err
		}
		if p, err = proto.ToPlan(reply.GetPlan()); err != nil {
			return err
		}
		return check.Plan(p, req, algorithm)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Publish fetches what the plugin gives to every rank.
func (e *endpoint) Publish(ctx context.Context, x plugin.Exchange) (published []byte, err error) {
	err = e.call(ctx, "publish"+purpose(x), func(ctx context.Context) error {
		reply, err := e.client.rpc.Publish(ctx, &proto.PublishRequest{Endpoint: e.id, Exchange: proto.FromExchange(x)})
		if err != nil {
			return err
		}
		published = reply.GetPublished()
		return check.Published(published)
	})
	return published, err
}

// Connect gives the plugin what all ranks have published.
func (e *endpoint) Connect(ctx context.Context, x plugin.Exchange, published [][]byte) error {
	return e.call(ctx, "connect"+purpose(x), func(ctx context.Context) error {
		_, err := e.client.rpc.Connect(ctx, &proto.ConnectRequest{Endpoint: e.id, Exchange: proto.FromExchange(x),
			Published: published})
		return err
	})
}

// purpose says which plan an exchange is for.
func purpose(x plugin.Exchange) string {
	if x.Algorithm == "" {
		return ""
	}
	return fmt.Sprintf(" for %s/%s", x.Request.Collective, clip(x.Algorithm, plugin.MaxName))
}

// Abort tells the plugin that the communicator has failed. Close reports what went wrong.
func (e *endpoint) Abort(reason string) {
	ctx, cancel := context.WithTimeout(e.client.life, settleTimeout)
	defer cancel()
	_, _ = e.client.rpc.Abort(ctx, &proto.AbortRequest{Endpoint: e.id, Reason: plugin.Clip(reason)})
}

// Close closes the endpoint in the plugin and releases its descriptors here,
// whether the plugin replies or not. An endpoint that outlives a plugin which the host
// has ended, because graphs held it, ended with the plugin.
func (e *endpoint) Close() error {
	if e.closed {
		return nil
	}
	if plugin.CodeOf(e.client.over()) == plugin.Closed {
		e.release()
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := e.call(ctx, "close", func(ctx context.Context) error {
		_, err := e.client.rpc.Close(ctx, &proto.CloseRequest{Endpoint: e.id})
		return err
	})
	e.release()
	return err
}

// abandon closes an endpoint whose opening failed; the plugin may have opened
// it all the same.
func (e *endpoint) abandon() {
	if !e.refused && e.client.Err() == nil {
		_ = e.Close()
	}
	e.release()
}

func (e *endpoint) release() {
	e.closed = true
	e.client.arrivals.forget(e.id)
	for _, r := range e.regions {
		closeRegion(r)
	}
	for _, r := range e.buffers {
		closeRegion(r)
	}
	e.regions, e.buffers = nil, nil
}

func closeRegion(r plugin.Region) {
	if r.Handle.FD >= 0 {
		unix.Close(r.Handle.FD)
	}
}
