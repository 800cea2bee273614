package ucx

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A bridge of this host alone is left out: not one with a port that leads out, nor one that a default route uses, and
// none where RDMA devices would have to be named too.
func TestWhatIsLeftOut(t *testing.T) {
	const interfaces = "sys/class/net/"
	const routes = "Iface\tDestination\tGateway \tFlags\neth0\t00000000\t0100000A\t0003\n" +
		"docker0\t000011AC\t00000000\t0001\nlab0\t0000000A\t00000000\t0001\n"
	host := map[string]string{
		interfaces + "eth0/device/vendor":       "",
		interfaces + "docker0/bridge/stp_state": "0",
		interfaces + "docker0/brif/veth1/state": "3",
		interfaces + "veth1/brport/state":       "3",
		interfaces + "virbr0/bridge/stp_state":  "1",
		interfaces + "virbr0/brif/.none":        "",
		interfaces + "br0/bridge/stp_state":     "0",
		interfaces + "br0/brif/veth2/state":     "3",
		interfaces + "br0/brif/eth1/state":      "3",
		interfaces + "veth2/brport/state":       "3",
		interfaces + "eth1/device/vendor":       "",
		interfaces + "br1/bridge/stp_state":     "0",
		interfaces + "br1/brif/bond0/state":     "3",
		interfaces + "bond0/lower_eth2/mtu":     "1500",
		interfaces + "lab0/bridge/stp_state":    "0",
		interfaces + "lab0/brif/veth3/state":    "3",
		interfaces + "veth3/brport/state":       "3",
		"proc/net/route":                        routes,
	}
	for _, c := range []struct {
		what   string
		extra  map[string]string
		active []string
		use    string
		left   []string
	}{
		{"bridges of all kinds", nil, []string{"lo", "br0", "br1", "docker0", "eth0", "virbr0"}, "lo,br0,br1,eth0",
			[]string{"docker0", "virbr0"}},
		{"no bridge", nil, []string{"lo", "eth0", "bond0", "gone"}, "", nil},
		{"a bridge without a default route", nil, []string{"eth0", "lab0"}, "eth0", []string{"lab0"}},
		{"a default route by the bridge", map[string]string{"proc/net/route": routes + "lab0\t00000000\t0200000A\t0003\n"},
			[]string{"eth0", "lab0"}, "", nil},
		{"RDMA", map[string]string{"sys/class/infiniband/mlx5_0/node_type": "1: CA\n"}, []string{"eth0", "docker0"}, "",
			nil},
	} {
		root, files := t.TempDir(), maps.Clone(host)
		maps.Copy(files, c.extra)
		for path, text := range files {
			path = filepath.Join(root, path)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		use, left := netDevices(root, c.active)
		assert.Equal(t, c.use, use, c.what)
		assert.Equal(t, c.left, left, c.what)
	}
}

// UCX is told to use what is left, unless the program's user says what it uses.
func TestUCXIsToldWhatToUse(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/class/net/docker0/brif"), 0o700))
	fileSystem, activeInterfaces = root, func() []string { return []string{"docker0", "eth0", "eth1"} }
	defer func() { fileSystem, activeInterfaces = "", findInterfaces }()
	for _, c := range []struct{ variable, value, want string }{
		{"UCX_TLS", "all", "eth0,eth1"}, {"UCX_TLS", "rc,self", ""}, {devicesVariable, "docker0", ""},
	} {
		t.Run(c.variable+"="+c.value, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			at := loadSlow(t, -3)
			require.NoError(t, os.WriteFile(at("end"), nil, 0o600))
			e, err := Transport{}.Open(t.Context(), plugin.OpenConfig{World: 2})
			require.NoError(t, err)
			_, err = e.(plugin.Exchanger).Publish(t.Context(), plugin.Exchange{Algorithm: direct})
			assert.ErrorIs(t, err, plugin.System)
			devices, err := os.ReadFile(at("devices"))
			assert.Equal(t, c.want == "", os.IsNotExist(err), "%v", err)
			assert.Equal(t, c.want, string(devices))
			assert.NoError(t, e.Close())
		})
	}
}
