package main

import (
	"testing"

	"github.com/shunt-ccl/shunt/transports/internal/carriedtest"
	"github.com/shunt-ccl/shunt/transports/shm"
)

var carrier = carriedtest.Process()

func TestMain(m *testing.M) { carrier.Main(m) }

// The carrier changes nothing: every plan of every collective is the one that
// the transport makes when it is linked in.
func TestPlansAreThoseOfTheBuiltin(t *testing.T) {
	carriedtest.SamePlans(t, carrier.Load(t), shm.Transport{})
}

// Ranks whose memory comes through the carrier compute what they should.
func TestCollectivesRun(t *testing.T) { carriedtest.Collectives(t, carrier) }
