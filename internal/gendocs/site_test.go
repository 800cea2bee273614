package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// The page of the C interface has what its functions take and return, in whichever header it is.
func TestCPageHasTheTables(t *testing.T) {
	page, err := cPage("../..")
	require.NoError(t, err)
	for _, code := range plugin.Codes() {
		require.Contains(t, page, code.Doc())
	}
	for _, dtype := range plugin.DTypes() {
		require.Contains(t, page, dtype.Doc())
	}
	for _, op := range plugin.Ops() {
		require.Contains(t, page, op.Doc())
	}
	for _, collective := range plugin.Collectives() {
		require.Contains(t, page, collective.Doc())
	}
}
