package selector

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/internal/nearest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Bounds of the text of an override.
const (
	maxText    = 64 << 10
	maxClauses = 256
	maxNames   = 32
	maxName    = 2*plugin.MaxName + 1
)

// Override is a parsed SHUNT_ALGO:
//
//	text   = clause { ";" clause }
//	clause = collective [ ":" range ] "=" name { "," name }
//	range  = size | size "-" | "-" size | size "-" size
//
// A collective is a name of the table, or * for all. A range holds sizes of one
// rank's message, both ends included, with the suffixes K, M and G for powers of
// 1024. A name is a transport (shm), one of its algorithms (shm/one_shot), or *
// for whatever is cheapest; several are a list in order of preference. The first
// clause that matches a collective and size decides; when none of its names
// can do the operation, the operation fails. Clauses for send also apply to recv,
// and clauses for signal to wait, and vice versa: they are the two ends of one
// message. Clauses that would give the ends different algorithms are rejected.
//
// The zero value overrides nothing.
type Override struct{ clauses []Clause }

// Clause is one clause of an override.
type Clause struct {
	Collective string // or "*"
	From, To   int64  // bytes, both included
	Names      []string
}

// String returns the override in the grammar that Parse reads.
func (o Override) String() string {
	texts := make([]string, len(o.clauses))
	for i, c := range o.clauses {
		texts[i] = c.String()
	}
	return strings.Join(texts, ";")
}

// Digest is equal for overrides that force alike.
func (o Override) Digest() string { return digest([]byte(o.String())) }

// String returns the clause in the grammar that Parse reads.
func (c Clause) String() string {
	text := c.Collective
	if c.ranged() {
		text += ":" + FormatSize(c.From) + "-"
		if c.To < math.MaxInt64 {
			text += FormatSize(c.To)
		}
	}
	return text + "=" + strings.Join(c.Names, ",")
}

func (c Clause) ranged() bool { return c.From > 0 || c.To < math.MaxInt64 }

func (c Clause) concerns(v plugin.Collective) bool {
	if c.Collective == "*" {
		return true
	}
	of, err := plugin.ParseCollective(c.Collective)
	return err == nil && firstEnd(of) == firstEnd(v)
}

// firstEnd returns the sending end of what has two ends, which must choose alike;
// else the collective itself.
func firstEnd(v plugin.Collective) plugin.Collective {
	switch v {
	case plugin.Recv:
		return plugin.Send
	case plugin.Wait:
		return plugin.Signal
	}
	return v
}

// contradicts reports whether the clauses are for the two ends of a message of the same size, and name different
// algorithms.
func (c Clause) contradicts(d Clause) bool {
	if c.Collective == "*" || d.Collective == "*" || c.Collective == d.Collective {
		return false
	}
	of, err := plugin.ParseCollective(d.Collective)
	return err == nil && c.concerns(of) && c.From <= d.To && d.From <= c.To && !slices.Equal(c.Names, d.Names)
}

// Parse reads a SHUNT_ALGO. Empty clauses are ignored, and so is white space
// around any part. An error is InvalidArgument and names the byte at which the
// text stops making sense and, for an unknown collective, the nearest known one.
func Parse(spec string) (Override, error) {
	var o Override
	if len(spec) > maxText {
		return o, plugin.Errorf(plugin.InvalidArgument, "SHUNT_ALGO has %d bytes, want at most %d", len(spec), maxText)
	}
	at := 0
	for _, part := range strings.Split(spec, ";") {
		if strings.TrimSpace(part) != "" {
			clause, err := parseClause(field{part, at})
			if err != nil {
				return Override{}, err
			}
			for _, other := range o.clauses {
				if other.contradicts(clause) {
					return Override{}, field{part, at}.trim().errorf("clause %q contradicts %q: %s and %s are the two ends of one message and need the same algorithm", clause, other, other.Collective, clause.Collective)
				}
			}
			if o.clauses = append(o.clauses, clause); len(o.clauses) > maxClauses {
				return Override{}, plugin.Errorf(plugin.InvalidArgument, "SHUNT_ALGO has more than %d clauses", maxClauses)
			}
		}
		at += len(part) + 1
	}
	return o, nil
}

// field is a piece of the text and where it begins.
type field struct {
	text string
	at   int
}

// trim drops white space around the piece.
func (f field) trim() field {
	left := strings.TrimLeft(f.text, " \t")
	return field{strings.TrimRight(left, " \t"), f.at + len(f.text) - len(left)}
}

// cut splits the piece at the first separator.
func (f field) cut(separator string) (before, after field, found bool) {
	i := strings.Index(f.text, separator)
	if i < 0 {
		return f.trim(), field{"", f.at + len(f.text)}, false
	}
	return field{f.text[:i], f.at}.trim(), field{f.text[i+len(separator):], f.at + i + len(separator)}.trim(), true
}

// errorf returns an error at the place of the piece.
func (f field) errorf(format string, args ...any) error {
	return plugin.Errorf(plugin.InvalidArgument, "SHUNT_ALGO, byte %d: %s", f.at, fmt.Sprintf(format, args...))
}

func parseClause(f field) (Clause, error) {
	c := Clause{To: math.MaxInt64}
	left, right, found := f.trim().cut("=")
	if !found {
		return c, left.errorf("clause %.80q has no =", left.text)
	}
	collective, sizes, ranged := left.cut(":")
	if err := checkCollective(collective); err != nil {
		return c, err
	}
	c.Collective = collective.text
	if ranged {
		if err := parseRange(sizes, &c); err != nil {
			return c, err
		}
	}
	for more := true; more; {
		var name field
		name, right, more = right.cut(",")
		if !validName(name.text) {
			return c, name.errorf("%.80q is not the name of a transport (shm), of an algorithm (shm/one_shot), or *", name.text)
		}
		if c.Names = append(c.Names, name.text); len(c.Names) > maxNames {
			return c, name.errorf("more than %d names in one clause", maxNames)
		}
	}
	return c, nil
}

func checkCollective(f field) error {
	if f.text == "*" {
		return nil
	}
	if _, err := plugin.ParseCollective(f.text); err == nil {
		return nil
	}
	var known []string
	for _, v := range plugin.Collectives() {
		known = append(known, v.String())
	}
	if near := nearest.Of(f.text, known); near != "" {
		return f.errorf("unknown collective %.80q; did you mean %s?", f.text, near)
	}
	return f.errorf("unknown collective %.80q; there are *, %s", f.text, strings.Join(known, ", "))
}

func parseRange(f field, c *Clause) error {
	low, high, found := f.cut("-")
	if low.text == "" && high.text == "" {
		return f.errorf("empty size range")
	}
	var err error
	if low.text != "" {
		if c.From, err = ParseSize(low.text); err != nil {
			return low.errorf("%v", err)
		}
	}
	switch {
	case !found:
		c.To = c.From
	case high.text != "":
		if c.To, err = ParseSize(high.text); err != nil {
			return high.errorf("%v", err)
		}
	}
	if c.To < c.From {
		return f.errorf("size range %.80q ends before it begins", f.text)
	}
	return nil
}

func validName(name string) bool {
	if name == "*" {
		return true
	}
	return name != "" && len(name) <= maxName && name[0] != '/' && name[len(name)-1] != '/' &&
		!strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(plugin.AlgorithmLetters, r) })
}

// ParseSize reads a number of bytes with an optional suffix K, M or G (powers
// of 1024), in either case and optionally followed by B or iB.
func ParseSize(text string) (int64, error) {
	bad := func() (int64, error) {
		return 0, plugin.Errorf(plugin.InvalidArgument, "%.40q is not a size such as 512, 64K or 4M", text)
	}
	digits := strings.TrimRight(text, "kKmMgGiIbB")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || digits[0] == '+' || digits[0] == '-' {
		return bad()
	}
	shift := 0
	switch strings.ToLower(text[len(digits):]) {
	case "", "b":
	case "k", "kb", "kib":
		shift = 10
	case "m", "mb", "mib":
		shift = 20
	case "g", "gb", "gib":
		shift = 30
	default:
		return bad()
	}
	if n > math.MaxInt64>>shift {
		return bad()
	}
	return n << shift, nil
}

// FormatSize returns a number of bytes as ParseSize reads it, as short as it can be
// without loss.
func FormatSize(bytes int64) string {
	switch {
	case bytes == 0:
	case bytes&(1<<30-1) == 0:
		return strconv.FormatInt(bytes>>30, 10) + "G"
	case bytes&(1<<20-1) == 0:
		return strconv.FormatInt(bytes>>20, 10) + "M"
	case bytes&(1<<10-1) == 0:
		return strconv.FormatInt(bytes>>10, 10) + "K"
	}
	return strconv.FormatInt(bytes, 10)
}
