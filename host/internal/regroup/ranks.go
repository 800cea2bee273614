package regroup

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// Color is a rank's argument of a split.
func Color(color, key int) []byte {
	var w wire.Writer
	w.I64(int64(color))
	w.I64(int64(key))
	return w.B
}

// OfColor returns the ranks that gave a color, ordered by key and then by rank. all has what each rank gave.
func OfColor(all [][]byte, color int) ([]int, error) {
	type member struct{ rank, key int }
	var members []member
	for rank, b := range all {
		r := wire.NewReader(b)
		theirs, key := int(r.I64()), int(r.I64())
		if err := r.End(); err != nil {
			return nil, plugin.Errorf(plugin.Protocol, "rank %d sent a malformed color: %w", rank, err)
		}
		if theirs == color {
			members = append(members, member{rank, key})
		}
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	ranks := make([]int, len(members))
	for i, m := range members {
		ranks[i] = m.rank
	}
	return ranks, nil
}

// Subset checks the ranks that one rank of a world gives for a subset, and returns what tells these from other ranks in
// a label.
func Subset(ranks []int, rank, world int) (string, error) {
	var w wire.Writer
	for i, r := range ranks {
		if r < 0 || r >= world || slices.Contains(ranks[:i], r) {
			return "", plugin.Errorf(plugin.InvalidArgument,
				"subset on rank %d: rank %d is out of range or named twice: the world is %d", rank, r, world)
		}
		w.U64(uint64(r))
	}
	if !slices.Contains(ranks, rank) {
		return "", plugin.Errorf(plugin.InvalidArgument, "subset on rank %d: the ranks %v lack this one", rank, ranks)
	}
	name := fnv.New64a()
	_, _ = name.Write(w.B) // a hash takes everything
	return fmt.Sprintf("%x", name.Sum64()), nil
}

// mostShown bounds the ranks that an error names.
const mostShown = 16

// Whose returns the error with which a new communicator was not made, with who its ranks are in the one that it was to
// be made of, which has the label: the error numbers them as they would have been numbered in the new one.
func Whose(err error, ranks []int, label string) error {
	same := true
	for i, rank := range ranks {
		same = same && rank == i
	}
	if err == nil || same {
		return err
	}
	shown := strings.ReplaceAll(strings.Trim(fmt.Sprint(ranks[:min(len(ranks), mostShown)]), "[]"), " ", ", ")
	if more := len(ranks) - mostShown; more > 0 {
		shown = fmt.Sprintf("%s and %d more", shown, more)
	}
	whose := &plugin.Error{Code: plugin.CodeOf(err), Rank: -1, Cause: err,
		Message: fmt.Sprintf("%s (its ranks, from 0 on, are ranks %s of %s)", err, shown, label)}
	if e, is := errors.AsType[*plugin.Error](err); is && e.Rank >= 0 && e.Rank < len(ranks) {
		whose.Rank = ranks[e.Rank]
	}
	return whose
}
