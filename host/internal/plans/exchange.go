package plans

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// Endpoints of transports with FeatureExchange publish bytes, and get what all ranks
// have published, when a communicator is made and before a plan is prepared. A round
// is one all-gather over the rendezvous, whatever the number of endpoints and plans;
// it carries this rank's error too, so that no rank connects unless all can.

// exchangeItem names one endpoint's exchange of bytes.
type exchangeItem struct {
	transport *Transport
	exchange  plugin.Exchange
}

// publication is a rank's part in a round of exchange.
type publication struct {
	Choice    choice // of plans, if the round is for them
	Code      plugin.Code
	Message   string
	Published [][]byte // by item
}

// exchanges reports whether a transport's endpoints exchange bytes.
func (a *Transport) exchanges() bool { return a.Features&plugin.FeatureExchange != 0 }

// exchanger returns the endpoint as one that exchanges bytes. Guarded and remote endpoints
// always have the methods, and say themselves that there is nothing behind them.
func (a *Transport) exchanger() (plugin.Exchanger, error) {
	exchanger, ok := a.Endpoint.(plugin.Exchanger)
	if !ok {
		return nil, plugin.Errorf(plugin.Protocol, "transport %s has feature %s and its endpoint no methods Publish and Connect", a.Name, plugin.FeatureExchange)
	}
	return exchanger, nil
}

// ExchangeBytes returns the round that follows the opening of endpoints. Optional transports whose endpoints cannot be
// connected are left out.
func (pl *Planner) ExchangeBytes(ctx context.Context, optional bool) error {
	var items []exchangeItem
	for _, a := range pl.Transports {
		if a.exchanges() {
			items = append(items, exchangeItem{transport: a})
		}
	}
	if len(items) == 0 {
		return nil
	}
	all, err := pl.publications(ctx, "exchange what their transports publish ("+pl.Label+")", publication{}, items)
	if err != nil {
		return err
	}
	failed := map[string]error{}
	for i, item := range items {
		if err := connectItem(ctx, item, i, all); err != nil {
			failed[item.transport.Name] = err
		}
	}
	return pl.LeaveOut(ctx, "connect their endpoints ("+pl.Label+")", failed, optional)
}

// exchangeForPlans runs the round that precedes the preparation of some of a choice's plans. It fails on all ranks
// alike where one has failed before, cannot publish, or chooses other algorithms; that a rank cannot connect is agreed
// on with what follows.
func (pl *Planner) exchangeForPlans(ctx context.Context, key call.Signature, p *prepared, list []int,
	failed error) error {
	var items []exchangeItem
	mine := publication{}
	if failed == nil {
		chosen := p.choice
		for _, i := range list {
			candidate := chosen.Candidates()[i]
			if a := pl.Transports[candidate.Endpoint]; a.exchanges() {
				items = append(items, exchangeItem{a, plugin.Exchange{Request: pl.Request(key),
					Algorithm: candidate.Algorithm.Name}})
			}
		}
		mine.Choice = choice{key.Collective.String() + " of " + key.DType.String(), chosen.String(), chosen.Offers()}
	} else {
		mine.Code, mine.Message = plugin.CodeOf(failed), failed.Error()
	}
	pl.exchanges++
	all, err := pl.publications(ctx, fmt.Sprintf("exchange what their transports publish (%s %d)", pl.Label, pl.exchanges),
		mine, items)
	if err != nil {
		return err
	}
	for i, item := range items {
		if err := connectItem(ctx, item, i, all); err != nil {
			return err
		}
	}
	return nil
}

// exchangesBytes reports whether an endpoint that may serve a collective exchanges bytes, so that a round is due: all
// ranks have the same transports. One-sided operations are served by endpoints that allocate windows.
func (pl *Planner) exchangesBytes(collective plugin.Collective) bool {
	return slices.ContainsFunc(pl.Transports, func(a *Transport) bool {
		return a.exchanges() && (!collective.OneSided() || a.Features&plugin.FeatureBuffers != 0)
	})
}

// publications returns what every rank publishes, by rank and item; mine names the
// items that this rank does not publish.
func (pl *Planner) publications(ctx context.Context, tag string, mine publication, items []exchangeItem) ([][][]byte,
	error) {
	for _, item := range items {
		b, err := item.publish(ctx)
		if err != nil {
			mine.Code, mine.Message = plugin.CodeOf(err), err.Error()
			break
		}
		mine.Published = append(mine.Published, b)
	}
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, plugin.Errorf(plugin.Internal, "%s: %w", tag, err)
	}
	answers, err := pl.Group.AllGather(ctx, tag, payload)
	if err != nil {
		return nil, err
	}
	ranks := make([]publication, len(answers))
	choices := make([]choice, len(answers))
	for rank, answer := range answers {
		if err := json.Unmarshal(answer, &ranks[rank]); err != nil {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
				Message: fmt.Sprintf("rank %d sent a malformed publication: %v", rank, err)}
		}
		choices[rank] = ranks[rank].Choice
	}
	for rank, p := range ranks {
		if p.Code != plugin.OK {
			return nil, &plugin.Error{Code: p.Code, Rank: rank, Message: fmt.Sprintf("rank %d: %s", rank, p.Message)}
		}
	}
	if reason := unlikeChoices(choices); reason != nil {
		return nil, reason
	}
	all := make([][][]byte, len(ranks))
	for rank, p := range ranks {
		if len(p.Published) != len(items) {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank,
				Message: fmt.Sprintf("rank %d published for %d endpoints and plans, want %d", rank, len(p.Published), len(items))}
		}
		all[rank] = p.Published
	}
	return all, nil
}

// publish asks the endpoint for its bytes.
func (i exchangeItem) publish(ctx context.Context) ([]byte, error) {
	exchanger, err := i.transport.exchanger()
	if err != nil {
		return nil, err
	}
	ctx, cancel := TransportTime(ctx)
	defer cancel()
	b, err := exchanger.Publish(ctx, i.exchange)
	if err == nil && len(b) > plugin.MaxPublished {
		err = plugin.Errorf(plugin.Protocol, "it has %d bytes, want at most %d", len(b), plugin.MaxPublished)
	}
	if err != nil {
		return nil, fmt.Errorf("publishing%s: %w", i, err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, nil
}

// connectItem hands the endpoint of item i what all ranks have published for it.
func connectItem(ctx context.Context, item exchangeItem, i int, all [][][]byte) error {
	ctx, cancel := TransportTime(ctx)
	defer cancel()
	exchanger, err := item.transport.exchanger()
	if err != nil {
		return err
	}
	published := make([][]byte, len(all))
	for rank := range all {
		published[rank] = all[rank][i]
	}
	if err := exchanger.Connect(ctx, item.exchange, published); err != nil {
		return fmt.Errorf("connecting%s: %w", item, err)
	}
	return nil
}

// String says whose exchange it is, for errors.
func (i exchangeItem) String() string {
	text := " transport " + i.transport.Name
	if i.exchange.Algorithm != "" {
		text += fmt.Sprintf(" for %s/%s", i.exchange.Request.Collective, i.exchange.Algorithm)
	}
	return text
}
