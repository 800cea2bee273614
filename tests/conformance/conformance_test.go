package conformance_test

import (
	"flag"
	"regexp"
	"testing"

	"go.uber.org/goleak"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/device/machine"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/shm"
)

var (
	full   = flag.Bool("conformance.full", false, "run the full matrix")
	filter = flag.String("conformance.filter", "", "regular expression: run the cases whose name it matches")
	world  = flag.Int("conformance.world", 0, "run one world only")
	seed   = flag.Uint64("conformance.seed", 0, "as Config.Seed")
	mode   = flag.String("conformance.mode", "", "on devices: run one mode only")
)

func TestMain(m *testing.M) {
	host.Register(shm.Transport{})
	host.Register(nonsense{})
	host.Register(messages{})
	cudaipc := machine.Transport()
	host.Register(cudaipc)
	host.Register(uncounted{cudaipc})
	host.Register(machine.NCCL())
	host.Register(machine.StagedNCCL(stagedBytes))
	machine.JoinNCCL()
	pool.Main()
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// config returns the configuration that the flags ask for, on one transport.
func config(t *testing.T, transport string) conformance.Config {
	t.Helper()
	cfg := conformance.Config{Transport: transport, Worlds: worlds, Short: !*full, MaxFailures: 20, Seed: *seed}
	if !*full && *filter == "" {
		cfg.DTypes = dtypes
	}
	if *world > 0 {
		cfg.Worlds = []int{*world}
	}
	if *filter != "" {
		var err error
		if cfg.Filter, err = regexp.Compile(*filter); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// carried returns the config of a transport that builtin:shm has run with in every world:
// shm itself, or algorithms of the host.
func carried(t *testing.T, transport string) conformance.Config {
	t.Helper()
	cfg := config(t, transport)
	if *world == 0 && !*full {
		cfg.Worlds = carriedWorlds
	}
	return cfg
}

func modes(t *testing.T) []conformance.Mode {
	t.Helper()
	if *mode == "" {
		return nil
	}
	return []conformance.Mode{conformance.Mode(*mode)}
}
