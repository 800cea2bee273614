package launch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/noexec/noexectest"
)

// A file that cannot be executed by the name that was given is not just "not found": the error says how it starts.
func TestAProgramThatCannotBeExecuted(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", filepath.Join(t.TempDir(), "bin"))
	for name, mode := range map[string]os.FileMode{"train.py": 0o644, "main.py": 0o755, "program": 0o755, "data": 0o644} {
		require.NoError(t, os.WriteFile(name, []byte("#!/bin/sh\n"), mode))
	}
	require.NoError(t, os.Mkdir("folder.py", 0o755))
	for program, want := range map[string]string{
		"train.py":   `test: exec: "train.py": executable file not found in $PATH; start a program in Python as: python3 train.py`,
		"./train.py": `test: exec: "./train.py": permission denied; start a program in Python as: python3 ./train.py`,
		"main.py":    `test: exec: "main.py": executable file not found in $PATH; start a program in Python as: python3 main.py`,
		"program":    `test: exec: "program": executable file not found in $PATH; name a program of this directory as ./program`,
		"data":       `test: exec: "data": executable file not found in $PATH; the file is not executable`,
		"folder.py":  `test: exec: "folder.py": executable file not found in $PATH`,
		"missing.py": `test: exec: "missing.py": executable file not found in $PATH`,
	} {
		require.EqualError(t, Run(context.Background(), Job{World: 1, Path: program, Label: "test"}, nil), want)
	}
	require.NoError(t, Run(context.Background(), Job{World: 1, Path: "./program", Label: "test"}, nil))
}

// The name of a program with a folder is as it should be.
func TestAProgramWhereNothingMayRun(t *testing.T) {
	path := noexectest.Copy(t, "/bin/true")
	err := Run(t.Context(), Job{World: 1, Path: path, Label: "test"}, nil)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.ErrorContains(t, err, "permission denied; its file system is mounted noexec; ")
}

// A failed job names ranks that had ended well before: those that failed may have waited for them.
func TestWhoHadEndedBefore(t *testing.T) {
	failed := func(ended ...time.Duration) string {
		f := Failure{Label: "job", World: 16, First: Exit{Rank: 0, PID: 1, Status: 3, After: time.Second}}
		f.Exits = []Exit{f.First}
		for i, after := range ended {
			f.Exits = append(f.Exits, Exit{Rank: 1 + i, PID: 2 + i, After: after})
		}
		return f.Error()
	}
	const early, late = time.Millisecond, time.Minute
	first := "job: rank 0 (pid 1) exited with status 3 after 1s; the job of 16 ended with it"
	require.Equal(t, first, failed(late))
	require.Equal(t, first+"\njob: rank 2 had exited with status 0 before", failed(late, early))
	require.Equal(t, first+"\njob: ranks 1, 3 had exited with status 0 before", failed(early, late, early))
	require.Equal(t, first+"\njob: ranks 1, 2, 3, 4, 5, 6, 7, 8, 2 more had exited with status 0 before",
		failed(slices.Repeat([]time.Duration{early}, 10)...))
}
