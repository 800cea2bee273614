package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

func sample() *Report {
	c := func(v plugin.Collective) *Case { return &Case{Collective: v, World: 2} }
	return &Report{Transport: "builtin:t", Duration: time.Second, Results: []CaseResult{
		{Name: "a", Case: c(plugin.AllReduce), Outcome: Passed, Time: time.Millisecond},
		{Name: "b", Case: c(plugin.AllReduce), Outcome: Failed, Detail: "rank 1: \x1b[31mwrong\n<&>", Time: time.Millisecond},
		{Name: "c", Case: c(plugin.Broadcast), Outcome: Skipped, Detail: "no buffers"},
	}}
}

func TestReportFailsWhenNothingRan(t *testing.T) {
	r := sample()
	if err := r.Err(); err == nil || !strings.HasSuffix(err.Error(), "1 of 3 cases failed: b") {
		t.Errorf("error %v", err)
	}
	for name := range strings.FieldsSeq("d e f g h i") {
		r.Results = append(r.Results, CaseResult{Name: name, Outcome: Failed})
	}
	if err := r.Err(); !strings.HasSuffix(err.Error(), "7 of 9 cases failed: b, d, e, f, g, and 2 more") {
		t.Errorf("error %v", err)
	}
	r = sample()
	r.Results = r.Results[2:]
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "no case ran, 1 was skipped") {
		t.Errorf("error %v", err)
	}
	r.Results = sample().Results[:1]
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func TestReportText(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"skipped 1: no buffers", "FAILED b", "all_reduce", "1 of 3 cases failed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// The last line says what a run has not proved.
func TestReportConclusion(t *testing.T) {
	all := sample().Results
	passed, skipped := all[0], all[2]
	other := skipped // of a collective that ran
	other.Case = passed.Case
	late := CaseResult{Name: "d", Case: &Case{Scenario: "late_rank", World: 2}, Outcome: Skipped}
	eager := passed
	eager.Case = &Case{Collective: plugin.AllReduce, World: 2, Axis: Axes(plugin.MemoryKindCuda, Eager)[0]}
	var worlds Report
	worlds.lack(8, 4, nil)
	for want, results := range map[string][]CaseResult{
		"1 case passed": {passed},
		"2 cases passed, 1 was skipped; nothing ran of broadcast":            {passed, passed, skipped},
		"1 case passed, 3 were skipped; nothing ran of late_rank, broadcast": {late, skipped, passed, late},
		"1 case passed, 1 was skipped":                                       {other, passed},
		"2 cases passed, 1 was skipped":                                      {passed, worlds.Results[0], passed},
		"1 case passed (1 eager), 1 was skipped; nothing ran of late_rank":   {eager, late},
		"conformance of builtin:t: 1 of 3 cases failed: b":                   all,
		"conformance of builtin:t: no case ran, 2 were skipped":              {skipped, late},
	} {
		var b bytes.Buffer
		r := Report{Transport: "builtin:t", Results: results}
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(b.String(), "\n\n"+want+"\n") {
			t.Errorf("want %q at the end of\n%s", want, b.String())
		}
	}
}

func TestReportJSONComesBack(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Count(Failed) != 1 || back.Results[1].Case.Collective != plugin.AllReduce {
		t.Errorf("%+v", back)
	}
}

func TestReportJUnitIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var back junitSuites
	if err := xml.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	if len(back.Suites) != 2 || back.Suites[0].Failures != 1 || back.Suites[1].Skipped != 1 ||
		back.Suites[0].Cases[1].Failure.Text != "rank 1: [31mwrong\n<&>" {
		t.Errorf("%+v", back)
	}
}
