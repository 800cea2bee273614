package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// message returns the operation of one end of a message of bytes.
func message(collective plugin.Collective, memory []byte, peer int) *host.Operation {
	return &host.Operation{Collective: collective, Send: at(memory), Recv: at(memory), Count: int64(len(memory)),
		DType: plugin.Uint8, Root: peer}
}

// ways are the ways to make a call.
var ways = map[string]func(*host.Communicator, *host.Operation) error{
	"eager": (*host.Communicator).Do,
	"started": func(c *host.Communicator, op *host.Operation) error {
		r, err := c.Start(op)
		if err != nil {
			return err
		}
		return r.Wait(context.Background())
	},
	"group": func(c *host.Communicator, op *host.Operation) error {
		var g host.Group
		g.Add(*op)
		return g.Run(c)
	},
	"patient": func(c *host.Communicator, op *host.Operation) error {
		r, err := c.DoFor(op, little)
		if r != nil {
			err = r.Wait(context.Background())
		}
		return err
	},
}

// Messages whose ends differ are errors on both, soon, whichever rings, offers and
// algorithms the two ends go to, whether short forms are known, and however the
// calls are made.
func TestMessagesOfDifferentLengthsAreErrors(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	for _, algo := range []string{"*=*", "send=shm/direct", "send=shm/generic/put_direct",
		"send:-5000=shm/single_copy;send=shm/generic/put_direct", "send=plain/single_copy"} {
		t.Run(algo, func(t *testing.T) {
			t.Setenv("SHUNT_ALGO", algo)
			for way, do := range ways {
				for _, lengths := range [][2]int{{8, 4}, {4, 8}, {0, 8}, {8, 0}, {4096, 8192}, {8192, 4096}, {40, 100_000},
					{1 << 20, 12}, {1 << 19, 1 << 20}, {300_000, 299_999}} {
					for _, known := range fewer(0, 6) {
						t.Run(fmt.Sprintf("%s %d to %d after %d", way, lengths[0], lengths[1], known), func(t *testing.T) {
							t.Parallel()
							testLengths(t, do, lengths, known)
						})
					}
				}
			}
		})
	}
}

// plain is a transport whose messages do not carry their length: shm, with waits
// that do nothing where the reader's plan finds another one.
type plain struct{ shm.Transport }

func (p plain) Info() plugin.Info {
	info := p.Transport.Info()
	info.Name, info.Features = "plain", info.Features&^plugin.FeatureLengths
	return info
}

func (p plain) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	e, err := p.Transport.Open(ctx, config)
	return plainEndpoint{e}, err
}

type plainEndpoint struct{ plugin.Endpoint }

func (e plainEndpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	p, err := e.Endpoint.Prepare(ctx, req, algorithm)
	if err != nil {
		return nil, err
	}
	slots := plugin.SlotCountOf(p.World)
	last, found := uint16(p.Registers()-1), req.Collective != plugin.Recv
	for i, s := range p.Steps {
		if at := int(s.B) - slots; s.Kind == plugin.StepWait && at >= 0 && at < len(p.Consts) && p.Consts[at] == 1<<62 {
			p.Steps[i] = plugin.Step{Kind: plugin.StepSet, Alu: plugin.AluMov, Dst: last, A: last}
			found = true
		}
	}
	if !found {
		return nil, plugin.Errorf(plugin.Internal, "the plan of recv has no wait for what never comes")
	}
	return p, nil
}

func testLengths(t *testing.T, do func(*host.Communicator, *host.Operation) error, lengths [2]int, known int) {
	began := time.Now()
	errs := worldErrors(t, 2, func(_ int, o *host.Options) {
		o.Timeout, o.Transports = time.Minute, []string{"builtin:shm", "builtin:plain"}
	}, func(c *host.Communicator) error {
		kind, peer := plugin.Send, 1
		if c.Rank() == 1 {
			kind, peer = plugin.Recv, 0
		}
		for _, n := range lengths { // short forms are for what has come before
			for range known {
				if err := do(c, message(kind, make([]byte, n), peer)); err != nil {
					return fmt.Errorf("ends that are alike: %w", err)
				}
			}
		}
		err := do(c, message(kind, make([]byte, lengths[c.Rank()]), peer))
		if c.Rank() == 1 && err == nil {
			return errWrong
		}
		// A sender may have ended before; it learns of it later.
		return errors.Join(err, eventually("the verdict", func() bool { return c.Err() != nil }), c.Err())
	})
	want := fmt.Sprintf("rank 0 sends %d bytes of uint8 to rank 1, which expects %d of uint8", lengths[0], lengths[1])
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.ErrorContains(t, err, want, "rank %d", rank)
	}
	require.Less(t, time.Since(began), 20*time.Second)
}

// A receiver behind a sender that is far ahead finds the message that differs, not
// one before or after it.
func TestAMessageAmongManyIsNamed(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	for name, wrong := range map[string]int{"first": 0, "later": 300} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			errs := worldErrors(t, 3, nil, func(c *host.Communicator) error {
				length := func(i int) int { return 8 + 8*(i%40) }
				switch c.Rank() {
				case 0:
					for i := 0; ; i++ {
						if err := c.Do(message(plugin.Send, make([]byte, length(i)), 1)); err != nil {
							return err
						}
						sent.Store(int64(i))
					}
				case 1:
					for i := 0; ; i++ {
						n := length(i)
						if i == wrong {
							n += 4
						}
						if err := c.Do(message(plugin.Recv, make([]byte, n), 0)); err != nil {
							if i != wrong {
								return fmt.Errorf("message %d: %w", i, errWrong)
							}
							return err
						}
					}
				}
				return errors.Join(eventually("the verdict", func() bool { return c.Err() != nil }), c.Err())
			})
			want := fmt.Sprintf("rank 0 sends %d bytes of uint8 to rank 1, which expects %d of uint8", 8+8*(wrong%40),
				12+8*(wrong%40))
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, want, "rank %d", rank)
			}
		})
	}
}

// In a group every message counts, those beyond what a rank keeps note of too.
func TestGroupsOfManyMessagesCompareEach(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	const n = 200
	for _, wrong := range []int{0, 100, n - 1, n} {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
				for range 3 {
					var g host.Group
					for i := range n {
						length := 16 * (i % 9)
						g.Add(*message(plugin.Send, make([]byte, length), 1-c.Rank()))
						if i == wrong && c.Rank() == 1 {
							length++
						}
						g.Add(*message(plugin.Recv, make([]byte, length), 1-c.Rank()))
					}
					if err := g.Run(c); err != nil {
						return err
					}
				}
				return c.Barrier(nil)
			})
			for rank, err := range errs {
				if wrong == n {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("rank 0 sends %d bytes of uint8 to rank 1, which expects %d of uint8",
					16*(wrong%9), 16*(wrong%9)+1), "rank %d", rank)
			}
		})
	}
}

// Elements are not compared, bytes are: what is sent as bytes may be received as
// numbers.
func TestMessagesOfOneLengthMayBeOfDifferentElements(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		for range 10 {
			if c.Rank() == 0 {
				x := ramp(0, 64)
				if err := c.Send(at(x), 256, plugin.Uint8, 1, nil); err != nil {
					return err
				}
			} else {
				y := make([]float32, 64)
				if err := c.Recv(at(y), 64, plugin.Float32, 0, nil); err != nil {
					return err
				}
				if err := equal(y, ramp(0, 64)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Both elements are named.
func TestElementsOfMessagesAreNamed(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "100ms")
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float64, 8)
		if c.Rank() == 0 {
			return errors.Join(c.Send(at(x), 8, plugin.Float32, 1, nil), c.Barrier(nil))
		}
		return errors.Join(c.Recv(at(x), 8, plugin.Float64, 0, nil), c.Barrier(nil))
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.ErrorContains(t, err, "rank 0 sends 32 bytes of float32 to rank 1, which expects 64 of float64", "rank %d",
			rank)
	}
}
