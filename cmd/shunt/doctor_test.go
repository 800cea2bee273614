package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A tuning file of which nothing counts is no secret of the log.
func TestDoctorOfTuningFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"shunt_tuning": 1, "entries": [{"collective": "all_reduce", "algorithm":
		"shm/two_shot", "world": 3, "points": [{"bytes": 8, "us": 1}]}]}`), 0o600))
	t.Setenv("SHUNT_TUNING_FILE", path)
	stdout, stderr, code := shunt(t, "doctor")
	require.Zero(t, code, stderr)
	require.Regexp(t, `warn +ranks +tuning file communicator=world entries=1 for_it=0 world=2`, stdout)
	_, stderr, _ = shunt(t, "explain", "-n", "2", "--memory", "host", "all_reduce")
	require.Contains(t, stderr, `msg="tuning file" communicator=world entries=1 for_it=0 world=2`)
	stdout, stderr, code = shunt(t, "doctor", "-n", "3")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, "tuning file")
}

// Variables of transports are set too, and only what a transport complains of is at fault.
func TestDoctorOfTransportVariables(t *testing.T) {
	t.Setenv("SHUNT_NCCL_REGISTER", "on")
	t.Setenv("SHUNT_NCCL_LIBRARY", "")
	t.Setenv("SHUNT_UCX_LIBRAY", "/x")
	var details []string
	for _, f := range checkEnvironment(t.Context(), 2) {
		details = append(details, f.Detail)
	}
	require.Subset(t, details, []string{"SHUNT_NCCL_REGISTER=on", "SHUNT_UCX_LIBRAY=/x"})
	t.Setenv("LD_LIBRARY_PATH", t.TempDir())
	for _, f := range checkTransports(t.Context(), 2) {
		if strings.Contains(f.Detail, "no NCCL library was found") {
			require.Empty(t, f.Advice, f.Detail)
			require.Equal(t, fine, f.Level)
		}
	}
}
