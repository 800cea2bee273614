package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// An entry has every field of what was recorded, and an op where the collective reduces.
func TestEntriesSayWhatWasRecorded(t *testing.T) {
	got := Entries([]executor.Flight{
		{Number: 7, Collective: plugin.AllReduce, DType: plugin.Float32, Op: plugin.OpMax, Count: 9, Root: -1,
			Symmetric: true, Begin: time.Second, End: 2 * time.Second, Plan: "ring"},
		{Number: 8, Collective: plugin.AllToAllV, DType: plugin.Int8, Op: plugin.OpMax, Root: 3, OnDevice: true},
	})
	require.Equal(t, []Entry{
		{Number: 7, Collective: "all_reduce", DType: plugin.Float32.String(), Op: "max", Count: 9, Root: -1, Symmetric: true,
			Begin: time.Second, End: 2 * time.Second, Plan: "ring", State: "ended"},
		{Number: 8, Collective: "all_to_all_v", DType: plugin.Int8.String(), Root: 3, OnDevice: true, State: "running"},
	}, got)
}

// A failure counts most; what was put into a stream has no end that is seen.
func TestHowFarAnEntryHasCome(t *testing.T) {
	for want, flights := range map[string][]executor.Flight{
		"running":  {{}, {Begin: 1}},
		"ended":    {{End: 1}},
		"enqueued": {{Enqueued: true}, {Enqueued: true, End: 1}},
		"failed":   {{Failed: true}, {Failed: true, End: 1}, {Failed: true, Enqueued: true}},
	} {
		for _, e := range Entries(flights) {
			require.Equal(t, want, e.State)
		}
	}
}

// The longest words are read, and no longer one, whichever it is.
func TestWordsOfAReportAreBounded(t *testing.T) {
	for name, set := range map[string]func(h *Head, word string){
		"job":        func(h *Head, word string) { h.Job = word },
		"host":       func(h *Head, word string) { h.Host = word },
		"code":       func(h *Head, word string) { h.Code = word },
		"collective": func(h *Head, word string) { h.Last.Collective = word },
	} {
		for length, ok := range map[int]bool{maxWord: true, maxWord + 1: false} {
			h := sample().Head
			set(&h, strings.Repeat("x", length))
			text, err := json.Marshal(h)
			require.NoError(t, err)
			_, err = ReadHead(strings.NewReader(string(text)))
			require.Equal(t, ok, err == nil, "%s of %d bytes: %v", name, length, err)
		}
	}
}
