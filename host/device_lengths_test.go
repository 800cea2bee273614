package host_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// A kernel that finds another length than its own makes all ranks fail with both,
// however the message was asked for; those before it arrive.
func TestDeviceMessagesOfDifferentLengthsAreErrors(t *testing.T) {
	const n, room, right = 3, 900_000, 100
	calls := map[string]func(r *rank, sent, expected int) error{
		"alone": func(r *rank, sent, expected int) error {
			b, done := r.buffers(room, room)
			var err error
			switch r.Rank() {
			case 0:
				err = r.Send(pointer(b[0]), int64(sent), plugin.Float32, 1, r)
			case 1:
				err = r.Recv(pointer(b[1]), int64(expected), plugin.Float32, 0, r)
			}
			return done(err)
		},
		"second of a group": func(r *rank, sent, expected int) error {
			b, done := r.buffers(room, room)
			var g host.Group
			for _, counts := range [][2]int{{right, right}, {sent, expected}} {
				switch r.Rank() {
				case 0:
					g.Add(host.Operation{Collective: plugin.Send, Send: pointer(b[0]), Count: int64(counts[0]), DType: plugin.Float32,
						Root: 1, Stream: r})
				case 1:
					g.Add(host.Operation{Collective: plugin.Recv, Recv: pointer(b[1]), Count: int64(counts[1]), DType: plugin.Float32,
						Root: 0, Stream: r})
				}
			}
			return done(g.Run(r.Communicator))
		},
		"all_to_all_v": func(r *rank, sent, expected int) error {
			b, done := r.buffers(n*right+room, n*right+room)
			sends, recvs := []int64{right, right, right}, []int64{right, right, right}
			switch r.Rank() {
			case 0:
				sends[1] = int64(sent)
			case 1:
				recvs[0] = int64(expected)
			}
			return done(r.AllToAllV(pointer(b[0]), sends, nil, pointer(b[1]), recvs, nil, plugin.Float32, r))
		},
	}
	for name, call := range calls {
		for _, lengths := range fewer([][2]int{{800_000, 800_001}, {800_000, 10}, {1, 2}, {2000, 1000}, {10, 800_000}}...) {
			t.Run(fmt.Sprintf("%s %d to %d", name, lengths[0], lengths[1]), func(t *testing.T) {
				errs := deviceErrors(t, gpus(t, n), func(_ int, o *host.Options) { o.Timeout = time.Minute }, func(r *rank) error {
					for range 3 {
						if err := call(r, lengths[0], lengths[0]); err != nil {
							return fmt.Errorf("ends that are alike: %w", err)
						}
					}
					if err := r.meet(); err != nil {
						return err
					}
					err := call(r, lengths[0], lengths[1])
					return errors.Join(err, eventually("the verdict", func() bool { return r.Err() != nil }), r.Err())
				})
				for rank, err := range errs {
					require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
					require.ErrorContains(t, err, fmt.Sprintf("rank 0 sends %d bytes to rank 1, which expects %d", 4*lengths[0],
						4*lengths[1]), "rank %d", rank)
					require.NotContains(t, err.Error(), "ends that are alike")
				}
			})
		}
	}
}
