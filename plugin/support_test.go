package plugin

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSupportIsValidated(t *testing.T) {
	good := Algorithm{Name: "a", MinBytes: 1, MaxBytes: 2, Latency: 0, Bandwidth: 1}
	require.NoError(t, Support{Algorithms: []Algorithm{good}}.Validate())
	require.NoError(t, Support{Reason: "no"}.Validate())
	for name, s := range map[string]Support{
		"neither":       {},
		"twice":         {Algorithms: []Algorithm{good, good}},
		"too many":      {Algorithms: make([]Algorithm, 1000)},
		"long reason":   {Reason: strings.Repeat("x", MaxText+1)},
		"escape":        {Reason: "a\x1b[2J"},
		"broken reason": {Reason: "a\xff"},
	} {
		require.ErrorIs(t, s.Validate(), Protocol, name)
	}
	for name, change := range map[string]func(*Algorithm){
		"no name": func(a *Algorithm) { a.Name = "" }, "long name": func(a *Algorithm) {
			a.Name = strings.Repeat("a", MaxName)
		},
		"broken name": func(a *Algorithm) { a.Name = "a\x00" }, "upper case": func(a *Algorithm) { a.Name = "Ring" }, "empty range": func(a *Algorithm) { a.MinBytes = 3 },
		"unknown numerics": func(a *Algorithm) { a.Numerics = NumericsOwn + 1 },
		"negative":         func(a *Algorithm) { a.MaxBytes = -1 }, "NaN": func(a *Algorithm) { a.Latency = math.NaN() },
		"infinite": func(a *Algorithm) { a.Bandwidth = math.Inf(1) }, "no bandwidth": func(a *Algorithm) { a.Bandwidth = 0 },
		"NaN bandwidth":    func(a *Algorithm) { a.Bandwidth = math.NaN() },
		"negative latency": func(a *Algorithm) { a.Latency = -1 },
	} {
		a := good
		change(&a)
		require.ErrorIs(t, Support{Algorithms: []Algorithm{a}}.Validate(), Protocol, name)
	}
}
