package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/records"
)

// gathering collects the reports of the machines' launchers, in the launcher of the job.
type gathering struct {
	marker  string
	folder  string       // of records, in the temporary directory of each machine, before the number of its first rank
	records *records.Dir // where they are brought together; nil: none are wanted
	nccl    bool
	all     bool // every launcher reports; else those of other machines, where a remote shell is between

	mu      sync.Mutex
	started bool
	closed  bool // what comes now is too late
	hosts   []gathered
}

// gathered is the report of one of them.
type gathered struct {
	name     string
	first    int // rank
	ranks    int
	reports  bool
	end      *agentEnd // nil: it has not
	failed   time.Time // its first rank to fail, by the clock here
	problems []string
}

// hostReport is a machine of a hostfile in the output of run --json.
type hostReport struct {
	Host     string         `json:"host"`
	Ranks    []int          `json:"ranks"`
	Status   int            `json:"status"`             // exit status of its launcher, or -1
	Signal   syscall.Signal `json:"signal"`             // that ended the launcher, or 0
	Problems []string       `json:"problems,omitempty"` // what could not be done or found out there
}

// newGathering gathers what the machines of a job report. Where neither records nor the use of the NCCL library nor
// JSON is wanted, the launcher of this machine does not report: its status is enough, and its ranks keep the terminal.
func newGathering(machines []launch.Machine, dir *records.Dir, overNCCL, asJSON bool) *gathering {
	firsts, _ := firstRanks(machines)
	g := &gathering{marker: launch.Marker(rand.Text()), folder: "shunt-records-" + strings.ToLower(rand.Text()[:12]),
		records: dir, nccl: overNCCL, all: dir != nil || overNCCL || asJSON}
	for i, m := range machines {
		g.hosts = append(g.hosts, gathered{name: m.Name, first: firsts[i], ranks: m.Slots,
			reports: g.all || !isHere(m)})
	}
	return g
}

// ask adds to the job of a machine what its launcher is to report.
func (g *gathering) ask(at int, job *remoteJob) {
	if !g.hosts[at].reports {
		return
	}
	job.Marker, job.NCCL = g.marker, g.nccl
	if g.records != nil {
		job.Records = g.folderOf(job.Part.First)
	}
}

func (g *gathering) folderOf(first int) string { return fmt.Sprintf("%s-%d", g.folder, first) }

// intercept takes what the launcher of a machine reports out of its output. A job that is started again begins anew.
func (g *gathering) intercept(at, _ int, to io.Writer, say func(string)) io.WriteCloser {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := &g.hosts[at]
	if !h.reports {
		return nil
	}
	g.started, h.end, h.problems = true, nil, nil
	whole := true // all records are stored
	return launch.NewMessages(to, g.marker, func(text []byte) {
		var m agentMessage
		err := json.Unmarshal(text, &m)
		g.mu.Lock()
		defer g.mu.Unlock()
		switch {
		case g.closed:
		case err != nil:
			whole = false
			h.problems = append(h.problems, "a report of its launcher is malformed: "+err.Error())
		case m.Record != nil && g.records != nil:
			if err := g.records.Add(h.name, filepath.Base(m.Record.Path), m.Record.Text); err != nil {
				whole = false
				h.problems = append(h.problems, fmt.Sprintf("%s:%s was not brought here: %v", h.name, m.Record.Path, err))
			}
		case m.End != nil:
			h.end, h.failed = m.End, time.Now().Add(-m.End.Ago)
			h.problems = append(h.problems, m.End.Problems...)
			if whole {
				say(keptLine)
			} else {
				say(lostLine)
			}
		}
	})
}

// reported tells whether the launcher of a machine has reported how its ranks ended, or need not.
func (g *gathering) reported(at int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.hosts[at].reports || g.hosts[at].end != nil
}

// blame has a failure be of the machine whose rank was the first to fail, which need not be the first to end.
func (g *gathering) blame(failure *launch.Failure) {
	if g == nil || failure.Asked != 0 {
		return
	}
	ends := slices.Clone(failure.Exits)
	for i, h := range g.hosts {
		if h.end == nil {
			continue
		}
		for _, e := range h.end.Exits {
			if e.Rank == h.end.First {
				e.Rank, e.After = i, h.failed.Sub(failure.Began)
				ends[i] = e
			}
		}
	}
	failure.First = failure.Exits[launch.FirstOf(ends[failure.First.Rank], ends).Rank]
}

// close notes which launchers have ended without a report. What follows reads what is known by then.
func (g *gathering) close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for i := range g.hosts {
		h := &g.hosts[i]
		if h.end != nil || !h.reports {
			continue
		}
		text := "its launcher ended without a report"
		if g.records != nil {
			text += "; what ranks wrote is in " + g.folderOf(h.first) + " of the temporary directory there"
		}
		h.problems = append(h.problems, text)
	}
}

// skipped returns the files among the records of all machines that are none.
func (g *gathering) skipped() []records.Skipped {
	var all []records.Skipped
	for _, h := range g.hosts {
		if h.end == nil {
			continue
		}
		for _, s := range h.end.Skipped {
			all = append(all, records.Skipped{Path: h.name + ":" + s.Path, Reason: s.Reason})
		}
	}
	return all
}

// problems returns a line for each thing that could not be done or found out on a machine.
func (g *gathering) problems() string {
	var b strings.Builder
	for _, h := range g.hosts {
		for _, p := range h.problems {
			fmt.Fprintf(&b, "\non %s: %s", h.name, p)
		}
	}
	return b.String()
}

// complete adds to a report what the machines have said of their ranks.
func (g *gathering) complete(report *runReport, failure *launch.Failure) {
	for i, h := range g.hosts {
		host := hostReport{Host: h.name, Problems: h.problems}
		for rank := range h.ranks {
			host.Ranks = append(host.Ranks, h.first+rank)
		}
		if failure != nil {
			host.Status, host.Signal = failure.Exits[i].Status, failure.Exits[i].Signal
		}
		report.Hosts = append(report.Hosts, host)
		if h.end == nil {
			continue
		}
		if at := &report.Hosts[i]; h.end.Error != "" { // which that launcher has printed
			at.Problems = append([]string{h.end.Error}, at.Problems...)
		}
		if failure != nil && i == failure.First.Rank && !failure.Told {
			report.First = h.end.First
		}
		for _, e := range h.end.Exits {
			e.Host = h.name
			report.Exits = append(report.Exits, e)
		}
	}
}

// verdict says on which machines Shunt's NCCL library was not used; it is empty where all used it.
func (g *gathering) verdict() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.started {
		return ""
	}
	var texts []string
	hosts := map[string][]string{}
	for _, h := range g.hosts {
		text := "it is not known whether the library was used, as the launcher ended without a report"
		if h.end != nil {
			if h.end.NCCL == nil { // said among the problems
				continue
			}
			if text = h.end.NCCL.verdict(); text == "" {
				continue
			}
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		hosts[text] = append(hosts[text], h.name)
	}
	for i, text := range texts {
		texts[i] = "on " + strings.Join(hosts[text], ", ") + ": " + text
	}
	return strings.Join(texts, "; ")
}
