package conformance

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Outcome is the outcome of a case.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// CaseResult is one case's end.
type CaseResult struct {
	Name    string  `json:"name"`
	Case    *Case   `json:"case,omitempty"` // nil for opening and closing communicators
	Outcome Outcome `json:"outcome"`
	// failed: every rank's error and output; skipped: the capability that is absent
	Detail    string        `json:"detail,omitempty"`
	Algorithm string        `json:"algorithm,omitempty"` // that ran
	Time      time.Duration `json:"nanoseconds"`
}

// communicators is the group of opening and closing them, and of worlds that could not be had.
const communicators = "communicator"

// group returns the collective or scenario of a case, for summaries.
func (r *CaseResult) group() string {
	switch {
	case r.Case == nil:
		return communicators
	case r.Case.Scenario != "":
		return r.Case.Scenario
	}
	return r.Case.Collective.String()
}

// Report is the result of a run.
type Report struct {
	Transport string        `json:"transport"`
	Memory    string        `json:"memory"`
	Info      plugin.Info   `json:"info"`
	Short     bool          `json:"short"`
	Seed      uint64        `json:"seed"`
	Worlds    []int         `json:"worlds"`
	Hosts     []int         `json:"hosts"` // that each world pretended to run on, in turn
	Go        string        `json:"go,omitempty"`
	Started   time.Time     `json:"started"`
	Duration  time.Duration `json:"nanoseconds"`
	Results   []CaseResult  `json:"results"`

	unmatched string // the filter, where no case of the worlds that ran has a name that it matches
}

// Count returns the number of cases with the given outcome.
func (r *Report) Count(o Outcome) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Outcome == o {
			n++
		}
	}
	return n
}

// lack records that a world could not be had.
func (r *Report) lack(world, devices int, reason error) {
	detail := fmt.Sprintf("needs %d GPUs, there are %d; SHUNT_SHARE_GPU=on lets ranks share", world, devices)
	if reason != nil {
		detail = reason.Error()
	}
	r.Results = append(r.Results, CaseResult{Name: fmt.Sprintf("world/w%d", world), Outcome: Skipped, Detail: detail})
}

// Err returns nil when at least one case passed and none failed. A run that only
// skipped has proved nothing and is an error.
func (r *Report) Err() error {
	if n := r.Count(Failed); n > 0 {
		return fmt.Errorf("conformance of %s: %d of %d cases failed: %s", r.Transport, n, len(r.Results), r.failed())
	}
	switch {
	case r.unmatched != "":
		return fmt.Errorf("conformance of %s: no case of worlds %v has a name that %q matches", r.Transport, r.Worlds,
			r.unmatched)
	case r.Count(Passed) == 0:
		return fmt.Errorf("conformance of %s: no case ran, %s", r.Transport, were(r.Count(Skipped), "skipped"))
	}
	return nil
}

// were returns how many cases were something.
func were(n int, what string) string {
	if n == 1 {
		return "1 was " + what
	}
	return fmt.Sprintf("%d were %s", n, what)
}

// unproved names the collectives and scenarios of which all cases were skipped.
func (r *Report) unproved() string {
	var names []string
	for _, t := range r.summary() {
		if t.passed+t.failed == 0 && t.name != communicators {
			names = append(names, t.name)
		}
	}
	return strings.Join(names, ", ")
}

// conclusion is the last line of the text of a run that passed.
func (r *Report) conclusion() string {
	text := "1 case passed"
	if n := r.Count(Passed); n != 1 {
		text = fmt.Sprintf("%d cases passed", n)
	}
	if modes := r.modes(); modes != "" {
		text += " (" + modes + ")"
	}
	if n := r.Count(Skipped); n > 0 {
		text += ", " + were(n, "skipped")
	}
	if names := r.unproved(); names != "" {
		text += "; nothing ran of " + names
	}
	return text
}

// failed names the cases that failed, the first of many.
func (r *Report) failed() string {
	const most = 5
	var names []string
	for i := range r.Results {
		if r.Results[i].Outcome == Failed {
			names = append(names, r.Results[i].Name)
		}
	}
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// tally is one line of a summary.
type tally struct {
	name                    string
	passed, failed, skipped int
	time                    time.Duration
}

// summary counts by collective and scenario, in the order they first ran.
func (r *Report) summary() []tally {
	var lines []tally
	for i := range r.Results {
		result := &r.Results[i]
		at := slices.IndexFunc(lines, func(t tally) bool { return t.name == result.group() })
		if at < 0 {
			at = len(lines)
			lines = append(lines, tally{name: result.group()})
		}
		switch result.Outcome {
		case Passed:
			lines[at].passed++
		case Failed:
			lines[at].failed++
		case Skipped:
			lines[at].skipped++
		}
		lines[at].time += result.Time
	}
	return lines
}

// modes counts the cases that passed by how they were executed.
func (r *Report) modes() string {
	counts := map[Mode]int{}
	for i := range r.Results {
		if result := &r.Results[i]; result.Case != nil && result.Outcome == Passed {
			mode, _ := result.Case.Axis.parts()
			counts[mode]++
		}
	}
	var parts []string
	for _, mode := range Modes() {
		if counts[mode] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[mode], mode))
		}
	}
	return strings.Join(parts, ", ")
}

// skips returns the reasons for skips and how often each was given.
func (r *Report) skips() (reasons []string, times map[string]int) {
	times = map[string]int{}
	for i := range r.Results {
		if result := &r.Results[i]; result.Outcome == Skipped {
			if times[result.Detail] == 0 {
				reasons = append(reasons, result.Detail)
			}
			times[result.Detail]++
		}
	}
	return reasons, times
}

// WriteText writes the report for a reader: a table of counts, every failure
// in full, every reason for a skip.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s %s), %s memory, worlds %v, hosts %v\n\n", r.Transport, r.Info.Name, r.Info.Version, r.Memory,
		r.Worlds, r.Hosts)
	fmt.Fprintf(&b, "%-20s %8s %8s %8s %10s\n", "", "passed", "failed", "skipped", "seconds")
	for _, t := range r.summary() {
		fmt.Fprintf(&b, "%-20s %8d %8d %8d %10.2f\n", t.name, t.passed, t.failed, t.skipped, t.time.Seconds())
	}
	fmt.Fprintf(&b, "%-20s %8d %8d %8d %10.2f\n", "all", r.Count(Passed), r.Count(Failed), r.Count(Skipped),
		r.Duration.Seconds())
	reasons, times := r.skips()
	for _, reason := range reasons {
		fmt.Fprintf(&b, "\nskipped %d: %s\n", times[reason], reason)
	}
	for i := range r.Results {
		if result := &r.Results[i]; result.Outcome == Failed {
			fmt.Fprintf(&b, "\nFAILED %s\n%s\n", result.Name, indent(result.Detail))
		}
	}
	if err := r.Err(); err != nil {
		fmt.Fprintf(&b, "\n%v\n", err)
	} else {
		fmt.Fprintf(&b, "\n%s\n", r.conclusion())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }

// WriteJSON writes the whole report.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(r)
}

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Time      string      `xml:"time,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as JUnit XML, a suite for each collective and
// scenario.
func (r *Report) WriteJUnit(w io.Writer) error {
	var suites junitSuites
	for _, t := range r.summary() {
		suite := junitSuite{
			Name: r.Transport + " " + t.name, Tests: t.passed + t.failed + t.skipped, Failures: t.failed, Skipped: t.skipped,
			Time: seconds(t.time), Timestamp: r.Started.UTC().Format("2006-01-02T15:04:05"),
		}
		for i := range r.Results {
			result := &r.Results[i]
			if result.group() != t.name {
				continue
			}
			c := junitCase{Class: r.Transport, Name: result.Name, Time: seconds(result.Time)}
			line, _, _ := strings.Cut(result.Detail, "\n")
			switch result.Outcome {
			case Failed:
				c.Failure = &junitMessage{Message: printable(line), Text: printable(result.Detail)}
			case Skipped:
				c.Skipped = &junitMessage{Message: printable(line)}
			}
			suite.Cases = append(suite.Cases, c)
		}
		suites.Suites = append(suites.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", " ")
	return errors.Join(encoder.Encode(suites), encoder.Close())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }

// printable drops what XML 1.0 cannot hold, such as escape codes of colors.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}
