//go:build !race

package conformance_test

import "github.com/shunt-ccl/shunt/tests/conformance"

var worlds = conformance.DefaultWorlds()
