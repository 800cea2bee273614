package host

import (
	"io"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// Records returns the latest operations of this rank, oldest first, as many as SHUNT_FLIGHT_RECORDER_SIZE says. They
// are gone once the communicator is closed.
func (c *Communicator) Records() []report.Entry { return report.Entries(c.flights()) }

// WriteRecords writes the flight recorder as one JSON object.
func (c *Communicator) WriteRecords(w io.Writer) error { return c.report().WriteJSON(w) }

func (c *Communicator) report() report.Report {
	r := report.Report{
		Head: report.Head{
			Communicator: c.Label(), Job: c.job.Session.Job(), Rank: c.Rank(), World: c.World(),
			PID: c.job.Place.PID, Host: c.job.Place.Host,
		},
		Operations: c.Records(),
	}
	r.Last = c.observer.Failure.LastCall(c.observer.State(c.Rank()), r.Operations)
	if f := c.observer.Failure.Reason(); f != nil {
		r.Code, r.Failure = plugin.CodeOf(f).String(), f.Error()
	}
	return r
}

// flights returns the recorded operations of either kind of memory.
func (c *Communicator) flights() []executor.Flight {
	if c.device != nil {
		return c.device.Flights.List()
	}
	return c.engine.Flights()
}
