package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// transportReport is one transport as this machine can or cannot load it.
type transportReport struct {
	Spec       string              `json:"spec"`
	Rejected   string              `json:"rejected,omitempty"` // why it was not loaded
	Name       string              `json:"name,omitempty"`
	Version    string              `json:"version,omitempty"`
	Doc        string              `json:"doc,omitempty"`
	Features   []string            `json:"features,omitempty"`
	Memory     []string            `json:"memory,omitempty"`
	Unusable   string              `json:"unusable,omitempty"` // why no communicator could use it on this machine
	PID        int                 `json:"pid,omitempty"`      // of the plugin's process
	Algorithms map[string][]string `json:"algorithms,omitempty"`
	Reasons    map[string]string   `json:"reasons,omitempty"` // collectives without an algorithm of its own
}

// serves returns the reason why a transport has no algorithm for anything, or "".
func (r *transportReport) serves() string {
	if len(r.Algorithms) > 0 {
		return ""
	}
	return r.Reasons[plugin.AllReduce.String()]
}

func newTransports() *cobra.Command {
	world := 4
	c := &cobra.Command{
		Use:   "transports [SPEC...]",
		Short: "Load transports and list what they can do",
		Long: `Load transports and list what they can do.

Without arguments: those that a communicator would load, from this binary,
SHUNT_TRANSPORTS and SHUNT_PLUGIN_DIR. A spec is builtin:NAME, shared:PATH or
process:PATH; instead of the path, the name of an installed plugin will do. A
transport that cannot be loaded is listed with the reason; then the exit status
is 1.`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkWorld(world, 1); err != nil {
				return err
			}
			options, warnings := option.Load(os.Environ())
			logger := slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: options.LogLevel()}))
			for _, w := range warnings {
				logger.Warn(w.String())
			}
			specs := args
			if len(specs) == 0 {
				var err error
				if specs, err = presentSpecs(options); err != nil {
					return err
				}
			}
			reports := inspectAll(c.Context(), specs, world, logger)
			rejected := slices.ContainsFunc(reports, func(r transportReport) bool { return r.Rejected != "" })
			if wantsJSON(c) {
				if err := printJSON(c, reports); err != nil {
					return err
				}
			} else {
				printTransports(c, reports, world)
			}
			if rejected {
				return &exitError{code: exitWrong}
			}
			return nil
		},
	}
	c.Flags().IntVarP(&world, "ranks", "n", world, "number of ranks to ask about")
	return c
}

// presentSpecs returns the transports that a communicator would load.
func presentSpecs(options *option.Options) ([]string, error) {
	if specs := options.Transports(); len(specs) > 0 {
		return specs, nil
	}
	var specs []string
	for _, name := range carrier.Registered() {
		specs = append(specs, "builtin:"+name)
	}
	if dir := options.PluginDir(); dir != "" {
		found, err := carrier.Discover(dir)
		if err != nil {
			return nil, err
		}
		for _, spec := range found {
			specs = append(specs, spec.String())
		}
	}
	return specs, nil
}

// inspectAll inspects transports, shared objects last: one that hangs while it is loaded keeps this process from
// opening other libraries, as builtin transports do.
func inspectAll(ctx context.Context, specs []string, world int, logger *slog.Logger) []transportReport {
	reports := make([]transportReport, len(specs))
	for _, shared := range []bool{false, true} {
		for i, spec := range specs {
			if strings.HasPrefix(spec, string(carrier.Shared)+":") == shared {
				reports[i] = inspect(ctx, spec, world, logger)
			}
		}
	}
	return reports
}

// inspect loads one transport, asks it, and lets it go.
func inspect(ctx context.Context, text string, world int, logger *slog.Logger) (r transportReport) {
	r.Spec = text
	spec, err := carrier.ParseSpec(text)
	if err != nil {
		r.Rejected = err.Error()
		return r
	}
	options, _ := option.Load(os.Environ()) // who has read them has said what is wrong with them
	spec.StartTimeout = options.PluginStart()
	ctx, cancel := context.WithTimeout(ctx, options.Timeout())
	defer cancel()
	loaded, err := carrier.Load(ctx, spec, logger)
	if err != nil {
		r.Rejected = err.Error()
		return r
	}
	defer func() {
		if err := loaded.Close(); err != nil {
			r.Rejected = errors.Join(errors.New("it does not end properly"), err).Error()
		}
	}()
	r.Name, r.Version, r.Doc, r.PID = loaded.Info.Name, loaded.Info.Version, loaded.Info.Doc, loaded.PID()
	for _, f := range plugin.Features() {
		if loaded.Info.Features&f != 0 {
			r.Features = append(r.Features, f.String())
		}
	}
	for _, m := range loaded.Info.Memory {
		r.Memory = append(r.Memory, m.String())
	}
	r.Unusable = usable(r.Memory)
	r.Algorithms, r.Reasons = map[string][]string{}, map[string]string{}
	for _, v := range plugin.Collectives() {
		support := loaded.Transport.Supports(plugin.Request{Collective: v, DType: plugin.Float32, Op: plugin.OpSum,
			World: world, Hosts: 1, Memory: loaded.Info.Memory[0]})
		for _, a := range support.Algorithms {
			r.Algorithms[v.String()] = append(r.Algorithms[v.String()], algorithmText(a))
		}
		if len(support.Algorithms) == 0 {
			r.Reasons[v.String()] = support.Reason
		}
	}
	return r
}

// algorithmText returns an algorithm's name with its limits.
func algorithmText(a plugin.Algorithm) string {
	switch {
	case a.MinBytes > 0 && a.MaxBytes > 0:
		return fmt.Sprintf("%s (%s to %s)", a.Name, selector.FormatSize(a.MinBytes), selector.FormatSize(a.MaxBytes))
	case a.MinBytes > 0:
		return fmt.Sprintf("%s (from %s)", a.Name, selector.FormatSize(a.MinBytes))
	case a.MaxBytes > 0:
		return fmt.Sprintf("%s (to %s)", a.Name, selector.FormatSize(a.MaxBytes))
	}
	return a.Name
}

func printTransports(c *cobra.Command, reports []transportReport, world int) {
	out := c.OutOrStdout()
	if len(reports) == 0 {
		fmt.Fprintln(out, "no transport: none is built in, and SHUNT_TRANSPORTS and SHUNT_PLUGIN_DIR name none")
	}
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if r.Rejected != "" {
			fmt.Fprintf(out, "%s\n  rejected: %s\n", r.Spec, r.Rejected)
			continue
		}
		fmt.Fprintf(out, "%s\n  %s %s: %s\n", r.Spec, r.Name, r.Version, r.Doc)
		fmt.Fprintf(out, "  memory %s; features %s\n", strings.Join(r.Memory, ", "), strings.Join(r.Features, ", "))
		if r.Unusable != "" {
			fmt.Fprintf(out, "  not usable on this machine: %s\n", r.Unusable)
		}
		if r.PID != 0 {
			fmt.Fprintf(out, "  runs in process %d\n", r.PID)
		}
		if reason := r.serves(); reason != "" {
			fmt.Fprintf(out, "  serves nothing here: %s\n", reason)
			continue
		}
		fmt.Fprintf(out, "  algorithms for float32 sum in a world of %d:\n", world)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, v := range plugin.Collectives() {
			list := strings.Join(r.Algorithms[v.String()], ", ")
			if list == "" {
				list = "none of its own: " + r.Reasons[v.String()]
			}
			fmt.Fprintf(w, "    %s\t%s\n", v, list)
		}
		_ = w.Flush()
	}
	var others []string
	for _, spec := range carrier.Installed() {
		others = append(others, spec.String())
	}
	if len(others) > 0 {
		fmt.Fprintf(out, "\ninstalled plugins, loaded when SHUNT_TRANSPORTS names them: %s\n", strings.Join(others, ", "))
	}
}
