package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/proto"
)

// Serve makes this process a plugin: it serves t to the host that started the
// process until the host shuts it down, and exits the process when the host is
// gone or when a person started it by hand. While it serves, slog's default
// logger carries lines to the host's, and what is written to os.Stdout and
// os.Stderr is logged there too, also right before the process ends.
func Serve(t plugin.Transport) {
	if os.Getenv(cookieKey) != cookieValue {
		i := t.Info()
		fmt.Fprintf(os.Stderr, "This is the Shunt transport %q (%s), version %s. Shunt starts it; it does nothing by itself.\n"+
			"To use it, name this file in SHUNT_TRANSPORTS or in the options of a communicator.\n", i.Name, i.Doc, i.Version)
		os.Exit(2)
	}
	if host := os.Getenv(hostPidEnv); host != strconv.Itoa(os.Getppid()) {
		os.Exit(0) // the host died before this process looked
	}
	unix.CloseOnExec(descriptorFD)
	conn, err := wrapDescriptorSocket(descriptorFD)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go exitWithHost(conn)
	boundStops()
	slog.SetDefault(slog.New(logHandler(os.Stderr)))

	s := newService(t, conn)
	keepOutputs := outputsKept()
	unix.Umask(unix.Umask(0o077) &^ 0o700) // the host, a process of the same user, may connect to the socket
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  handshakeConfig(),
		VersionedPlugins: map[int]goplugin.PluginSet{plugin.VersionMajor: {serviceName: serverPlugin{service: s}}},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, grpc.MaxRecvMsgSize(maxMessage),
				grpc.ChainUnaryInterceptor(keepOutputs, recoverPanics, endEarly))...)
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
	s.closeAll()
}

// exitWithHost ends the process when the host's end of the descriptor socket
// closes, that is, when the host has ended: a host that shuts its plugin down keeps
// it open until the plugin is gone. The kernel sends SIGKILL as well; this also covers
// processes that change parents or credentials.
func exitWithHost(conn *net.UnixConn) {
	var b [1]byte
	_, _ = conn.Read(b[:])
	if dir := os.Getenv(goplugin.EnvUnixSocketDir); strings.HasPrefix(filepath.Base(filepath.Dir(dir)), runDirPrefix) {
		os.RemoveAll(filepath.Dir(dir))
	}
	os.Exit(0)
}

// outputsKept undoes before the first request what go-plugin does to os.Stdout and os.Stderr once it listens: it makes
// them pipes whose contents go through RPC, and what a process wrote there right before its end is lost. The host reads
// the descriptors themselves to their ends.
func outputsKept() grpc.UnaryServerInterceptor {
	stdout, stderr := os.Stdout, os.Stderr
	restore := sync.OnceFunc(func() { os.Stdout, os.Stderr = stdout, stderr })
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		restore()
		return handler(ctx, req)
	}
}

// recoverPanics turns a panic of the transport into an error of that call, and so a call of runtime.Goexit, after which
// a goroutine replies to nothing. A panic in a goroutine that the transport started ends the process.
func recoverPanics(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any,
	err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			if p := recover(); p != nil {
				slog.Error("the transport panicked", "call", info.FullMethod, "panic", fmt.Sprint(p), "stack",
					string(debug.Stack()))
				err = toRPC(plugin.Errorf(plugin.Internal, "the transport panicked: %v", p))
			} else if !returned {
				err = toRPC(plugin.Errorf(plugin.Internal,
					"the transport ended its goroutine (runtime.Goexit, which t.FailNow calls)"))
			}
		}()
		reply, err = handler(ctx, req)
		returned = true
	}()
	<-ended
	return reply, err
}

// endEarly has the transport's context end before the host gives the call up, so that what the transport says at its
// deadline arrives.
func endEarly(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-early(time.Until(deadline))))
		defer cancel()
	}
	return handler(ctx, req)
}

// early returns the time that a plugin's reply has of that of a call.
func early(whole time.Duration) time.Duration { return min(whole/8, time.Second) }

// logHandler writes lines in hclog's JSON form, which hosts read.
func logHandler(w io.Writer) slog.Handler {
	return slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.TimeKey:
				a.Key = "@timestamp"
			case slog.LevelKey:
				a = slog.String("@level", strings.ToLower(a.Value.String()))
			case slog.MessageKey:
				a.Key = "@message"
			}
			return a
		},
	})
}

// serverPlugin gives go-plugin's server the transport's service.
type serverPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	service *service
}

func (p serverPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	proto.RegisterTransportServer(s, p.service)
	return nil
}

func (serverPlugin) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (interface{}, error) {
	return nil, plugin.Errorf(plugin.Internal, "the server's half of the plugin has no client")
}
