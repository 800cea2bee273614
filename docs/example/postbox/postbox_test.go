package postbox_test

import (
	"os"
	"testing"

	"github.com/shunt-ccl/shunt/docs/example/postbox"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/pool"
)

func TestMain(m *testing.M) {
	host.Register(postbox.Transport{})
	pool.Main() // ranks are copies of this binary
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	conformance.Test(t, conformance.Config{Transport: "builtin:postbox", Worlds: []int{1, 3}, Short: true})
}
