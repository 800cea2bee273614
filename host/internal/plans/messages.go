package plans

import (
	"context"
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// asGroups leaves to send and recv between GPUs the algorithms of the transport that runs groups of messages, which are
// an all_to_all_v: a message may have one end alone and the other in a group, and both ends must use one transport.
func (pl *Planner) asGroups(ctx context.Context, req plugin.Request, candidates []selector.Candidate,
	rejections map[string]string) ([]selector.Candidate, error) {
	message := req.Collective == plugin.Send || req.Collective == plugin.Recv
	if pl.Memory != plugin.MemoryKindCuda || !message || len(pl.Transports) < 2 {
		return candidates, nil
	}
	groups, err := pl.Choose(ctx, call.SignatureOf(plugin.AllToAllV, plugin.Uint8, 0))
	switch plugin.CodeOf(err) {
	case plugin.OK:
	case plugin.Unsupported, plugin.InvalidArgument: // there are no groups
		return candidates, nil
	default:
		return nil, err
	}
	i := groups.Pick(0)
	if i < 0 {
		return candidates, nil
	}
	transport := groups.Candidates()[i].Transport
	serves := func(c selector.Candidate) bool { return c.Transport == transport }
	if !slices.ContainsFunc(candidates, serves) { // messages alone have another one, and no group to meet
		return candidates, nil
	}
	return slices.DeleteFunc(candidates, func(c selector.Candidate) bool {
		if !serves(c) {
			rejections[c.Transport] = fmt.Sprintf(
				"%s runs all_to_all_v, and with it groups of messages: the other end of a message may be in one", transport)
		}
		return !serves(c)
	}), nil
}
