package plugin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInfoIsValidated(t *testing.T) {
	good := Info{Name: "shm", Version: "1", Doc: "d", Memory: []MemoryKind{MemoryKindHost}}
	require.NoError(t, good.Validate())
	longest := Info{Name: strings.Repeat("a", MaxName), Version: strings.Repeat("é", MaxText/2), Features: 1 << 63,
		Memory: []MemoryKind{MemoryKindHost, MemoryKindCuda}, MaxWorld: MaxWorld}
	require.NoError(t, longest.Validate())
	for want, change := range map[string]func(*Info){
		"transport name has 0 bytes, want 1 to 64":  func(i *Info) { i.Name = "" },
		"transport name has 65 bytes, want 1 to 64": func(i *Info) { i.Name = strings.Repeat("a", MaxName+1) },
		`transport name "../shm" is not made of`:    func(i *Info) { i.Name = "../shm" },
		`transport name "Shm" is not made of`:       func(i *Info) { i.Name = "Shm" },
		"shm has a version of 513 bytes":            func(i *Info) { i.Version = strings.Repeat("1", MaxText+1) },
		`shm has the version "1\n2\xff", which is`:  func(i *Info) { i.Version = "1\n2\xff" },
		"shm has a doc line of 3145728 bytes":       func(i *Info) { i.Doc = strings.Repeat("x\n\xff", 1<<20) },
		`shm has the doc line "a\nb", which is`:     func(i *Info) { i.Doc = "a\nb" },
		`shm has the doc line "a\x1b[2J", which is`: func(i *Info) { i.Doc = "a\x1b[2J" },
		"shm names 0 memory kinds":                  func(i *Info) { i.Memory = nil },
		"shm names 17 memory kinds":                 func(i *Info) { i.Memory = make([]MemoryKind, 17) },
		"shm names memory kind 9, which is unknown": func(i *Info) { i.Memory = []MemoryKind{9} },
		"shm serves worlds of up to -5 ranks":       func(i *Info) { i.MaxWorld = -5 },
		"shm serves worlds of up to 1025 ranks":     func(i *Info) { i.MaxWorld = MaxWorld + 1 },
	} {
		i := good
		change(&i)
		err := i.Validate()
		require.ErrorIs(t, err, Protocol, want)
		require.ErrorContains(t, err, want)
	}
}
