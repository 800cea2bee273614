package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// Config says which plugin to start and how. Only Path is needed.
type Config struct {
	Path   string   // of the executable
	Args   []string // after the name
	SHA256 string   // hexadecimal checksum of the executable that must match; empty: not checked

	Env    []string     // "KEY=value", beyond the few variables a plugin inherits
	Logger *slog.Logger // gets the plugin's output; nil: slog.Default()

	StartTimeout time.Duration // from start to first reply; 0: 10 s
	// how long Close waits before it kills a plugin that is stopped, three times that if it sleeps or has used a
	// processor for that long, ten times if it waits for a processor; 0: 1 s
	KillTimeout time.Duration

	// A plugin is asked for a sign of life every PingInterval (0: 500 ms,
	// negative: never). One that is stopped and gives none for PingTimeout
	// (0: 1.5 s) is dead, and so is one that gives none for three times as long
	// though all its threads were found asleep several times, or though it has
	// had the processor for all that time, and any that gives none for ten times as long: a busy machine
	// delays replies, and is no reason to kill. The time in which this process was stopped itself does not count.
	PingInterval time.Duration
	PingTimeout  time.Duration

	// OnExit is called once, from a goroutine of its own, when the plugin dies
	// without Close having been called. Its argument is the error that Err returns.
	OnExit func(err error)
}

// Client is a running plugin.
type Client struct {
	config      Config
	runner      *pluginRunner
	plugin      *goplugin.Client
	conn        *grpc.ClientConn
	rpc         proto.TransportClient
	info        plugin.Info
	arrivals    *arrivals
	endpoints   atomic.Uint64 // numbers handed out
	supports    supportCache
	images      published
	life        context.Context // ends with the plugin
	endLife     context.CancelFunc
	done        chan struct{}
	goroutines  sync.WaitGroup
	teardown    sync.Once
	teardownErr error

	mu      sync.Mutex
	err     error // why it is over; set before done is closed
	closing bool
}

// Start starts a plugin and waits until it has described itself. The plugin
// runs until Close, or until this process ends, however it ends; ctx bounds the
// start only. Errors have code PluginRejected and say what is wrong with it, or Aborted if ctx was canceled.
func Start(ctx context.Context, config Config) (*Client, error) {
	setDefaults(&config)
	if end, ok := ctx.Deadline(); ok { // the caller may have less time
		config.StartTimeout = min(config.StartTimeout, max(0, time.Until(end).Round(time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(ctx, config.StartTimeout)
	defer cancel()
	b, err := bounded(ctx, func() (*executable, error) { return openExecutable(config.Path, config.SHA256) },
		(*executable).close)
	if err != nil {
		if err == ctx.Err() {
			code, reason := startGivenUp(err, config, notExecuted)
			err = plugin.Errorf(code, "plugin %s: %w", config.Path, reason)
		}
		return nil, err
	}
	dir, err := makeRunDir()
	if err != nil {
		b.close()
		return nil, err
	}
	// Connected, the socket's name is not needed; not connected, nothing is.
	defer dir.remove()

	c := &Client{config: config, done: make(chan struct{})}
	c.life, c.endLife = context.WithCancel(context.Background())
	c.runner = newRunner(ctx, b, config, dir.path)
	defer func() { c.runner.executable.close() }()
	if err := c.start(ctx); err != nil {
		c.endLife()
		return nil, c.startFailed(ctx, err)
	}
	if !c.runner.started() {
		<-c.runner.child.exited // killed as ctx ended: watch is about to say so
	}
	c.config.Logger.Debug("transport plugin started", "name", c.info.Name, "version", c.info.Version, "pid", c.PID(),
		"path", config.Path)
	return c, nil
}

func setDefaults(c *Config) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With("plugin", filepath.Base(c.Path))
	c.StartTimeout = min(cmp.Or(c.StartTimeout, 10*time.Second), runDirStale/2)
	c.KillTimeout = cmp.Or(c.KillTimeout, time.Second)
	c.PingInterval = cmp.Or(c.PingInterval, 500*time.Millisecond)
	c.PingTimeout = cmp.Or(c.PingTimeout, 1500*time.Millisecond)
}

// startSlack keeps go-plugin's own timer behind ctx, which kills the process.
const startSlack = 5 * time.Second

func (c *Client) start(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	security, certificate, err := clientTLS()
	if err != nil {
		return err
	}
	c.plugin = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshakeConfig(),
		VersionedPlugins: map[int]goplugin.PluginSet{plugin.VersionMajor: {serviceName: clientPlugin{}}},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			cmd.Env = append(cmd.Env, clientCertEnv+"="+certificate)
			c.runner.cmd = cmd
			return c.runner, os.Chmod(dir, 0o700) // whatever the umask
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		TLSConfig:        security,
		SkipHostEnv:      true,
		StartTimeout:     time.Until(deadline) + startSlack,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: c.runner.dir},
		Logger:           hostLogger(c.config.Logger),
		SyncStdout:       c.runner.outLines,
		SyncStderr:       c.runner.errLines,
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
			grpc.WithIdleTimeout(0), // the socket's name is gone: there is no connecting again
		},
	})
	if _, err := c.plugin.Start(); err != nil {
		return err
	}
	protocol, err := c.plugin.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(serviceName)
	if err != nil {
		return err
	}
	c.conn = raw.(*grpc.ClientConn)
	c.rpc = proto.NewTransportClient(c.conn)
	if err := c.describe(ctx); err != nil {
		return err
	}
	c.arrivals = newArrivals(c.runner.descriptors)
	c.goroutines.Add(2)
	go c.receiveDescriptors()
	go c.watch()
	if c.config.PingInterval > 0 {
		c.goroutines.Add(1)
		go c.ping()
	}
	return nil
}

// describe asks for Info, the first call, and checks it.
func (c *Client) describe(ctx context.Context) error {
	// The connection may die with the process before there is a watch.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.runner.child.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	reply, err := c.firstReply(ctx)
	if err != nil {
		return err
	}
	if err := check.Version(reply.GetVersionMajor(), reply.GetVersionMinor()); err != nil {
		return err
	}
	if len(reply.GetMemory()) > 16 {
		return plugin.Errorf(plugin.Protocol, "it names %d memory kinds, want at most 16", len(reply.GetMemory()))
	}
	c.info = proto.ToInfo(reply)
	if c.info.Features&plugin.FeatureRegistration != 0 {
		// A plugin's process cannot reach the caller's memory: its engine moves what lies in regions, which are its own.
		c.info.Features &^= plugin.FeatureRegistration
		c.config.Logger.Info("a transport registers no memory of the caller's, as it runs in a process of its own",
			"name", c.info.Name, "path", c.config.Path)
	}
	return c.info.Validate()
}

// firstReply calls Info. Mutual TLS that fails once fails always; a plugin that does not listen yet has until ctx ends.
func (c *Client) firstReply(ctx context.Context) (*proto.InfoReply, error) {
	reply, err := c.rpc.Info(ctx, &proto.InfoRequest{})
	if status.Code(err) == codes.Unavailable && !strings.Contains(err.Error(), "tls: ") {
		reply, err = c.rpc.Info(ctx, &proto.InfoRequest{}, grpc.WaitForReady(true))
	}
	if status.Code(err) == codes.Unavailable {
		waitFor(c.runner.child.exited, deathLag) // how it ended says more than what became of the connection
		what := "does not serve mutual TLS on its socket"
		if c.conn.GetState() == connectivity.Ready {
			what = "replied to Info that it is unavailable"
		}
		return nil, plugin.Errorf(plugin.PluginRejected, "%s: %s", what, plugin.Clip(status.Convert(err).Message()))
	}
	return reply, fromRPC("info", err)
}

// startFailed ends what was started and words why.
func (c *Client) startFailed(ctx context.Context, err error) error {
	reason := c.runner.rejection()
	child := c.runner.child
	exitedByItself, givenUp := false, ctx.Err()
	if child != nil {
		select {
		case <-child.exited:
			exitedByItself = true
		default:
		}
		child.kill()
		<-child.exited
		c.runner.readers.Wait()
	}
	c.plugin.Kill() // the process is gone: this only collects go-plugin's goroutines
	if c.runner.descriptors != nil {
		c.runner.descriptors.Close()
	}
	c.runner.toPlugin.Close()
	code := plugin.PluginRejected
	switch {
	case reason != nil:
	case child == nil && givenUp == nil:
		reason = fmt.Errorf("could not be started: %w", err)
	case givenUp != nil:
		missing := "it wrote no handshake line to stdout"
		if child == nil {
			missing = notExecuted
		} else if c.runner.greeted.Load() {
			missing = "it did not reply to Info"
		}
		code, reason = startGivenUp(givenUp, c.config, missing)
	case exitedByItself:
		reason = errors.New(child.status + " before it could be used")
	default:
		reason = err
	}
	return plugin.Errorf(code, "plugin %s: %w%s", c.config.Path, reason, c.quoteStderr())
}

const notExecuted = "it has not been executed yet; see whether the file system that it is on responds"

// startGivenUp words the end of the context of a start, at which something was missing.
func startGivenUp(ended error, c Config, missing string) (plugin.Code, error) {
	if ended == context.DeadlineExceeded {
		return plugin.PluginRejected, fmt.Errorf("did not finish its start within %v: %s", c.StartTimeout, missing)
	}
	return plugin.CodeOf(ended), fmt.Errorf("start was given up: %w", ended)
}

func (c *Client) quoteStderr() string {
	if tail := c.runner.errLines.Tail(); tail != "" {
		return "; the end of its stderr:\n" + tail
	}
	return ""
}

// Transport returns the plugin as a transport. Its endpoints are used as any other;
// after the plugin's death every call returns the error of Err.
func (c *Client) Transport() plugin.Transport { return transport{c} }

// PID returns the plugin's process id.
func (c *Client) PID() int { return c.runner.child.pid }

// Done is closed when the plugin has died or was closed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil while the plugin runs, an error with code PluginDied that names
// the plugin, its pid, how it ended and the end of its stderr when it died, and
// one with code Closed after Close.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// over is like Err, and tells of a Close that has begun: from then on the plugin ends, and its connection may be gone.
func (c *Client) over() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.closing {
		return c.closed()
	}
	return c.err
}

func (c *Client) closed() error { return plugin.Errorf(plugin.Closed, "%s is closed", c) }

func (c *Client) String() string {
	return fmt.Sprintf("plugin %s (pid %d)", c.info.Name, c.PID())
}

// clientPlugin gives go-plugin's client nothing to do but to hand over the
// connection.
type clientPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (clientPlugin) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error {
	return plugin.Errorf(plugin.Internal, "the client's half of the plugin cannot serve")
}

func (clientPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (interface{}, error) {
	return conn, nil
}
