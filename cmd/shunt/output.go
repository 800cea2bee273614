package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// wantsJSON reports whether --json is set.
func wantsJSON(c *cobra.Command) bool {
	set, err := c.Flags().GetBool("json")
	return err == nil && set
}

// printJSON writes a value, indented, with a line break.
func printJSON(c *cobra.Command, value any) error {
	encoder := json.NewEncoder(c.OutOrStdout())
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return plugin.Errorf(plugin.System, "writing JSON: %w", err)
	}
	return nil
}

// stopped ends a command that was interrupted or failed midway. With --json it prints the results until then, unless
// the command line is wrong.
func stopped(c *cobra.Command, err error, results any) error {
	err = classify(err)
	var exit *exitError
	if wantsJSON(c) && errors.As(err, &exit) && exit.code != exitUsage {
		if err := printJSON(c, results); err != nil {
			return err
		}
	}
	return err
}

// unwritten returns the error with which standard output has failed, or nil.
func unwritten(c *cobra.Command) error {
	w, ok := c.OutOrStdout().(*checkedWriter)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		return nil
	}
	return plugin.Errorf(plugin.System, "standard output: %w", w.err)
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// progress shows one changing line on a terminal, and nothing elsewhere.
type progress struct {
	to    io.Writer
	shown bool
}

func newProgress(c *cobra.Command) *progress {
	if w := c.ErrOrStderr(); isTerminal(w) && os.Getenv("TERM") != "dumb" {
		return &progress{to: w}
	}
	return &progress{}
}

// show replaces the line.
func (p *progress) show(format string, args ...any) {
	if p.to != nil {
		fmt.Fprintf(p.to, "\r\x1b[K"+format, args...)
		p.shown = true
	}
}

// clear removes the line, before other output.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.to, "\r\x1b[K")
		p.shown = false
	}
}

// checkWorld refuses a number of ranks that no job can have, and hosts that are
// not one for each rank at most.
func checkWorld(world, hosts int) error {
	switch {
	case world < 1 || world > plugin.MaxWorld:
		return usage("%d ranks; want 1 to %d", world, plugin.MaxWorld)
	case hosts < 1 || hosts > world:
		return usage("%d hosts for %d ranks; want 1 to %d", hosts, world, world)
	}
	return nil
}

// areThere rejects transports of a flag that are not there.
func areThere(flag string, specs ...string) error {
	for _, spec := range specs {
		if err := carrier.Check(spec); err != nil {
			return usage("--%s: %v", flag, err)
		}
	}
	return nil
}

// The flag types that the commands share. Each reads the names that the tables
// of the contract have.

type dtypeFlag plugin.DType

func (f *dtypeFlag) String() string { return plugin.DType(*f).String() }
func (f *dtypeFlag) Type() string   { return "dtype" }
func (f *dtypeFlag) Set(text string) error {
	v, err := plugin.ParseDType(text)
	*f = dtypeFlag(v)
	return err
}

type opFlag plugin.Op

func (f *opFlag) String() string { return plugin.Op(*f).String() }
func (f *opFlag) Type() string   { return "op" }
func (f *opFlag) Set(text string) error {
	v, err := plugin.ParseOp(text)
	*f = opFlag(v)
	return err
}

type sizeFlag int64

func (f *sizeFlag) String() string { return selector.FormatSize(int64(*f)) }
func (f *sizeFlag) Type() string   { return "size" }
func (f *sizeFlag) Set(text string) error {
	v, err := selector.ParseSize(text)
	*f = sizeFlag(v)
	return err
}

type sizesFlag []int64

func (f *sizesFlag) Type() string { return "sizes" }
func (f *sizesFlag) String() string {
	texts := make([]string, len(*f))
	for i, v := range *f {
		texts[i] = selector.FormatSize(v)
	}
	return strings.Join(texts, ",")
}
func (f *sizesFlag) Set(text string) error {
	for _, part := range splitList(text) {
		v, err := selector.ParseSize(part)
		if err != nil {
			return err
		}
		*f = append(*f, v)
	}
	return nil
}
