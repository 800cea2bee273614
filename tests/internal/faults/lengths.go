package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/device"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func init() { pool.Handle("faults lengths", lengthsHandler) }

// lengthsRequest is one message from rank 0 to rank 1 whose ends differ.
type lengthsRequest struct {
	request
	Sent, Expected int64 // bytes
	Varying        bool  // by all_to_all_v
	Captured       bool  // replayed
	Registered     bool  // its memory is
}

// lengthsHandler makes a communicator, on which messages whose ends are alike
// arrive, eager ones and replayed ones, and then one whose ends differ. Of that not
// one byte may arrive.
func lengthsHandler(ctx context.Context, w *pool.Worker, payload []byte) ([]byte, error) {
	var r lengthsRequest
	j, err := openUsed(ctx, w, payload, &r, &r.request)
	if err != nil {
		return nil, err
	}
	line, most := j.Device.Streams[0], max(r.Sent, r.Expected)
	image, err := j.Device.NewSharedImage(2 * most)
	if err != nil {
		return nil, err
	}
	out, in := image.Part(0, most), image.Part(most, most)
	if r.Registered {
		if err := j.Comm.Register(image.Pointer(0), 2*most); err != nil {
			return nil, err
		}
	}
	graphs := []*device.Graph{}
	message := func(sent, expected int64, captured bool) error {
		if !captured {
			return j.message(out, in, sent, expected, r.Varying)
		}
		g, err := j.Device.Capture(line, func() error { return j.message(out, in, sent, expected, r.Varying) })
		if err != nil {
			return err
		}
		graphs = append(graphs, g)
		return g.Launch(line)
	}
	for round := range 6 {
		captured := r.Captured && round%2 == 1
		want := bytes.Repeat([]byte{byte(round), 1, 2, 3}, int(r.Sent/4))
		copy(out.Bytes, want)
		clear(in.Bytes)
		if err := errors.Join(image.Push(line), message(r.Sent, r.Sent, captured), in.Pull(line), j.Settle()); err != nil {
			return nil, fmt.Errorf("ends that are alike: %w", err)
		}
		if w.Rank == 1 && !bytes.Equal(in.Bytes[:r.Sent], want) {
			return nil, fmt.Errorf("round %d: %w", round, errWrong)
		}
	}
	untouched := bytes.Repeat([]byte{0xA5}, int(most))
	copy(in.Bytes, untouched)
	if err := errors.Join(in.Push(line), j.Comm.Barrier(j.Stream()), j.drained()); err != nil {
		return nil, err
	}
	a, err := j.told(ctx, func() error { return message(r.Sent, r.Expected, r.Captured) })
	if err != nil {
		return nil, err
	}
	if err := errors.Join(in.Pull(line), j.drained()); err != nil {
		return nil, err
	}
	if !bytes.Equal(in.Bytes, untouched) {
		return nil, fmt.Errorf("a part of the message has arrived: %w", errWrong)
	}
	for _, g := range graphs {
		if err := g.Destroy(); err != nil {
			return nil, err
		}
	}
	a.closed(j.Leave())
	if err := image.Free(); err != nil {
		return nil, err
	}
	a.Leaks = j.leaks()
	if err := j.Close(); err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// message makes a rank's call for a message from rank 0 to rank 1, whose ends state
// sent and expected bytes.
func (j *rank) message(out, in *device.Image, sent, expected int64, varying bool) error {
	rank, from, to := j.Comm.Rank(), out.Pointer(0), in.Pointer(0)
	switch {
	case varying:
		sends, recvs := make([]int64, j.Comm.World()), make([]int64, j.Comm.World())
		switch rank {
		case 0:
			sends[1] = sent
		case 1:
			recvs[0] = expected
		}
		return j.Comm.AllToAllV(from, sends, nil, to, recvs, nil, plugin.Uint8, j.Stream())
	case rank == 0:
		return j.Comm.Send(from, sent, plugin.Uint8, 1, j.Stream())
	case rank == 1:
		return j.Comm.Recv(to, expected, plugin.Uint8, 0, j.Stream())
	}
	return nil
}
