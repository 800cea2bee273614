package processors

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpare(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, c := range []struct {
		variable  string
		had, want int
	}{{"", 1, 2}, {"", 2, 2}, {"", 3, 3}, {"1", 1, 1}} {
		t.Setenv(Variable, c.variable)
		runtime.GOMAXPROCS(c.had)
		Spare()
		require.Equal(t, c.want, runtime.GOMAXPROCS(0), "%+v", c)
	}
}
