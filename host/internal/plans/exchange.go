package plans

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// Endpoints of transports with FeatureExchange publish bytes, and get what all ranks
// have published, when a communicator is made and before a plan is prepared. What is published
// goes along with what the ranks exchange anyway, whatever the number of endpoints and plans;
// it carries this rank's error too, so that no rank connects unless all can.

// exchangeItem names one endpoint's exchange of bytes.
type exchangeItem struct {
	transport *Transport
	exchange  plugin.Exchange
}

// published holds a rank's bytes for several items. Those that are alike travel once.
type published struct {
	Bytes [][]byte
	Of    []int // by item: which of Bytes
}

func (p *published) add(b []byte) {
	at := slices.IndexFunc(p.Bytes, func(other []byte) bool { return bytes.Equal(other, b) })
	if at < 0 {
		at = len(p.Bytes)
		p.Bytes = append(p.Bytes, b)
	}
	p.Of = append(p.Of, at)
}

// get returns the bytes of every item, if there are as many.
func (p *published) get(rank, items int) ([][]byte, error) {
	list := make([][]byte, len(p.Of))
	for i, at := range p.Of {
		if at < 0 || at >= len(p.Bytes) {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank,
				Message: fmt.Sprintf("rank %d published %d texts, of which it names number %d", rank, len(p.Bytes), at)}
		}
		list[i] = p.Bytes[at]
	}
	if len(list) != items {
		return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank,
			Message: fmt.Sprintf("rank %d published for %d endpoints and plans, want %d", rank, len(list), items)}
	}
	return list, nil
}

// publication is a rank's part in a round of exchange.
type publication struct {
	Choices   []choice // of plans, if the round is for them
	Names     []string // of the transports, if the round is for endpoints
	Published published
	Unable    map[string]failure // to publish, by transport, if the round is for endpoints
	failure
}

// failure is why a rank cannot take part.
type failure struct {
	Code    plugin.Code
	Message string
}

// fail notes an error, if it is one.
func (f *failure) fail(err error) {
	if err != nil {
		f.Code, f.Message = plugin.CodeOf(err), err.Error()
	}
}

// of returns the failure as a rank's error.
func (f failure) of(rank int) *plugin.Error {
	return &plugin.Error{Code: f.Code, Rank: rank, Message: fmt.Sprintf("rank %d: %s", rank, f.Message)}
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

// Publication holds the bytes that the ranks' endpoints published when they were opened.
type Publication struct {
	pl    *Planner
	items []exchangeItem
	all   [][][]byte // by rank and item
}

// Publish has this rank's endpoints publish, and returns the part in which the ranks hear what all have published. It
// is heard after the part in which they leave transports out, and what those cannot publish is no error. failed is an
// earlier error of this rank, which all hear before: it publishes nothing then.
func (pl *Planner) Publish(ctx context.Context, failed error) (*Publication, round.Part) {
	mine := publication{Unable: map[string]failure{}}
	if failed == nil {
		for _, item := range pl.endpointItems() {
			b, err := item.publish(ctx)
			if err != nil {
				mine.Unable[item.transport.Name] = failure{plugin.CodeOf(err), err.Error()}
			}
			mine.Names = append(mine.Names, item.transport.Name)
			mine.Published.add(b)
		}
	}
	p := &Publication{pl: pl}
	return p, round.Part{Mine: encode(mine), Hear: p.hear}
}

// endpointItems names the endpoints that exchange bytes when a communicator is made.
func (pl *Planner) endpointItems() (items []exchangeItem) {
	for _, a := range pl.Transports {
		if a.exchanges() {
			items = append(items, exchangeItem{transport: a})
		}
	}
	return items
}

func (p *Publication) hear(answers [][]byte) error {
	ranks, err := decodePublications(answers)
	if err != nil {
		return err
	}
	p.items = p.pl.endpointItems()
	p.all = make([][][]byte, len(ranks))
	for rank := range ranks {
		published, err := ranks[rank].Published.get(rank, len(ranks[rank].Names))
		if err != nil {
			return err
		}
		for _, item := range p.items {
			if unable := ranks[rank].Unable[item.transport.Name]; unable.Code != plugin.OK {
				return unable.of(rank)
			}
			i := slices.Index(ranks[rank].Names, item.transport.Name)
			if i < 0 {
				return &plugin.Error{Code: plugin.Protocol, Rank: rank,
					Message: fmt.Sprintf("rank %d published nothing for transport %s", rank, item.transport.Name)}
			}
			p.all[rank] = append(p.all[rank], published[i])
		}
	}
	return nil
}

// Connect hands each endpoint what all ranks have published. It returns the errors of those that cannot be connected,
// by transport; LeaveOut takes them, with optional.
func (p *Publication) Connect(ctx context.Context, optional bool) map[string]error {
	failed := map[string]error{}
	for i, item := range p.items {
		if err := p.pl.connectItem(ctx, item, i, p.all); err != nil {
			failed[item.transport.Name] = err
			if !optional || plugin.CodeOf(err) != plugin.Unsupported {
				p.pl.failUnheard(err)
			}
		}
	}
	return failed
}

// wanted is a signature with those of its plans that are to be prepared.
type wanted struct {
	key  call.Signature
	p    *prepared
	list []int
}

// exchangeForPlans runs the round that precedes the preparation of plans. It fails on all ranks alike, which agreed
// says, where one has failed before, cannot publish, or chooses other algorithms; that a rank cannot connect is agreed
// on with what follows.
func (pl *Planner) exchangeForPlans(ctx context.Context, plans []wanted, failed error) (agreed bool, err error) {
	var items []exchangeItem
	mine := publication{}
	if failed == nil {
		for _, w := range plans {
			items = append(items, pl.planItems(w)...)
			mine.Choices = append(mine.Choices, choiceOf(w.key, w.p.choice))
		}
		mine.Published, failed = publish(ctx, items)
	}
	mine.fail(failed)
	pl.exchanges++
	answers, err := round.Gather(ctx, pl.Group, pl.World,
		fmt.Sprintf("exchange what their transports publish (%s %d)", pl.Label, pl.exchanges), encode(mine))
	if err != nil {
		return false, err
	}
	ranks, err := decodePublications(answers)
	if err != nil {
		return true, err
	}
	choices := make([][]choice, len(ranks))
	for rank := range ranks {
		choices[rank] = ranks[rank].Choices
	}
	if err := compareChoices(choices); err != nil {
		return true, err
	}
	all := make([][][]byte, len(ranks))
	for rank := range ranks {
		if all[rank], err = ranks[rank].Published.get(rank, len(items)); err != nil {
			return false, err
		}
	}
	return false, pl.connectAll(ctx, items, all)
}

// planItems names the exchanges that some of a signature's plans need.
func (pl *Planner) planItems(w wanted) (items []exchangeItem) {
	for _, i := range w.list {
		candidate := w.p.choice.Candidates()[i]
		if a := pl.Transports[candidate.Endpoint]; a.exchanges() {
			items = append(items, exchangeItem{a, plugin.Exchange{Request: pl.Request(w.key),
				Algorithm: candidate.Algorithm.Name}})
		}
	}
	return items
}

// exchangesBytes reports whether an endpoint that may serve a collective exchanges bytes, so that a round is due: all
// ranks have the same transports. One-sided operations are served by endpoints that allocate windows.
func (pl *Planner) exchangesBytes(collective plugin.Collective) bool {
	return slices.ContainsFunc(pl.Transports, func(a *Transport) bool {
		return a.exchanges() && (!collective.OneSided() || a.Features&plugin.FeatureBuffers != 0)
	})
}

// publish returns what the endpoints publish for some items.
func publish(ctx context.Context, items []exchangeItem) (p published, err error) {
	for _, item := range items {
		b, err := item.publish(ctx)
		if err != nil {
			return published{}, err
		}
		p.add(b)
	}
	return p, nil
}

// decodePublications returns the ranks' parts in a round of exchange, or the error of the lowest rank that has one.
func decodePublications(answers [][]byte) ([]publication, error) {
	ranks := make([]publication, len(answers))
	for rank, answer := range answers {
		if err := json.Unmarshal(answer, &ranks[rank]); err != nil {
			return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
				Message: fmt.Sprintf("rank %d sent a malformed publication: %v", rank, err)}
		}
	}
	for rank, p := range ranks {
		if p.Code != plugin.OK {
			return nil, p.of(rank)
		}
	}
	return ranks, nil
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

// unheardTime is how long a rank that could not connect waits for the others to come and hear of it.
const unheardTime = 3 * time.Second

// connectAll connects every item, up to the first that fails. The caller agrees with the other ranks on the outcome and
// then calls heard.
func (pl *Planner) connectAll(ctx context.Context, items []exchangeItem, all [][][]byte) error {
	for i, item := range items {
		if err := pl.connectItem(ctx, item, i, all); err != nil {
			pl.failUnheard(err)
			return err
		}
	}
	return nil
}

// failUnheard is called where this rank could not connect. Ranks that do not come soon to hear of it may wait for this
// one inside their transports: the communicator fails then, which ends what they wait for and tells them why.
func (pl *Planner) failUnheard(err error) {
	if pl.unheard == nil {
		reason := failure{plugin.CodeOf(err), err.Error()}.of(pl.Rank)
		pl.unheard = time.AfterFunc(unheardTime, func() { pl.Fail(reason, true) })
	}
}

// heard is called when the ranks have agreed on what each could connect.
func (pl *Planner) heard() {
	if pl.unheard != nil {
		pl.unheard.Stop()
		pl.unheard = nil
	}
}

// connectItem hands the endpoint of item i what all ranks have published for it. The endpoint may wait for peers there:
// its context ends with the communicator too.
func (pl *Planner) connectItem(ctx context.Context, item exchangeItem, i int, all [][][]byte) error {
	ctx, cancel := TransportTime(ctx)
	defer cancel()
	ctx, stop := pl.Failure.While(ctx)
	defer stop()
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
