package process

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// pluginRunner starts the plugin's process for go-plugin and stands between the two:
// go-plugin sees one checked handshake line and nothing else the plugin writes.
type pluginRunner struct {
	executable *executable // until it is executed
	name       string      // the path that the plugin was named by
	args       []string    // after the name
	env        []string    // added to what is inherited
	dir        string      // run directory
	ctx        context.Context
	cmd        *exec.Cmd // as go-plugin filled it in

	child       *child
	descriptors *net.UnixConn
	stdout      *io.PipeReader // what go-plugin reads
	toPlugin    *io.PipeWriter
	outLines    *lines
	errLines    *lines
	readers     sync.WaitGroup // of both real pipes

	started  func() bool // disarms the killing of a plugin whose start is given up
	mu       sync.Mutex
	rejected error // why the handshake was refused

	greeted atomic.Bool // its handshake line was accepted
	closing atomic.Bool // Close sees to the end of the process
}

func newRunner(ctx context.Context, b *executable, c Config, dir string) *pluginRunner {
	r := &pluginRunner{
		executable: b, name: c.Path, args: c.Args, env: c.Env, dir: dir, ctx: ctx,
		outLines: newLines(c.Logger, "stdout"), errLines: newLines(c.Logger, "stderr"),
	}
	r.stdout, r.toPlugin = io.Pipe()
	return r
}

// Start starts the process.
func (r *pluginRunner) Start(context.Context) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	host, inherited, err := descriptorPair()
	if err != nil {
		return err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		host.Close()
		inherited.Close()
		return err
	}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		host.Close()
		inherited.Close()
		outRead.Close()
		outWrite.Close()
		return err
	}

	r.cmd.Path, r.cmd.Args = r.executable.path, append([]string{r.name}, r.args...)
	r.cmd.Env = append(pluginEnvironment(r.env), r.cmd.Env...)
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = nil, outWrite, errWrite
	r.cmd.ExtraFiles = []*os.File{inherited} // descriptorFD
	r.cmd.Err = nil
	b := r.executable
	r.executable = nil
	c, err := bounded(r.ctx, func() (*child, error) {
		defer b.close()
		defer inherited.Close()
		defer outWrite.Close()
		defer errWrite.Close()
		return spawn(r.cmd)
	}, (*child).kill)
	if err != nil {
		host.Close()
		outRead.Close()
		errRead.Close()
		return err
	}
	r.child, r.descriptors = c, host
	r.started = context.AfterFunc(r.ctx, c.kill)
	r.readers.Add(2)
	go r.readStdout(outRead)
	go r.readStderr(errRead)
	go func() {
		<-c.exited
		// A grandchild may hold the pipes open forever: what has been written by
		// now is read, and no more.
		_ = outRead.SetReadDeadline(time.Now())
		_ = errRead.SetReadDeadline(time.Now())
		r.readers.Wait()
		r.toPlugin.Close()
	}()
	return nil
}

func (r *pluginRunner) readStdout(pipe *os.File) {
	defer r.readers.Done()
	defer pipe.Close()
	in := bufio.NewReaderSize(pipe, maxHandshake)
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		r.reject(plugin.Errorf(plugin.PluginRejected, "wrote %q… to stdout where its handshake should be",
			clip(string(line), 100)))
	case len(line) > 0:
		if bad := checkHandshake(string(line), r.dir); bad != nil {
			r.reject(bad)
		} else {
			r.greeted.Store(true)
			_, _ = r.toPlugin.Write(line)
		}
	}
	// The plugin's own output follows.
	buffered, _ := in.Peek(in.Buffered())
	_, _ = r.outLines.Write(buffered)
	drain(pipe, r.outLines)
}

func (r *pluginRunner) readStderr(pipe *os.File) {
	defer r.readers.Done()
	defer pipe.Close()
	drain(pipe, r.errLines)
}

// drain copies a pipe to the log until its end. When the deadline that marks
// the process's end cuts a read short, what is in the pipe still comes.
func drain(pipe *os.File, to *lines) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := pipe.Read(buffer)
		_, _ = to.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			for left := 1 << 20; left > 0; { // a grandchild may write for ever
				n, err := unix.Read(int(fd), buffer)
				if n <= 0 || err != nil {
					return
				}
				_, _ = to.Write(buffer[:n])
				left -= n
			}
		})
	}
	to.flush()
}

func (r *pluginRunner) reject(err error) {
	r.mu.Lock()
	r.rejected = err
	r.mu.Unlock()
	r.toPlugin.Close() // go-plugin gives up at once
}

func (r *pluginRunner) rejection() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rejected
}

// Wait waits for the process and for the last of its output.
func (r *pluginRunner) Wait(context.Context) error {
	<-r.child.exited
	r.readers.Wait()
	if !r.child.clean {
		return errors.New(r.child.status)
	}
	return nil
}

// Kill kills the process, unless Close gives it more time to end than go-plugin would.
func (r *pluginRunner) Kill(context.Context) error {
	if r.child != nil && !r.closing.Load() {
		r.child.kill()
	}
	return nil
}

// Stdout returns the handshake line.
func (r *pluginRunner) Stdout() io.ReadCloser { return r.stdout }

// Stderr is empty: go-plugin's parser of log lines can be made to panic.
func (r *pluginRunner) Stderr() io.ReadCloser { return io.NopCloser(eof{}) }

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// Name returns the path that the plugin was named by.
func (r *pluginRunner) Name() string { return r.name }

// ID returns the pid, or nothing before there is a process.
func (r *pluginRunner) ID() string {
	if r.child == nil {
		return ""
	}
	return strconv.Itoa(r.child.pid)
}

// Diagnose has nothing to add: the carrier words its own errors.
func (r *pluginRunner) Diagnose(context.Context) string { return "" }

// PluginToHost keeps an address as it is.
func (r *pluginRunner) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin keeps an address as it is.
func (r *pluginRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
