package launch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
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

// The exit status is of the failure that the others came of. Where a rank is killed others may be seen to fail before.
func TestFirstOfSeveralFailures(t *testing.T) {
	end := func(rank, status int, signal syscall.Signal, after time.Duration) Exit {
		return Exit{Rank: rank, Status: status, Signal: signal, After: after}
	}
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		want int // rank
		ends []Exit
	}{
		"killed, seen late":   {1, []Exit{end(0, 1, 0, 1000*ms), end(1, -1, 9, 1050*ms), end(2, 1, 0, 1010*ms)}},
		"killed later":        {0, []Exit{end(0, 1, 0, 1000*ms), end(1, -1, 9, 1300*ms)}},
		"the earliest":        {1, []Exit{end(0, 1, 0, 1001*ms), end(1, 3, 0, 1000*ms), end(2, 0, 0, 10*ms)}},
		"aborted of an error": {0, []Exit{end(0, 1, 0, 1000*ms), end(1, -1, syscall.SIGABRT, 1001*ms)}},
		"two are killed":      {2, []Exit{end(0, 1, 0, 1000*ms), end(1, -1, 9, 1020*ms), end(2, -1, 9, 1010*ms)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &running{job: Job{World: len(c.ends), Part: &Part{World: len(c.ends)}}, ended: make(chan Exit, len(c.ends))}
			for _, e := range c.ends {
				r.ended <- e
			}
			require.Equal(t, c.want, r.wait(t.Context(), nil).First.Rank)
		})
	}
	// What the launcher did says nothing.
	first, sent := end(0, 1, 0, 1000*ms), end(1, -1, syscall.SIGTERM, 1001*ms)
	sent.forwarded = true
	require.Equal(t, first, FirstOf(first, []Exit{first, sent}))
	sent.forwarded, sent.Ended = false, true
	require.Equal(t, first, FirstOf(first, []Exit{first, sent}))
	require.Equal(t, sent, FirstOf(sent, []Exit{first, sent}))
}
