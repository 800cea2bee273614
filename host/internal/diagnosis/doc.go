// Package diagnosis decides what becomes an error or a report, and words it: which rank is behind, which one rejected
// the call that others wait in, which calls or lengths contradict each other, what a kernel's fault means, and what a
// rank leaves behind on disk when its communicator fails.
//
// What lives here: reading the control pages of peers, verdicts on them, the text of errors and warnings, the state of
// a communicator that has failed, and the ledger of what this rank tells of its own calls, for others to read. What may
// not: it stops nothing and asks no peer anything. The communicator acts on the verdicts, the executor records, and
// host/report has the form of reports. It does not import package host.
//
// Errors of calls that never ran are worded elsewhere: bad arguments in call, and the outcome of the agreement on a
// signature's first call in plans.
package diagnosis
