package host

import (
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// MaxExchange is the limit on the bytes that all ranks together give to an Exchange.
const MaxExchange = 4 << 20

// Exchange returns the bytes that every rank gave, in rank order. They travel between the hosts, over the connections
// of the rendezvous: it is for what ranks tell each other before they call another library, such as a unique id of
// NCCL's, not for data. It is collective, every rank gives as many bytes, and it touches no stream.
func (c *Communicator) Exchange(ctx context.Context, data []byte) (all [][]byte, err error) {
	defer noteContext(ctx, &err)
	if int64(len(data))*int64(c.World()) > MaxExchange {
		return nil, c.observer.Invalid("exchange", "%d bytes from each of %d ranks; want at most %d in all", len(data),
			c.World(), MaxExchange)
	}
	number, release, err := c.enterContext(ctx, "exchange", "exchange")
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	tag := fmt.Sprintf("exchange bytes (%s %d)", c.Label(), number)
	answers, err := c.group.AllGather(ctx, tag, data)
	if err != nil {
		return nil, c.observer.WrapError("exchange", err)
	}
	for rank, answer := range answers {
		if len(answer) != len(answers[0]) {
			return nil, plugin.Errorf(plugin.Mismatch,
				"exchange on rank %d: ranks disagree: rank 0 gives %d bytes, rank %d gives %d", c.Rank(), len(answers[0]), rank,
				len(answer))
		}
	}
	return answers, nil
}
