package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/outfile"
)

// durationFlag is a duration that is written as in a variable: a bare number means seconds.
type durationFlag struct{ pflag.Value }

func (f durationFlag) Set(text string) error {
	d, err := option.ParseDuration(text)
	if err != nil {
		return err
	}
	return f.Value.Set(d.String())
}

// takeSeconds makes a durationFlag of every flag that is a duration.
func takeSeconds(f *pflag.Flag) {
	if f.Value.Type() != "duration" {
		return
	}
	f.Value = durationFlag{f.Value}
	if f.DefValue == "0s" {
		f.DefValue = "0" // by which help knows that there is no default to print
	}
}

// outputFile is the path of a file that a command writes at its end. That it cannot be written is noticed before
// anything runs.
type outputFile string

func (f *outputFile) String() string { return string(*f) }
func (f *outputFile) Type() string   { return "file" }

func (f *outputFile) Set(path string) error {
	if *f = outputFile(path); path == "" {
		return nil
	}
	if err := outfile.Check(path); err != nil {
		return fmt.Errorf("the file cannot be written: %w", err)
	}
	return nil
}

// override is a value of SHUNT_ALGO.
type override string

func (o *override) String() string { return string(*o) }
func (o *override) Type() string   { return "string" }

func (o *override) Set(spec string) error {
	*o = override(spec)
	_, err := selector.Parse(spec)
	return err
}
