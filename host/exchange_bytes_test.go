package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestExchangeGathersEveryRanksBytes(t *testing.T) {
	world(t, 3, func(c *host.Communicator) error {
		for round := range 3 { // as many bytes as NCCL's unique id, and none
			mine := bytes.Repeat([]byte{byte(10*round + c.Rank())}, 128*(round%2))
			all, err := c.Exchange(context.Background(), mine)
			if err != nil || len(all) != 3 {
				return fmt.Errorf("%d answers: %w", len(all), err)
			}
			for rank, theirs := range all {
				if !bytes.Equal(theirs, bytes.Repeat([]byte{byte(10*round + rank)}, 128*(round%2))) {
					return fmt.Errorf("round %d: rank %d gave %v", round, rank, theirs)
				}
			}
		}
		return nil
	})
}

// Ranks that give different lengths all get the error, and can continue.
func TestExchangeComparesLengths(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		if _, err := c.Exchange(context.Background(), make([]byte, 1+c.Rank())); !errors.Is(err, plugin.Mismatch) {
			return fmt.Errorf("want a mismatch, got %w", err)
		}
		if _, err := c.Exchange(context.Background(), make([]byte, host.MaxExchange/2)); err != nil {
			return err
		}
		return c.Barrier(nil)
	})
}
