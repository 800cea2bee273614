package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// The program that measures Open MPI is compiled: a compiler that is installed without its headers is not enough.
func TestDependenciesOfBenchPeers(t *testing.T) {
	for name, c := range map[string]struct {
		mpicc, mpirun string
		install       bool
	}{
		"all is there":      {`exec cc -I"$(dirname "$0")" "$@"`, "exit 0", false},
		"no headers":        {`exec cc "$@"`, "exit 0", true},
		"no compiler":       {"exit 127", "exit 0", true},
		"no command to run": {`exec cc -I"$(dirname "$0")" "$@"`, "exit 127", true},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			installed := filepath.Join(bin, "installed")
			programs := map[string]string{"mpicc": c.mpicc, "mpirun": c.mpirun, "id": "echo 0",
				"apt-get": "echo \"$@\" >>'" + installed + "'"}
			for program, text := range programs {
				text = "#!/bin/sh\n" + text + "\n"
				require.NoError(t, os.WriteFile(filepath.Join(bin, program), []byte(text), 0o700)) //nolint:gosec // it is run
			}
			require.NoError(t, os.WriteFile(filepath.Join(bin, "mpi.h"), nil, 0o600))
			command := builttest.Command("make", "-s", "-C", "../..", "deps-mpi")
			command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MAKEFLAGS=")
			out, err := command.CombinedOutput()
			require.NoError(t, err, "%s", out)
			text, err := os.ReadFile(installed)
			require.Equal(t, c.install, err == nil, "%s", out)
			if c.install {
				require.Contains(t, string(text), " openmpi-bin libopenmpi-dev\n")
			}
		})
	}
}
