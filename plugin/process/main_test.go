package process

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// modeEnv makes the test binary behave as a plugin, or as a host that a test
// can kill.
const modeEnv = "SHUNT_TEST_PLUGIN"

var modes = map[string]func(){
	"probe": func() { Serve(probe.Transport{}) },
	"directories": func() {
		dir := os.Getenv(goplugin.EnvUnixSocketDir)
		inner, _ := os.Stat(dir)
		outer, _ := os.Stat(filepath.Dir(dir))
		fmt.Fprintf(os.Stderr, "run directory %v, below it %v\n", outer.Mode(), inner.Mode())
		os.Exit(3)
	},
	"exit": func() {
		fmt.Fprintln(os.Stderr, "cannot find libfabric.so.9")
		os.Exit(3)
	},
	"garbage": func() {
		fmt.Println("Loading… please wait")
		Serve(probe.Transport{})
	},
	"endless": func() {
		block := strings.Repeat("x", 1<<16)
		for {
			if _, err := os.Stdout.WriteString(block); err != nil {
				return
			}
		}
	},
	"panic": func() {
		debug.SetTraceback("all")
		for range 200 {
			go wait()
		}
		panic("no device has a name")
	},
	"silent":            wait,
	"strict TLS":        serveStrictly,
	"no TLS":            func() { serveBare(false, false) },
	"other certificate": func() { serveBare(true, true) },
	"no health":         func() { serveBare(true, false) },
	"statuses": func() { // one after the other, to whom it does not know: to a health check
		code := codes.OK
		serveBare(true, false, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			code++
			return status.Error(code, "busy")
		}))
	},
	"unavailable": func() {
		serveBare(true, false, grpc.UnaryInterceptor(func(_ context.Context, _ any, _ *grpc.UnaryServerInfo,
			_ grpc.UnaryHandler) (any, error) {
			return nil, status.Error(codes.Unavailable, "the device is busy")
		}))
	},
	"without close_range": withoutCloseRange,
	"inherited":           func() { fmt.Println(inheritedDescriptors()); os.Exit(0) },
	"descriptors": func() {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			panic(err)
		}
		for _, e := range entries {
			target, _ := os.Readlink("/proc/self/fd/" + e.Name())
			fd, _ := strconv.Atoi(e.Name())
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			if err == nil && flags&unix.FD_CLOEXEC == 0 {
				fmt.Fprintf(os.Stderr, "inherited %s %s\n", e.Name(), target)
			}
		}
		fmt.Fprintln(os.Stderr, "that is all")
		Serve(probe.Transport{})
	},
	"hostile": func() {
		for _, line := range hostileLines {
			fmt.Fprintln(os.Stderr, line)
		}
		Serve(probe.Transport{})
	},
	"chatty": func() {
		slog.SetDefault(slog.New(logHandler(os.Stderr)))
		slog.Warn("a structured line", "count", 7)
		fmt.Fprintln(os.Stderr, "a plain line")
		Serve(probe.Transport{})
	},
	"version 2": func() { serveVersions(2) },
	"version 0": func() { serveVersions(0) },
	"versions 1 and 2": func() {
		os.Setenv(modeEnv, "")
		serveVersions(1, 2)
	},
	"grandchild": func() {
		c := exec.Command("/bin/sleep", "1000")
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "grandchild %d\n", c.Process.Pid)
		Serve(probe.Transport{})
	},
	"stubborn": func() {
		Serve(probe.Transport{})
		wait() // shut down in RPC, but never exits
	},
	"Goexit":         func() { Serve(exiting{}) },
	"last words":     func() { Serve(lastWords{}) },
	"Latin-1":        func() { Serve(latin{version: "1.0 \xe9"}) },
	"Latin-1 reason": func() { Serve(latin{version: "1.0"}) },
	"bad end": func() {
		fmt.Fprintln(os.Stderr, "a plain line")
		socket, err := unix.Dup(descriptorFD)
		if err != nil {
			panic(err)
		}
		Serve(frameless{socket: socket})
		os.Exit(3)
	},
	"spinning": func() {
		Serve(probe.Transport{})
		for {
			runtime.Gosched()
		}
	},
	"slow end": func() {
		Serve(probe.Transport{})
		for begin := processorTime(os.Getpid()); processorTime(os.Getpid())-begin < 2500*time.Millisecond; {
		}
	},
	"host": func() {
		c, err := Start(context.Background(), testConfig("probe"))
		if err != nil {
			panic(err)
		}
		fmt.Println(c.PID())
		wait()
	},
}

// frameless passes what is no descriptor when it is asked what it supports.
type frameless struct {
	probe.Transport
	socket int
}

func (f frameless) Supports(plugin.Request) plugin.Support {
	_, _ = unix.Write(f.socket, []byte("no frame"))
	return plugin.Support{Reason: "it does nothing"}
}

// latin is a transport with texts that are not UTF-8.
type latin struct {
	probe.Transport
	version string
}

func (l latin) Info() plugin.Info {
	i := l.Transport.Info()
	i.Version = l.version
	return i
}

func (latin) Supports(plugin.Request) plugin.Support {
	return plugin.Support{Reason: "d\xe9sol\xe9"}
}

// exiting is a transport whose methods end their goroutines.
type exiting struct{ probe.Transport }

func (exiting) Supports(plugin.Request) plugin.Support {
	runtime.Goexit()
	return plugin.Support{}
}

func (e exiting) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	endpoint, err := e.Transport.Open(ctx, config)
	return exitingEndpoint{endpoint}, err
}

type exitingEndpoint struct{ plugin.Endpoint }

func (exitingEndpoint) Prepare(context.Context, plugin.Request, string) (*plugin.Plan, error) {
	runtime.Goexit()
	return nil, nil
}

// lastWords ends its process, and says why, at a call.
type lastWords struct{ probe.Transport }

func (lastWords) Open(context.Context, plugin.OpenConfig) (plugin.Endpoint, error) {
	fmt.Println("3 devices found")
	fmt.Fprintln(os.Stderr, "device 2 has no driver")
	os.Exit(3)
	return nil, nil
}

// wait blocks until a signal that is never sent, without the runtime calling it
// a deadlock.
func wait() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	<-c
}

func serveVersions(versions ...int) {
	host, child, err := descriptorPair()
	if err != nil {
		panic(err)
	}
	defer child.Close()
	s := newService(probe.Transport{}, host)
	sets := map[int]goplugin.PluginSet{}
	for _, v := range versions {
		sets[v] = goplugin.PluginSet{serviceName: serverPlugin{service: s}}
	}
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: handshakeConfig(), VersionedPlugins: sets,
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
	})
}

// serveStrictly accepts a host whose certificate every implementation of TLS accepts.
func serveStrictly() {
	block, _ := pem.Decode([]byte(os.Getenv(clientCertEnv)))
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(err)
	}
	if key := certificate.PublicKey.(*ecdsa.PublicKey); key.Curve != elliptic.P256() {
		fmt.Fprintln(os.Stderr, "the host's key is on curve", key.Curve.Params().Name)
		os.Exit(1)
	}
	if certificate.IsCA || certificate.CheckSignature(certificate.SignatureAlgorithm, certificate.RawTBSCertificate,
		certificate.Signature) != nil {
		fmt.Fprintln(os.Stderr, "the host's certificate is an authority's, or not signed by its own key")
		os.Exit(1)
	}
	Serve(probe.Transport{})
}

// serveBare serves the transport alone, without the services that go-plugin adds: without TLS, or with a certificate
// that is not the announced one.
func serveBare(secure, other bool, options ...grpc.ServerOption) {
	announced, _, err := clientTLS()
	if err != nil {
		panic(err)
	}
	used := announced
	if other {
		if used, _, err = clientTLS(); err != nil {
			panic(err)
		}
	}
	path := filepath.Join(os.Getenv(goplugin.EnvUnixSocketDir), "bare")
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	conn, err := wrapDescriptorSocket(descriptorFD)
	if err != nil {
		panic(err)
	}
	if secure {
		options = append(options, grpc.Creds(credentials.NewTLS(used)))
	}
	server := grpc.NewServer(options...)
	proto.RegisterTransportServer(server, newService(probe.Transport{}, conn))
	certificate := base64.RawStdEncoding.EncodeToString(announced.Certificates[0].Certificate[0])
	fmt.Printf("1|1|unix|%s|grpc|%s\n", path, certificate)
	_ = server.Serve(listener)
}

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		run, ok := modes[mode]
		if !ok {
			panic("no mode " + mode)
		}
		run()
		return
	}
	goleak.VerifyTestMain(m)
}

func testConfig(mode string) Config {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	// How long a plugin takes to end depends on the machine where a test does not set it.
	return Config{Path: self, KillTimeout: 20 * time.Second, Env: []string{
		modeEnv + "=" + mode,
		"GORACE=atexit_sleep_ms=0", // the race detector's own second at exit is not the plugin's
	}, Logger: slog.New(slog.DiscardHandler)}
}

func start(t *testing.T, mode string, change ...func(*Config)) *Client {
	t.Helper()
	config := testConfig(mode)
	for _, f := range change {
		f(&config)
	}
	c, err := Start(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func startFails(t *testing.T, mode string, change ...func(*Config)) string {
	t.Helper()
	config := testConfig(mode)
	for _, f := range change {
		f(&config)
	}
	c, err := Start(context.Background(), config)
	if err == nil {
		c.Close()
		t.Fatal("the plugin was accepted")
	}
	require.Equal(t, plugin.PluginRejected, plugin.CodeOf(err), "%v", err)
	return err.Error()
}

func open(t *testing.T, c *Client, options ...string) plugin.Endpoint {
	t.Helper()
	e, err := c.Transport().Open(context.Background(), openConfig(options...))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func openConfig(options ...string) plugin.OpenConfig {
	config := plugin.OpenConfig{Communicator: 0xC0FFEE, Rank: 1, World: 4, Device: -1, Options: map[string]string{}}
	for i := 0; i+1 < len(options); i += 2 {
		config.Options[options[i]] = options[i+1]
	}
	return config
}

var allReduce = plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 4, Hosts: 1, Rank: 1,
	Bytes: 1024}

// records is a slog handler that keeps what it is given.
type records struct {
	mu    sync.Mutex
	lines []string
}

func (r *records) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := bufio.NewScanner(strings.NewReader(string(p)))
	for s.Scan() {
		r.lines = append(r.lines, s.Text())
	}
	return len(p), nil
}

func (r *records) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// eventually polls for what only the kernel or another process can report.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
}

// gone reports whether a process has ended, be it reaped or not.
func gone(pid int) bool {
	s := processState(pid)
	return s == 0 || s == 'Z' || s == 'X'
}
