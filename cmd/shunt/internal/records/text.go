package records

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// However many ranks there are, the text is short.
const (
	maxCommunicators = 8
	maxCauses        = 3
	maxGroups        = 8
	maxRanges        = 8 // of ranks in one line
	maxPlaces        = 4 // processes in one line
	maxSkipped       = 4
)

// String returns the summary for a person: of each communicator a line with the cause,
// then a line for ranks in the same call. Every line ends with a line break.
func (s Summary) String() string {
	var b strings.Builder
	jobs := map[string]int{} // with a communicator of that label
	for _, c := range s.Communicators {
		jobs[c.Label]++
	}
	for _, c := range s.Communicators[:min(len(s.Communicators), maxCommunicators)] {
		c.write(&b, jobs[c.Label] > 1)
	}
	if more := len(s.Communicators) - maxCommunicators; more > 0 {
		fmt.Fprintf(&b, "%d more communicators failed\n", more)
	}
	for _, f := range s.Skipped[:min(len(s.Skipped), maxSkipped)] {
		fmt.Fprintf(&b, "%s is skipped: %s\n", short(f.Path), short(f.Reason))
	}
	if more := len(s.Skipped) - maxSkipped; more > 0 {
		fmt.Fprintf(&b, "%d more files are skipped\n", more)
	}
	return b.String()
}

func (c *Communicator) write(b *strings.Builder, withJob bool) {
	fmt.Fprintf(b, "communicator %s of %d", short(c.Label), c.World)
	if withJob {
		fmt.Fprintf(b, " in job %.8s", short(c.Job))
	}
	for i, cause := range c.Causes[:min(len(c.Causes), maxCauses)] {
		if i > 0 {
			fmt.Fprintf(b, "  but %s", list(cause.Ranks))
		}
		if cause.Code == "" {
			b.WriteString(" had not failed\n")
		} else {
			fmt.Fprintf(b, " failed: %s: %s\n", short(cause.Code), short(cause.Failure))
		}
	}
	if more := len(c.Causes) - maxCauses; more > 0 {
		fmt.Fprintf(b, "  and there are %d more causes\n", more)
	}
	for _, g := range c.Groups[:min(len(c.Groups), maxGroups)] {
		g.write(b)
	}
	if more := c.Groups[min(len(c.Groups), maxGroups):]; len(more) > 0 {
		var ranks []int
		for _, g := range more {
			ranks = append(ranks, g.ranks()...)
		}
		slices.Sort(ranks)
		fmt.Fprintf(b, "  in %d other calls, the last #%d: %s\n", len(more), more[len(more)-1].number(), list(ranks))
	}
	if len(c.Missing) > 0 {
		fmt.Fprintf(b, "  no file: %s (ended or stopped without writing one, or closed before the failure)\n", list(c.Missing))
	}
}

func (g *Group) write(b *strings.Builder) {
	text, behind := list(g.ranks()), g.Behind > 0 && !g.waits
	if behind && len(g.Members) <= maxPlaces {
		places := make([]string, len(g.Members))
		for i, m := range g.Members {
			places[i] = fmt.Sprintf("rank %d (pid %d, host %s)", m.Rank, m.PID, short(m.Host))
		}
		text = strings.Join(places, ", ")
	}
	fmt.Fprintf(b, "  %s: %s", g.call(), text)
	if behind {
		fmt.Fprintf(b, "  <- %d BEHIND", g.Behind)
	}
	b.WriteByte('\n')
}

// call words what the group's ranks called last, and how far it has come. Messages
// have no number that ranks count alike.
func (g *Group) call() string {
	if g.Call == nil {
		return "called nothing"
	}
	how := map[string]string{report.Called: "in", report.Ended: "done with", report.Enqueued: "enqueued"}[g.Call.State]
	name := short(g.Call.Collective)
	if collective, err := plugin.ParseCollective(g.Call.Collective); err == nil && collective.PointToPoint() {
		if g.Call.Peer != nil {
			name = report.Message(collective, *g.Call.Peer)
		}
		return fmt.Sprintf("%s %s after #%d", how, name, g.Call.Number)
	}
	return fmt.Sprintf("%s #%d %s", how, g.Call.Number, name)
}

// list names ranks, which ascend: "rank 3", "ranks 0-62, 64".
func list(ranks []int) string {
	var b strings.Builder
	for n, i := 0, 0; i < len(ranks); n++ {
		if n == maxRanges {
			fmt.Fprintf(&b, " and %d more", len(ranks)-i)
			break
		}
		if n > 0 {
			b.WriteString(", ")
		}
		first := ranks[i]
		for i++; i < len(ranks) && ranks[i] == ranks[i-1]+1; i++ {
		}
		fmt.Fprintf(&b, "%d", first)
		if last := ranks[i-1]; last != first {
			fmt.Fprintf(&b, "-%d", last)
		}
	}
	if len(ranks) == 1 {
		return "rank " + b.String()
	}
	return "ranks " + b.String()
}
