package plugin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is in a table is valid, and the next value is not: with a new row Valid must be extended.
func TestValid(t *testing.T) {
	collectives, dtypes, ops := Collectives(), DTypes(), Ops()
	for _, v := range collectives {
		require.True(t, v.Valid(), v)
	}
	for _, v := range dtypes {
		require.True(t, v.Valid(), v)
		require.Positive(t, v.Bytes(), v)
	}
	for _, v := range ops {
		require.True(t, v.Valid(), v)
	}
	require.False(t, (collectives[len(collectives)-1] + 1).Valid())
	require.False(t, (dtypes[len(dtypes)-1] + 1).Valid())
	require.False(t, (ops[len(ops)-1] + 1).Valid())
}
