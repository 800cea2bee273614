package process

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// Deadlines of calls that have no context of the caller's.
const (
	supportsTimeout = 5 * time.Second
	closeTimeout    = 5 * time.Second
	settleTimeout   = time.Second // at most, for an endpoint to become free after a call was given up
	deathLag        = time.Second // between a lost connection and the process's end
)

// transport is the plugin.Transport behind a Client.
type transport struct{ client *Client }

func (t transport) Info() plugin.Info { return t.client.info }

// Supports is like Ask, within supportsTimeout. If it fails, it returns no algorithms and
// the error as the reason.
func (t transport) Supports(r plugin.Request) plugin.Support {
	ctx, cancel := context.WithTimeout(context.Background(), supportsTimeout)
	defer cancel()
	s, err := t.Ask(ctx, r)
	if err != nil {
		t.client.config.Logger.Warn("a plugin's result of Supports is invalid", "collective", r.Collective.String(), "error",
			err)
		return plugin.Support{Reason: plugin.Clip(err.Error())}
	}
	return s
}

// Ask asks the plugin once for each request; a transport's result for a request never
// changes. A missing result, or one that breaks the contract, is an error. A plugin that
// does not respond before ctx's deadline, nor when it is asked again, is stuck, because the
// result depends on the request only: it is killed.
func (t transport) Ask(ctx context.Context, r plugin.Request) (plugin.Support, error) {
	c := t.client
	r.Rank = 0 // which Supports must not look at
	if s, ok := c.supports.get(r); ok {
		return s, nil
	}
	begun, what := time.Now(), "supports "+r.Collective.String()
	operation := c.info.Name + ": " + what
	if err := ctx.Err(); err != nil {
		return plugin.Support{}, named(operation, err) // the plugin has had no time to reply
	}
	var s plugin.Support
	ask := func(ctx context.Context) (*proto.SupportsReply, error) {
		return c.rpc.Supports(ctx, &proto.SupportsRequest{Request: proto.FromRequest(r)})
	}
	err := c.call(ctx, operation, func(ctx context.Context) error {
		reply, err := ask(ctx)
		if err != nil {
			return err
		}
		if s, err = proto.ToSupport(reply); err != nil {
			return err
		}
		return s.Validate()
	})
	again := func(ctx context.Context) error { _, err := ask(ctx); return err }
	if since := time.Since(begun); noReply(err) && !c.responds(since, again) {
		err = named(operation, c.stuck(what, since))
	}
	if err != nil {
		return plugin.Support{}, err
	}
	c.supports.put(r, s)
	return s, nil
}

// supportCache remembers results. It is emptied when it is full, which keeps
// it bounded whatever sizes a job uses.
type supportCache struct {
	mu    sync.RWMutex
	known map[plugin.Request]plugin.Support
}

const maxSupports = 4096

func (s *supportCache) get(r plugin.Request) (plugin.Support, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.known[r]
	return a, ok
}

func (s *supportCache) put(r plugin.Request, a plugin.Support) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSupports {
		s.known = map[plugin.Request]plugin.Support{}
	}
	s.known[r] = a
}

// Open opens an endpoint in the plugin and fetches its regions, with their
// descriptors, and its images.
func (t transport) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	c := t.client
	e := &endpoint{client: c, id: c.endpoints.Add(1), config: config, buffers: map[uint32]plugin.Region{}}
	c.arrivals.expect(e.id)
	err := e.call(ctx, "open", func(ctx context.Context) error {
		reply, err := c.rpc.Open(ctx, proto.FromOpenConfig(e.id, config))
		if err != nil {
			e.refused = refusal(err)
			return err
		}
		if n := len(reply.GetRegions()); n > plugin.MaxRegions {
			return plugin.Errorf(plugin.Protocol, "it publishes %d regions, want at most %d", n, plugin.MaxRegions)
		}
		for i, m := range reply.GetRegions() {
			if id := m.GetId(); id != uint32(i) { // before its descriptor is waited for
				return plugin.Errorf(plugin.Protocol, "region %d has id %d", i, id)
			}
			r, err := e.receive(ctx, m)
			if err != nil {
				return err
			}
			e.regions = append(e.regions, r)
		}
		if err := check.Regions(e.regions, c.info.Features); err != nil {
			return err
		}
		e.images, err = c.images.of(reply.GetImages(), func() ([]plugin.Image, error) {
			m, err := c.rpc.Images(ctx, &proto.ImagesRequest{Endpoint: e.id},
				grpc.MaxCallRecvMsgSize(check.MaxImageBytes+maxMessage))
			if err != nil {
				return nil, err
			}
			images := proto.ToImages(m)
			return images, check.Images(images)
		})
		return err
	})
	if err != nil {
		e.abandon()
		return nil, err
	}
	return e, nil
}
