package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
)

// absence is the error of a scenario that needs what there is not: it is skipped. The code of an error does not say so
// much: a transport may offer an operation and have no plan for it.
type absence struct{ error }

func (a absence) Unwrap() error { return a.error }

// absent returns an absence.
func absent(format string, args ...any) error { return absence{fmt.Errorf(format, args...)} }

// isAbsent says whether an error is an absence, and nothing besides: one that is joined with a wrong result is that.
func isAbsent(err error) bool {
	switch e := err.(type) { //nolint:errorlint // As would find one among other errors
	case absence:
		return true
	case interface{ Unwrap() error }:
		return isAbsent(e.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !isAbsent(err) })
	}
	return false
}

// notOffered returns the error of a call on a communicator, which is an absence if no algorithm is offered for one of
// the operations that it needs.
func (r *rank) notOffered(comm *host.Communicator, err error, needs ...*Case) error {
	if plugin.CodeOf(err) == plugin.Unsupported && slices.ContainsFunc(needs, func(c *Case) bool {
		_, err := r.explain(comm, c)
		return plugin.CodeOf(err) == plugin.Unsupported
	}) {
		return absence{err}
	}
	return err
}

// newWindow makes a window. It is absent where the ranks run on several hosts, the transport allocates no buffers or a
// one-sided operation is not offered.
func (s *stage) newWindow(ctx context.Context, bytes int64) (*host.Window, error) {
	w, err := s.comm.NewWindow(ctx, bytes)
	if plugin.CodeOf(err) == plugin.Unsupported && (s.rank.hosts > 1 || !slices.ContainsFunc(s.comm.Transports(),
		func(l *carrier.Loaded) bool { return l.Info.Features&plugin.FeatureBuffers != 0 })) {
		return nil, absence{err}
	}
	return w, s.rank.notOffered(s.comm, err, s.with(0, plugin.Put, 0), s.with(0, plugin.Get, 0),
		s.with(0, plugin.Signal, 0), s.with(0, plugin.Wait, 0))
}
