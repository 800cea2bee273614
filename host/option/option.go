// Package option is the one place that knows the SHUNT_* environment variables:
// their names, types, defaults and help. Load reads an environment into an
// Options, whose methods are the typed values; docs/options.md is generated
// from the same table.
//
// It reads only the strings that it is given, and imports nothing of this repository
// that reads more: the package that asks for a value knows its meaning.
//
// A new variable is a constant and a row (table.go), a method (values.go) and a case
// of each kind of test (option_test.go); internal/gendocs then writes the page.
package option

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/internal/nearest"
)

// Prefix begins the name of every variable that is ours.
const Prefix = "SHUNT_"

// Bounds of what is read from an environment.
const (
	maxName  = 128
	maxValue = 64 << 10
)

// Options are the values of all variables. The zero value is not useful; Load
// makes one. It is immutable and safe for concurrent use.
type Options struct {
	texts      [count]string
	set        [count]bool
	integers   [count]int64 // Integer, Boolean (0, 1) and Duration (nanoseconds)
	transports map[string]string
}

// Warning is one variable that was not understood, and what was done about it.
type Warning struct {
	Variable string // the name as it stands in the environment
	Message  string // one sentence that says what is wrong and what is used instead
}

func (w Warning) String() string { return w.Message }

// Load reads the variables of an environment as os.Environ returns it. A
// malformed variable keeps its default; it and every unknown SHUNT_* variable
// give a warning that names the nearest known one. Variables of the form
// SHUNT_<TRANSPORT>_<NAME> are kept for that transport; see Transport and
// Unclaimed. Where a name occurs twice the last one counts.
func Load(environ []string) (*Options, []Warning) {
	o := &Options{transports: map[string]string{}}
	var warnings []Warning
	for i := range table {
		if err := o.parse(index(i), table[i].Default); err != nil {
			panic("option: default of " + table[i].Name + ": " + err.Error()) // a bug in the table, caught by its test
		}
	}
	byName := map[string]string{}
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !strings.HasPrefix(name, Prefix) {
			continue
		}
		byName[name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if message := o.take(name, byName[name]); message != "" {
			warnings = append(warnings, Warning{Variable: clip(name), Message: message})
		}
	}
	return o, warnings
}

// take stores one variable; it returns the warning, or "".
func (o *Options) take(name, value string) string {
	if len(name) > maxName || len(value) > maxValue {
		return fmt.Sprintf("%s is longer than a variable may be (name %d of %d bytes, value %d of %d) and is ignored",
			clip(name), len(name), maxName, len(value), maxValue)
	}
	for i := range table {
		if table[i].Name != name {
			continue
		}
		if value == "" {
			return "" // set but empty is the same as unset
		}
		if err := o.parse(index(i), value); err != nil {
			instead := "it is ignored"
			if i := index(i); i == idRank || i == idWorld {
				instead = "a program that gives none itself cannot join"
			} else if d := table[i].Default; d != "" {
				instead = "the default " + d + " is used"
			}
			return fmt.Sprintf("%s=%s: %v; %s", name, quote(value), err, instead)
		}
		o.set[i] = true
		return ""
	}
	near := nearest.Of(name[len(Prefix):], suffixes()) // the common prefix must not make everything near
	if _, rest, _ := strings.Cut(name[len(Prefix):], "_"); rest == near {
		near = "" // a transport's option of that name, such as SHUNT_UCX_LIBRARY
	}
	if near != "" {
		near = Prefix + near
	}
	if near == "" && isTransportOption(name) {
		o.transports[name] = value
		return ""
	}
	return unknown(name, near)
}

func unknown(name, near string) string {
	if near != "" {
		return fmt.Sprintf("%s is not a variable of Shunt and is ignored; did you mean %s?", quoteName(name), near)
	}
	return fmt.Sprintf("%s is not a variable of Shunt and is ignored; docs/options.md lists them", quoteName(name))
}

// suffixes returns the names of the table without the prefix.
func suffixes() []string {
	all := make([]string, count)
	for i := range table {
		all[i] = table[i].Name[len(Prefix):]
	}
	return all
}

// parse stores the value of one variable, or says what is wrong with it and
// leaves what was there.
func (o *Options) parse(i index, value string) error {
	v := &table[i]
	switch v.Kind {
	case Text, List:
		if i == idSecret || i == idID {
			break // any text, as the rendezvous takes it, and no warning shows it
		}
		for _, r := range value {
			if r < ' ' || r == 0x7f {
				return fmt.Errorf("it has control character %q", r)
			}
		}
	case Integer:
		if value == "" {
			break
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("not a whole number")
		}
		if n < v.Min || n > v.Max {
			return fmt.Errorf("not between %d and %d", v.Min, v.Max)
		}
		o.integers[i] = n
	case Duration:
		d, err := ParseDuration(value)
		if err != nil {
			return err
		}
		if int64(d) < v.Min || int64(d) > v.Max {
			return fmt.Errorf("not between %v and %v", time.Duration(v.Min), time.Duration(v.Max))
		}
		o.integers[i] = int64(d)
	case Boolean:
		switch strings.ToLower(value) {
		case "1", "true", "yes", "on":
			o.integers[i] = 1
		case "0", "false", "no", "off":
			o.integers[i] = 0
		default:
			return fmt.Errorf("neither on nor off")
		}
	case Choice:
		value = strings.ToLower(value)
		if !slices.Contains(v.Choices, value) {
			near := nearest.Of(value, v.Choices)
			if near != "" {
				near = "; did you mean " + near + "?"
			}
			return fmt.Errorf("not one of %s%s", strings.Join(v.Choices, ", "), near)
		}
	}
	o.texts[i] = value
	return nil
}

// ParseDuration reads a duration such as 30s, 500ms or 2m; a bare number means seconds.
func ParseDuration(value string) (time.Duration, error) {
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		if math.IsNaN(s) || math.Abs(s) > 1e9 {
			return 0, fmt.Errorf("not a sensible number of seconds")
		}
		return time.Duration(s * float64(second)), nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("not a duration such as 30s, 500ms or 2m")
	}
	return d, nil
}

// isTransportOption reports whether a name has the form SHUNT_<TRANSPORT>_<NAME>.
func isTransportOption(name string) bool {
	transport, rest, ok := strings.Cut(name[len(Prefix):], "_")
	return ok && transport != "" && rest != "" && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	}) < 0
}

// Transport returns the options of one transport: SHUNT_SHM_CHUNK=64K is
// {"chunk": "64K"} for the transport named shm. The caller owns the map; it is
// never nil.
func (o *Options) Transport(name string) map[string]string {
	prefix := transportPrefix(name)
	options := map[string]string{}
	for variable, value := range o.transports {
		if rest, ok := strings.CutPrefix(variable, prefix); ok && rest != "" {
			options[strings.ToLower(rest)] = value
		}
	}
	return options
}

// Unclaimed warns of variables that look like a transport's options when no
// transport of the given names is loaded. Call it once the transports are known.
func (o *Options) Unclaimed(transports []string) []Warning {
	var warnings []Warning
	for variable := range o.transports {
		claimed := false
		for _, t := range transports {
			claimed = claimed || strings.HasPrefix(variable, transportPrefix(t))
		}
		if !claimed {
			warnings = append(warnings, Warning{Variable: variable, Message: unknown(variable, "")})
		}
	}
	slices.SortFunc(warnings, func(a, b Warning) int { return strings.Compare(a.Variable, b.Variable) })
	return warnings
}

func transportPrefix(name string) string {
	clean := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9'):
			return r
		}
		return '_'
	}
	return Prefix + strings.Map(clean, name) + "_"
}

// clip shortens text from outside for a message.
func clip(s string) string {
	if len(s) > maxName {
		return s[:maxName] + "…"
	}
	return s
}

func quote(s string) string { return strconv.Quote(clip(s)) }

// quoteName leaves ordinary names bare.
func quoteName(name string) string {
	if q := quote(name); q != `"`+name+`"` {
		return q
	}
	return clip(name)
}
