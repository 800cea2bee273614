package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitTransports(t *testing.T) {
	for text, want := range map[string][]string{
		"":                            nil,
		" , ,":                        nil,
		"shm":                         {"shm"},
		" shm , shared:/a b/x.so ":    {"shm", "shared:/a b/x.so"},
		"process:/x,sha256=ab,shm":    {"process:/x,sha256=ab", "shm"},
		"sha256=ab":                   {"sha256=ab"},
		"process:/x, sha256=ab , shm": {"process:/x,sha256=ab", "shm"},
	} {
		require.Equal(t, want, splitTransports(text), text)
	}
}

func FuzzSplitTransports(f *testing.F) {
	f.Add("builtin:shm,process:/x,sha256=00")
	f.Add(",,sha256=,=")
	f.Fuzz(func(t *testing.T, text string) {
		list := splitTransports(text)
		if len(list) > strings.Count(text, ",")+1 {
			t.Fatalf("%q: %d entries", text, len(list))
		}
		for _, entry := range list {
			if entry == "" || strings.TrimSpace(entry) != entry {
				t.Fatalf("%q: entry %q", text, entry)
			}
		}
		// Splitting what was joined changes nothing.
		require.Equal(t, list, splitTransports(strings.Join(list, ",")))
	})
}
