package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/plugin"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages, of every command and of the options",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			pages := map[string]string{"shunt-options.7": optionsPage()}
			all := []*cobra.Command{c.Root()}
			for len(all) > 0 {
				one := all[0]
				all = all[1:]
				if one.Hidden || one.Name() == "help" {
					continue
				}
				pages[pageName(one)+".1"] = commandPage(one)
				all = append(all, one.Commands()...)
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return plugin.Errorf(plugin.InvalidArgument, "man: %w", err)
			}
			for name, text := range pages {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
					return plugin.Errorf(plugin.System, "man: %w", err)
				}
			}
			return nil
		},
	}
}

// pageName is the name of a command's page, as in shunt-run.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// commandPage is the manual page of one command, in man(7)'s macros.
func commandPage(c *cobra.Command) string {
	var b strings.Builder
	heading(&b, pageName(c), 1)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", pageName(c), roff(c.Short))
	// UseLine has the flags' place where the command has not.
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	// The texts are broken into lines for terminals: an indented line is one of its own.
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", paragraphs(c.Long, c.Short))
	if commands := c.Commands(); len(commands) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range commands {
			if !sub.Hidden && sub.Name() != "help" {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s (%s(1))\n", roff(sub.Name()), roff(sub.Short), roff(pageName(sub)))
			}
		}
	}
	b.WriteString(".SH OPTIONS\n")
	flags := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		if !strings.Contains("false 0 0s []", f.DefValue) { // of which "" is a part: nothing to say
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(name), roff(usage))
	}
	c.LocalFlags().VisitAll(flags)
	c.InheritedFlags().VisitAll(flags)
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	b.WriteString(".SH SEE ALSO\nshunt\\-options(7)")
	if c.HasParent() {
		fmt.Fprintf(&b, ", %s(1)", roff(pageName(c.Parent())))
	}
	b.WriteByte('\n')
	return b.String()
}

// optionsPage is the manual page of the variables, from the table that docs/options.md is made of.
func optionsPage() string {
	var b strings.Builder
	heading(&b, "shunt-options", 7)
	b.WriteString(".SH NAME\nshunt\\-options \\- the environment variables of Shunt\n")
	for _, group := range option.Groups() {
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(group)))
		for _, v := range option.Variables() {
			if v.Group != group {
				continue
			}
			name := v.Name
			if v.Default != "" {
				name += "=" + v.Default
			}
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(name), roff(strings.ReplaceAll(v.Doc, "`", "")))
		}
	}
	b.WriteString(".SH SEE ALSO\nshunt(1)\n")
	return b.String()
}

func heading(b *strings.Builder, name string, section int) {
	fmt.Fprintf(b, ".TH %s %d \"\" \"Shunt %s\"\n", strings.ToUpper(roff(name)), section, roff(readVersion().Version))
}

// paragraphs sets a text that has its paragraphs between empty lines, and indented lines as they are.
func paragraphs(text, otherwise string) string {
	if text == "" {
		text = otherwise
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "":
			b.WriteString(".PP\n")
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			fmt.Fprintf(&b, ".br\n%s\n.br\n", roff(line))
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// roff is a text in which nothing is a command of the typesetter.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
