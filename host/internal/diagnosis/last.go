package diagnosis

import "github.com/shunt-ccl/shunt/host/report"

// LastCall returns the call that a rank made last: its control page numbers it, and its
// recorder, oldest operation first, says what the page does not: how far messages
// and operations on GPUs have come.
func LastCall(page State, operations []report.Entry) *report.Call {
	if !page.Valid {
		return nil
	}
	call := report.NewCall(page.Seq, page.Collective, page.Root, report.Called)
	if page.Ended && !page.Collective.PointToPoint() {
		call.State = report.Ended
	}
	if n := len(operations); n > 0 {
		e := operations[n-1]
		recorded := e.Collective == call.Collective && e.DType == page.DType.String() && e.Count == page.Count
		if recorded && (e.State == report.Enqueued || (e.State == report.Ended && page.Collective.PointToPoint())) {
			call.State = e.State
		}
	}
	return call
}
