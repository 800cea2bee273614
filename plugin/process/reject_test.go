package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/noexec/noexectest"
)

func TestRefusedPluginsSayWhy(t *testing.T) {
	for mode, want := range map[string][]string{
		"exit":      {"exited with status 3 before it could be used", "cannot find libfabric.so.9"},
		"garbage":   {`wrote "Loading… please wait" to stdout where its handshake should be`},
		"endless":   {`wrote "xxxx`, "to stdout where its handshake should be"},
		"version 2": {"speaks contract version 2, this host speaks 1"},
		"version 0": {"speaks contract version 0, this host speaks 1"},
	} {
		t.Run(mode, func(t *testing.T) {
			message := startFails(t, mode)
			for _, w := range want {
				require.Contains(t, message, w)
			}
			require.Less(t, len(message), 1000)
		})
	}
}

// gRPC does not say which text of a message is not UTF-8.
func TestTextsThatAreNotUTF8AreNamed(t *testing.T) {
	require.Contains(t, startFails(t, "Latin-1"), `has the version "1.0 \xe9", which is not printable UTF-8`)
	a := start(t, "Latin-1 reason").Transport().(transport)
	_, err := a.Ask(t.Context(), allReduce)
	require.ErrorIs(t, err, plugin.Protocol)
	require.ErrorContains(t, err, `supports all_reduce: reason "d\xe9sol\xe9" is not printable UTF-8`)
}

// BoringSSL, and with it gRPC in Python and C++, verifies no signature of a key on curve P-521; rustls accepts no
// authority's certificate.
func TestHostsCertificateIsReadEverywhere(t *testing.T) {
	c := start(t, "strict TLS")
	require.Equal(t, "probe", c.Transport().Info().Name)
}

func TestMutualTLSThatFailsIsSaidAtOnce(t *testing.T) {
	for mode, want := range map[string]string{
		"no TLS":            "does not serve mutual TLS on its socket: ",
		"other certificate": "x509: certificate signed by unknown authority",
	} {
		t.Run(mode, func(t *testing.T) {
			message := startFails(t, mode, func(c *Config) { c.StartTimeout = time.Minute })
			require.Contains(t, message, want)
			require.NotContains(t, message, "did not finish its start")
		})
	}
}

// A plugin of another language may reply with any status, which is no failure of TLS.
func TestPluginThatIsUnavailableIsQuoted(t *testing.T) {
	message := startFails(t, "unavailable")
	require.Contains(t, message, "replied to Info that it is unavailable: the device is busy")
}

func TestNewerPluginThatStillSpeaksOurVersionIsAccepted(t *testing.T) {
	c := start(t, "versions 1 and 2")
	require.Equal(t, "probe", c.Transport().Info().Name)
}

func TestStartIsBounded(t *testing.T) {
	message := startFails(t, "silent", func(c *Config) { c.StartTimeout = time.Second })
	require.Contains(t, message, "did not finish its start within 1s: it wrote no handshake line to stdout")

	// A caller's own deadline is the one that is named.
	ctx, cancel := context.WithTimeout(context.Background(), 900*time.Millisecond)
	defer cancel()
	_, err := Start(ctx, testConfig("silent"))
	require.Error(t, err)
	require.Regexp(t, `did not finish its start within \d{3}ms: `, err.Error())

	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	begin := time.Now()
	_, err = Start(ctx, testConfig("silent"))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, plugin.Aborted, plugin.CodeOf(err))
	require.Less(t, time.Since(begin), 5*time.Second)
}

func TestPathsThatAreNoPlugins(t *testing.T) {
	dir := t.TempDir()
	text, script := filepath.Join(dir, "text"), filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(text, []byte("hello"), 0o644))
	require.NoError(t, os.WriteFile(script, []byte("not a binary"), 0o755))
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "no such file",
		dir:                          "is not a regular file",
		text:                         "is not executable",
		script:                       "exec format error",
	} {
		message := startFails(t, "probe", func(c *Config) { c.Path = path })
		require.Contains(t, message, want)
		require.Contains(t, message, path)
	}
}

// A plugin that is pinned runs from memory, so that it may lie anywhere.
func TestPluginWhereNothingMayRun(t *testing.T) {
	right := checksum(t, testConfig("").Path)
	path := noexectest.Copy(t, testConfig("").Path)
	_, err := openExecutable(path, "")
	require.ErrorIs(t, err, plugin.PluginRejected)
	require.ErrorContains(t, err, path+": its file system is mounted noexec; ")
	pinned, err := openExecutable(path, right)
	require.NoError(t, err)
	pinned.close()
}

func checksum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

func TestPinnedChecksum(t *testing.T) {
	self := testConfig("").Path
	right := checksum(t, self)
	wrong := strings.Repeat("0", 64)

	c := start(t, "probe", func(c *Config) { c.SHA256 = strings.ToUpper(right) })
	executable, err := os.Readlink("/proc/" + itoa(c.PID()) + "/exe")
	require.NoError(t, err)
	require.Contains(t, executable, "memfd:", "what was hashed is what runs")

	message := startFails(t, "probe", func(c *Config) { c.SHA256 = wrong })
	require.Contains(t, message, "has checksum "+right+", pinned is "+wrong)
	require.Contains(t, startFails(t, "probe", func(c *Config) { c.SHA256 = "abc" }),
		`its pinned checksum "abc" is not 64 hexadecimal digits`)

	script := filepath.Join(t.TempDir(), "plugin.sh")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexit 0\n"), 0o755))
	require.Contains(t, startFails(t, "probe", func(c *Config) { c.Path, c.SHA256 = script, checksum(t, script) }),
		"a pinned plugin must be a binary")
}

// The file may be replaced after the check: what runs is the copy, which cannot be written.
func TestPinnedCopyCannotChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "true")
	program, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, program, 0o755))
	e, err := openExecutable(path, checksum(t, path))
	require.NoError(t, err)
	defer e.close()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 9\n"), 0o755))

	c := exec.Command(e.path)
	require.NoError(t, c.Run())
	require.Error(t, os.Truncate(e.path, 0))
	if writable, err := os.OpenFile(e.path, os.O_RDWR, 0); err == nil { // its seals refuse what follows
		defer writable.Close()
		length := int64(len(program))
		for name, change := range map[string]func() error{
			"write":    func() error { _, err := writable.WriteAt([]byte{0}, 0); return err },
			"append":   func() error { _, err := writable.WriteAt([]byte{0}, length); return err },
			"shorten":  func() error { return writable.Truncate(length - 1) },
			"lengthen": func() error { return writable.Truncate(length + 1) },
			"cut a hole": func() error {
				const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
				return unix.Fallocate(int(writable.Fd()), hole, 0, 4096)
			},
			"map": func() error {
				_, err := unix.Mmap(int(writable.Fd()), 0, 1, unix.PROT_WRITE, unix.MAP_SHARED)
				return err
			},
			"seal": func() error {
				_, err := unix.FcntlInt(writable.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
				return err
			},
		} {
			require.ErrorIs(t, change(), unix.EPERM, name)
		}
	}
	copied, err := os.ReadFile(e.path)
	require.NoError(t, err)
	require.Equal(t, program, copied)
	require.GreaterOrEqual(t, int(e.file.Fd()), minDescriptor)
}

func TestPluginSeesLittleOfTheEnvironment(t *testing.T) {
	t.Setenv("SHUNT_ID", "secret")
	t.Setenv("LD_PRELOAD", "")
	t.Setenv("CUDA_VISIBLE_DEVICES", "1")
	t.Setenv("SHUNT_NCCL_LIBRARY", "here")
	t.Setenv("SHUNT_NCCL_REGISTER", "on")
	env := pluginEnvironment([]string{"A=b"})
	require.Contains(t, env, "CUDA_VISIBLE_DEVICES=1")
	require.Contains(t, env, "SHUNT_NCCL_LIBRARY=here")
	require.NotContains(t, env, "SHUNT_NCCL_REGISTER=on", "it is an option")
	require.Contains(t, env, "A=b")
	for _, kv := range env {
		require.NotContains(t, kv, "SHUNT_ID")
		require.NotContains(t, kv, "LD_PRELOAD")
	}
}

func TestServeByHandExplainsItself(t *testing.T) {
	config := testConfig("probe")
	c := exec.Command(config.Path)
	c.Env = append(os.Environ(), config.Env...)
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 2, c.ProcessState.ExitCode())
	require.Contains(t, string(out), `This is the Shunt transport "probe"`)
}

func TestCheckHandshake(t *testing.T) {
	certificate := strings.Repeat("A", 100)
	require.NoError(t, checkHandshake("1|1|unix|/run/x/plugin1|grpc|"+certificate+"\n", "/run/x"))
	for line, want := range map[string]string{
		"":                        "wrote",
		"1|1|unix|/run/x/p|grpc|": "offers 0 bytes as its certificate",
		"1|1|unix|/run/x/p|grpc|" + certificate + "==": "want DER in base64 without padding",
		"2|1|unix|/run/x/p|grpc|" + certificate:        "speaks version 2 of go-plugin's protocol, this host speaks 1",
		"1|9|unix|/run/x/p|grpc|" + certificate:        "version 9",
		"1|-1|unix|/run/x/p|grpc|" + certificate:       `version "-1"`,
		"1|1|tcp|127.0.0.1:80|grpc|" + certificate:     "over tcp",
		"1|1|unix|/run/x/p|netrpc|" + certificate:      "netrpc",
		"1|1|unix|/run/y/p|grpc|" + certificate:        "outside its run directory",
		"1|1|unix|/run/x/../p|grpc|" + certificate:     "outside its run directory",
		"1|1|unix|x|grpc|" + certificate:               "outside its run directory",
		"1|1|unix|/run/x|grpc|" + certificate:          "outside its run directory",
		"1|1|unix|/run/x/|grpc|" + certificate:         "outside its run directory",
		"1|1|unix|/run/x/..|grpc|" + certificate:       "outside its run directory",
		"1|1|unix|/run|grpc|" + certificate:            "outside its run directory",
		"1|1|unix|/run/xy/p|grpc|" + certificate:       "outside its run directory",
		"1|1|unix||grpc|" + certificate:                "outside its run directory",
	} {
		err := checkHandshake(line, "/run/x")
		require.ErrorIs(t, err, plugin.PluginRejected, line)
		require.ErrorContains(t, err, want, line)
	}
}
