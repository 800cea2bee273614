package printable

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"node 1":                     "node 1",
		"\x1b[31mred\x1b[0m\r\nx":    "[31mred [0m x",
		"a\u0085b\u009bc\u202ed\xff": "a b c d\ufffd",
		"\t":                         "",
		"größer … 漢":                 "größer … 漢",
	} {
		require.Equal(t, want, Line(text))
	}
}

func TestCopy(t *testing.T) {
	type inner struct{ Text []string }
	type value struct {
		Number int64
		Inner  map[string]inner
		Same   *string
	}
	text := "\x07<x>"
	from := value{math.MaxInt64 - 1, map[string]inner{"a": {[]string{"\x1bb", "c"}}}, &text}
	var to value
	require.NoError(t, Copy(&to, &from))
	clean := "<x>"
	require.Equal(t, value{math.MaxInt64 - 1, map[string]inner{"a": {[]string{"b", "c"}}}, &clean}, to)
	require.Equal(t, "\x07<x>", text, "what is copied stays")
}
