package process

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	goplugin "github.com/hashicorp/go-plugin"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// The cookie tells a person who runs a plugin by hand what it is. It is no
// secret: AutoMTLS authenticates.
const (
	cookieKey   = "SHUNT_PLUGIN_COOKIE"
	cookieValue = "shunt-transport"
	serviceName = "transport"
)

// hostPidEnv tells the plugin its host's pid, so that a plugin whose host died
// before it could look notices.
const hostPidEnv = "SHUNT_PLUGIN_HOST_PID"

// maxHandshake bounds the handshake line; a real one has about 800 bytes, most
// of it the certificate.
const maxHandshake = 8192

func handshakeConfig() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}
}

// checkHandshake checks the line by which a plugin says where it listens:
//
//	1|contract version|unix|socket path|grpc|certificate
//
// The socket must be inside dir, so that a plugin cannot send the host
// elsewhere, and the certificate must be there, so that it cannot do without.
func checkHandshake(line, dir string) error {
	line = strings.TrimSpace(line)
	parts := strings.Split(line, "|")
	core, err := strconv.ParseUint(parts[0], 10, 31)
	if len(parts) < 6 || err != nil {
		return plugin.Errorf(plugin.PluginRejected, "wrote %q to stdout where its handshake should be", clip(line, 200))
	}
	if core != goplugin.CoreProtocolVersion {
		return plugin.Errorf(plugin.PluginRejected, "speaks version %d of go-plugin's protocol, this host speaks %d", core,
			goplugin.CoreProtocolVersion)
	}
	version, err := strconv.ParseUint(parts[1], 10, 31)
	if err != nil {
		return plugin.Errorf(plugin.PluginRejected, "says contract version %q", clip(parts[1], 40))
	}
	if version != plugin.VersionMajor {
		return plugin.Errorf(plugin.PluginRejected, "speaks contract version %d, this host speaks %d", version,
			plugin.VersionMajor)
	}
	if parts[2] != "unix" || parts[4] != "grpc" {
		return plugin.Errorf(plugin.PluginRejected, "offers %s over %s, want grpc over unix", clip(parts[4], 40),
			clip(parts[2], 40))
	}
	if rel, err := filepath.Rel(dir, parts[3]); err != nil || !filepath.IsAbs(parts[3]) || rel == "." || rel == ".." ||
		strings.HasPrefix(rel, "../") {
		return plugin.Errorf(plugin.PluginRejected, "listens at %q, outside its run directory", clip(parts[3], 200))
	}
	if der, err := base64.RawStdEncoding.DecodeString(parts[5]); err != nil || len(der) < 50 {
		return plugin.Errorf(plugin.PluginRejected,
			"offers %d bytes as its certificate for mutual TLS, want DER in base64 without padding", len(parts[5]))
	}
	return nil
}

// inherited lists the variables of the host's environment that a plugin sees. Everything
// else stays out: a job's secret, preloads, and settings of the host's own libraries.
var inherited = []string{
	"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
	"GOTRACEBACK", "GODEBUG", "GOMAXPROCS", "GOCOVERDIR", "GORACE",
	"SHUNT_NCCL_LIBRARY", "VIRTUAL_ENV", "CONDA_PREFIX", // where NVIDIA's libraries are, for Supports, which gets no options
}

var inheritedPrefixes = []string{"LC_", "CUDA_", "NVIDIA_", "NCCL_"}

func pluginEnvironment(extra []string) []string {
	env := []string{hostPidEnv + "=" + strconv.Itoa(os.Getpid())}
	for _, kv := range environment.All() {
		key, _, _ := strings.Cut(kv, "=")
		keep := false
		for _, k := range inherited {
			keep = keep || key == k
		}
		for _, p := range inheritedPrefixes {
			keep = keep || strings.HasPrefix(key, p)
		}
		if keep {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}
