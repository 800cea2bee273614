// Command shunt is Shunt's command line: it launches ranks, measures and checks
// collectives over them, and says what Shunt sees and chooses.
//
// Commands that print results have --json. Exit status: 0 all is well; 1 a result was wrong, a
// case failed or nothing can serve a request; 2 the command line is wrong, or a
// file, folder or program that it names cannot be used; 3 something else failed.
// `shunt run` exits as its first failed rank did.
//
// What collectives do lives in the packages that the commands call; here are flags, output, exit codes, and the
// processes that measure, check and launch.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/internal/nearest"
	"github.com/shunt-ccl/shunt/internal/processors"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/pool"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/shm"
	"github.com/shunt-ccl/shunt/transports/ucx"
)

// Exit codes of every command but run.
const (
	exitOK      = 0
	exitWrong   = 1
	exitUsage   = 2
	exitFailure = 3
)

// The builtin transports. No CUDA driver is loaded before an endpoint is opened.
func init() {
	host.Register(shm.Transport{})
	host.Register(cudaipc.Transport{})
	host.Register(nccl.Transport{})
	host.Register(ucx.Transport{})
}

func main() {
	serveTransport()
	processors.Spare()
	if self, err := os.Executable(); err == nil {
		carrier.SetInstalled(filepath.Join(filepath.Dir(self), "..", "lib", "shunt", "plugins"))
	}
	pool.Main()                           // a rank of the conformance suite goes no further
	if !signal.Ignored(syscall.SIGPIPE) { // it would end this process before it has cleaned up; writes fail instead
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process around it.
func run(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetErr(stderr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &checkedWriter{to: stdout, unread: cancel}
	if root.SetOut(out); isTerminal(stdout) {
		root.SetOut(stdout) // ranks get a terminal itself, and it is never full
	}
	addCompletion(root)
	command, err := root.ExecuteContextC(ctx)
	err = classify(err)
	help, _ := command.Flags().GetBool("help") // false without the flag
	if errors.Is(out.err, syscall.EPIPE) && (!slices.Contains([]string{"run", "agent"}, command.Name()) || help) {
		return 128 + int(syscall.SIGPIPE) // silently, as a command that does not handle the signal ends
	}
	code := exitOK
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if exit != nil && exit.err != nil {
		fmt.Fprintln(stderr, message(err))
	}
	if out.err != nil && !errors.Is(err, out.err) { // which may be why a rank failed
		fmt.Fprintf(stderr, "shunt: standard output: %v\n", out.err)
		code = cmp.Or(code, exitFailure)
	}
	return code
}

// message words the error that a failing command prints, with the name of the program once.
func message(err error) string {
	text := err.Error()
	if strings.HasPrefix(text, "shunt ") {
		return text
	}
	return "shunt: " + text
}

// checkedWriter remembers the first write that failed, such as of a full disk:
// commands print without looking.
type checkedWriter struct {
	to     io.Writer
	unread func() // called when the reader of a pipe has gone, as head goes
	mu     sync.Mutex
	err    error
}

func (w *checkedWriter) Write(text []byte) (int, error) {
	n, err := w.to.Write(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
	if errors.Is(err, syscall.EPIPE) {
		w.unread()
	}
	return n, err
}

// Stat says which file it writes to, for ranks to know whether it is that of standard error.
func (w *checkedWriter) Stat() (os.FileInfo, error) {
	if file, is := w.to.(*os.File); is {
		return file.Stat()
	}
	return nil, os.ErrInvalid
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "shunt",
		Short:         "Move tensors between ranks: launch, measure, check and explain",
		Long:          "Move tensors between ranks: launch, measure, check and explain.\n\nExit status: 0 all is well; 1 a result was wrong, a case failed or nothing can\nserve a request; 2 the command line is wrong, or a file, folder or program that it\nnames cannot be used; 3 something else failed.",
		Version:       readVersion().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          isKnown,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%v; see %s --help", parsing.ReplaceAllString(err.Error(), ""), c.CommandPath())
	})
	root.PersistentFlags().Bool("json", false, "print JSON instead of text")
	root.AddCommand(newRun(), newRecords(), newBench(), newBenchPeers(), newTune(), newConformance(), newExplain(),
		newTransports(), newTopo(), newDoctor(), newVersion(), newMan(), newRank(), newAgent())
	offer(root)
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = isCommand
		}
		c.Args = usageArgs(c.Args)
		c.Flags().VisitAll(takeSeconds)
	}
	root.Args = usageArgs(root.Args)
	return root
}

// parsing matches the words that a parser of numbers puts in front of its reason.
var parsing = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": `)

// isKnown checks the arguments of shunt itself: the first is no command that there is.
func isKnown(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var all []string
	for _, command := range c.Commands() {
		if command.IsAvailableCommand() {
			all = append(all, command.Name())
		}
	}
	if near := nearest.Of(args[0], all); near != "" {
		return fmt.Errorf("unknown command %q (did you mean %s?)", args[0], near)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// flagsOnly checks the arguments of a command that has none.
func flagsOnly(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if _, err := plugin.ParseCollective(args[0]); err == nil && c.Flags().Lookup("collective") != nil {
		return fmt.Errorf("%s takes flags only, not %q (did you mean --collective %s?)", c.Name(), args[0], args[0])
	}
	return fmt.Errorf("%s takes flags only, not %q", c.Name(), args[0])
}

// atLeastOne returns a check for arguments of which there must be one.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("no " + what + " given")
		}
		return nil
	}
}

// isCommand checks the arguments of help.
func isCommand(c *cobra.Command, args []string) error {
	if _, rest, err := c.Root().Find(args); err != nil || len(rest) > 0 {
		return fmt.Errorf("unknown command %q", strings.Join(args, " "))
	}
	return nil
}

// exitError is an error with an exit code. Without an err nothing is printed:
// the command has said everything.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// known returns the usage error for the first of the names that is not among all: format
// has the name and a hint.
func known(names, all []string, format string) error {
	for _, name := range names {
		if slices.Contains(all, name) {
			continue
		}
		hint := "there are " + strings.Join(all, ", ")
		if near := nearest.Of(name, all); near != "" {
			hint = "did you mean " + near + "?"
		}
		return usage(format, name, hint)
	}
	return nil
}

// usageArgs makes an argument check a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(c, args); err != nil {
			return usage("%v; see %s --help", err, c.CommandPath())
		}
		return nil
	}
}

// classify gives an error of the library its exit code: what the user asked for
// wrongly is a usage error.
func classify(err error) error {
	var exit *exitError
	var failure *launch.Failure
	switch {
	case err == nil || errors.As(err, &exit):
		return err
	case errors.As(err, &failure):
		return &exitError{exitFailure, err}
	case errors.Is(err, plugin.InvalidArgument):
		return &exitError{exitUsage, err}
	}
	return &exitError{exitFailure, err}
}

// signals returns the signals that are forwarded to the ranks of a job. The function ends
// the forwarding. Where ctx is interruptible, it has ended before the ranks of the job do so by such a signal.
// Ranks and remote shells are not in the foreground of a terminal: where they read it they get an
// error, which they inherit, and are not stopped.
func signals(ctx context.Context) (chan os.Signal, func()) {
	received, forwarded, done := make(chan os.Signal, 16), make(chan os.Signal, 16), make(chan struct{})
	interrupt, _ := ctx.Value(interruptKey{}).(context.CancelFunc)
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU)
	signal.Notify(received, append(ending(), syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT)...)
	go func() {
		for {
			select {
			case s := <-received:
				if interrupt != nil && slices.Contains(ending(), s) {
					interrupt()
				}
				select {
				case forwarded <- s:
				default: // as package signal drops it
				}
			case <-done:
				return
			}
		}
	}()
	return forwarded, func() { signal.Stop(received); close(done) }
}

// interruptKey is the key of what ends an interruptible context.
type interruptKey struct{}

// interruptible returns a context that ends with the first signal that ends a command: between its jobs too, in
// which nothing else notices one. A second one ends a command that is stuck.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, stop := signal.NotifyContext(parent, ending()...)
	context.AfterFunc(ctx, stop)
	return context.WithValue(ctx, interruptKey{}, stop), stop
}

// ending returns the signals that end a command: not those that it was started to ignore, as by nohup.
func ending() []os.Signal {
	return slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}
