// Package round lets ranks tell each other several things in one exchange, which costs one way to the store of the
// rendezvous and back.
package round

import (
	"context"
	"fmt"
	"strings"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// Part is one of the things that ranks tell each other.
type Part struct {
	Mine []byte // what this rank says
	// Hear gets what every rank has said, by rank. Its error is alike on all ranks, as it looks at nothing else.
	Hear func(all [][]byte) error
}

// Group lets ranks exchange bytes.
type Group interface {
	AllGather(ctx context.Context, tag string, payload []byte) ([][]byte, error)
}

// Exchange gathers the parts of all ranks. Every rank calls it with the same tag and the same parts, whatever it has to
// say. They are heard in order, up to the first error.
func Exchange(ctx context.Context, group Group, tag string, parts ...Part) error {
	var w wire.Writer
	for _, p := range parts {
		w.Bytes(p.Mine)
	}
	all, err := group.AllGather(ctx, tag, w.B)
	if err != nil {
		return err
	}
	said := make([][][]byte, len(parts)) // by part and rank
	for rank, b := range all {
		r := wire.NewReader(b)
		for i := range parts {
			said[i] = append(said[i], r.Bytes(len(b)))
		}
		if err := r.End(); err != nil {
			return &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
				Message: fmt.Sprintf("rank %d sent malformed parts of an exchange: %v", rank, err)}
		}
	}
	for i, p := range parts {
		if err := p.Hear(said[i]); err != nil {
			return err
		}
	}
	return nil
}

// Most is the most bytes of all ranks that the store passes on in one exchange. Tests lower it.
var Most = 8 << 20

// Longest is the most bytes that one rank may bring to Gather.
const Longest = 8 << 20

// Gather is AllGather for what may be more than Most of all ranks together: then it takes as many exchanges as the
// longest payload needs, which all ranks learn from the first.
func Gather(ctx context.Context, group Group, world int, tag string, payload []byte) ([][]byte, error) {
	share := max(1, Most/world-16)                         // beside the lengths
	all, left := make([][]byte, world), make([]int, world) // left: bytes that a rank said are still to come
	rest := payload
	for number := 0; ; number++ {
		part := rest[:min(share, len(rest))]
		rest = rest[len(part):]
		var w wire.Writer
		w.U32(uint32(len(rest)))
		w.Bytes(part)
		name := tag
		if number > 0 {
			name = fmt.Sprintf("%s, part %d", tag, number+1)
		}
		parts, err := group.AllGather(ctx, name, w.B)
		if err != nil {
			return nil, err
		}
		more := false
		for rank, b := range parts {
			r := wire.NewReader(b)
			still, part := int(r.U32()), r.Bytes(len(b))
			err := r.End()
			switch {
			case err != nil:
			case number == 0 && len(part)+still > Longest:
				err = fmt.Errorf("it has %d bytes, at most %d may be", len(part)+still, Longest)
			case number > 0 && (len(part)+still != left[rank] || len(part) == 0 && still > 0):
				err = fmt.Errorf("%d bytes were to come; there are %d, and %d more", left[rank], len(part), still)
			}
			all[rank], left[rank], more = append(all[rank], part...), still, more || still > 0
			if err != nil {
				return nil, &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
					Message: fmt.Sprintf("rank %d sent a malformed part of an exchange: %v", rank, err)}
			}
		}
		if !more {
			return all, nil
		}
	}
}

// Agreement is the part of a rank that brings an error or nil. It is heard with the error of the lowest rank that has
// one, which is named in front of its message.
func Agreement(rank int, mine error) Part {
	return Part{Mine: Say(rank, mine), Hear: func(all [][]byte) error {
		for _, said := range all {
			if err := Heard(said, rank, mine); err != nil {
				return err
			}
		}
		return nil
	}}
}

// Say encodes what a rank brings to an agreement; nothing for nil.
func Say(rank int, mine error) []byte {
	if mine == nil {
		return nil
	}
	name := fmt.Sprintf("rank %d", rank)
	message := mine.Error()
	if rest, ok := strings.CutPrefix(message, name); !ok || (rest != "" && rest[0] >= '0' && rest[0] <= '9') {
		message = name + ": " + message
	}
	var w wire.Writer
	w.Error(&plugin.Error{Code: plugin.CodeOf(mine), Rank: rank, Message: message})
	return w.B
}

// Heard returns the error that some rank has said. On the rank where it began, whose own is mine, errors.Is and
// errors.As see mine.
func Heard(said []byte, rank int, mine error) error {
	if len(said) == 0 {
		return nil
	}
	r := wire.NewReader(said)
	agreed := r.Error()
	if err := r.End(); err != nil {
		return err
	}
	if agreed == nil {
		return plugin.Errorf(plugin.Protocol, "an agreement on rank %d: the reply is empty", rank)
	}
	if agreed.Rank == rank {
		agreed.Cause = mine
	}
	return agreed
}
