package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
)

// values lists what a shell offers behind a flag, by the flag's name: the same in every command that has it.
var values = map[string]func() []string{
	"dtype":      func() []string { return names(plugin.DTypes()) },
	"op":         func() []string { return names(plugin.Ops()) },
	"collective": bench.Names,
	"memory":     func() []string { return []string{"auto", "host", "cuda"} },
	"mode":       modes,
	"transport":  transportSpecs,
	"transports": transportSpecs,
	"against":    func() []string { return append([]string{"nccl", "openmpi"}, transportSpecs()...) },
	"algo":       algorithms,
}

// lists are the flags whose value is a list with commas.
var lists = []string{"collective", "transports", "against", "mode"}

// offer lets shells complete the values of every flag, and the arguments of the commands that take names.
func offer(root *cobra.Command) {
	for _, c := range root.Commands() {
		for name, all := range values {
			if c.Flags().Lookup(name) == nil {
				continue
			}
			list := slices.Contains(lists, name)
			// It fails for flags that do not exist or are done already only.
			_ = c.RegisterFlagCompletionFunc(name, func(_ *cobra.Command, _ []string, typed string) ([]string,
				cobra.ShellCompDirective) {
				return complete(typed, all(), list), cobra.ShellCompDirectiveNoFileComp
			})
		}
		var arguments func() []string
		switch c.Name() {
		case "explain":
			arguments = func() []string { return names(plugin.Collectives()) }
		case "transports":
			arguments = transportSpecs
		default:
			continue
		}
		c.ValidArgsFunction = func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return complete(typed, arguments(), false), cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// addCompletion adds the command that prints a shell's script. It writes where root does by now.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, _ := root.Find([]string{"completion"}) // root itself, if it were not there
	c.Args, c.RunE = root.Args, root.RunE        // else it takes any name for a request of help
	for _, shell := range c.Commands() {
		shell.Args = usageArgs(shell.Args)
	}
}

// complete returns the names that what is typed may become. In a list what stands before the last comma stays.
func complete(typed string, all []string, list bool) []string {
	before := ""
	if at := strings.LastIndexByte(typed, ','); list && at >= 0 {
		before, typed = typed[:at+1], typed[at+1:]
	}
	var found []string
	for _, name := range all {
		if strings.HasPrefix(name, typed) {
			found = append(found, before+name)
		}
	}
	return found
}

// transportSpecs are the transports that this machine has.
func transportSpecs() []string {
	var specs []string
	for _, name := range carrier.Registered() {
		specs = append(specs, "builtin:"+name)
	}
	for _, spec := range carrier.Installed() {
		specs = append(specs, spec.String())
	}
	return specs
}

// algorithms are the values of SHUNT_ALGO with one collective, and the algorithms that the builtin transports
// have for it in small worlds.
func algorithms() []string {
	var found []string
	for _, name := range carrier.Registered() {
		loaded, err := carrier.Load(context.Background(), carrier.Spec{Carrier: carrier.Builtin, Target: name}, nil)
		if err != nil {
			continue
		}
		t := loaded.Transport
		for _, memory := range t.Info().Memory {
			for _, v := range plugin.Collectives() {
				support := t.Supports(plugin.Request{Collective: v, DType: plugin.Float32, Op: plugin.OpSum, World: 4,
					Hosts: 1, Memory: memory})
				for _, a := range support.Algorithms {
					found = append(found, v.String()+"="+name+"/"+a.Name)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func modes() []string {
	var found []string
	for _, mode := range conformance.Modes() {
		found = append(found, string(mode))
	}
	return found
}

func names[T interface{ String() string }](all []T) []string {
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = v.String()
	}
	return texts
}
