package option

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitList(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		" , ,":                         nil,
		"shm":                          {"shm"},
		" shm , shared:/a b/x.so ":     {"shm", "shared:/a b/x.so"},
		"process:/x#sha256=ab, shm":    {"process:/x#sha256=ab", "shm"},
		"process:/x,,builtin:shm,\tz ": {"process:/x", "builtin:shm", "z"},
	} {
		require.Equal(t, want, SplitList(text), text)
	}
}

func FuzzSplitList(f *testing.F) {
	f.Add("builtin:shm,process:/x#sha256=00")
	f.Add(",, ,=")
	f.Fuzz(func(t *testing.T, text string) {
		list := SplitList(text)
		if len(list) > strings.Count(text, ",")+1 {
			t.Fatalf("%q: %d entries", text, len(list))
		}
		for _, entry := range list {
			if entry == "" || strings.TrimSpace(entry) != entry {
				t.Fatalf("%q: entry %q", text, entry)
			}
		}
		// Splitting what was joined changes nothing.
		require.Equal(t, list, SplitList(strings.Join(list, ",")))
	})
}
