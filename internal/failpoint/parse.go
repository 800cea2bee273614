package failpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/internal/nearest"
	"github.com/shunt-ccl/shunt/plugin"
)

// The text of SHUNT_FAILPOINTS:
//
//	text   = clause { ";" clause }
//	clause = name [ "[" rank "]" ] "=" action [ "(" argument ")" ] [ "@" n [ "+" ] ]
//
// With a rank, the clause holds only in the process whose SHUNT_RANK is that
// rank. @n is the hit that acts, counted from 1; @n+ that one and all later
// ones; without it every hit acts. Actions:
//
//	error(CODE)    an error of that code of the error table; internal by default
//	panic          a Go panic
//	exit           SIGKILL to the own process; exit(N) leaves with status N
//	stop           SIGSTOP to the own process
//	delay(TIME)    sleep
//	corrupt(N)     change N bytes, 1 by default

// Bounds of the text.
const (
	maxText    = 64 << 10
	maxClauses = 256
	maxDelay   = time.Hour
	maxCorrupt = 1 << 30
)

type action uint8

const (
	actError action = iota
	actPanic
	actExit
	actStop
	actDelay
	actCorrupt
)

var actionNames = []string{"error", "panic", "exit", "stop", "delay", "corrupt"}

// clause is one parsed clause.
type clause struct {
	name    string
	rank    int // -1: every rank
	action  action
	code    plugin.Code
	number  int64 // exit: status or -1; delay: nanoseconds; corrupt: bytes
	from    int64 // first hit that acts
	onwards bool  // later hits act too
}

// String is the clause in the grammar above.
func (c clause) String() string {
	var b strings.Builder
	b.WriteString(c.name)
	if c.rank >= 0 {
		fmt.Fprintf(&b, "[%d]", c.rank)
	}
	b.WriteString("=" + actionNames[c.action])
	switch {
	case c.action == actError:
		fmt.Fprintf(&b, "(%s)", c.code)
	case c.action == actExit && c.number >= 0, c.action == actCorrupt:
		fmt.Fprintf(&b, "(%d)", c.number)
	case c.action == actDelay:
		fmt.Fprintf(&b, "(%s)", time.Duration(c.number))
	}
	if c.from > 1 || !c.onwards {
		fmt.Fprintf(&b, "@%d", c.from)
		if c.onwards {
			b.WriteString("+")
		}
	}
	return b.String()
}

func validName(name string) bool {
	return name != "" && len(name) <= plugin.MaxName && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '_'
	}) < 0
}

// parse reads a whole text. Empty clauses are ignored.
func parse(text string) ([]clause, error) {
	if len(text) > maxText {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%s: %d bytes, at most %d", Variable, len(text), maxText)
	}
	var clauses []clause
	at := 0
	for _, part := range strings.Split(text, ";") {
		if strings.TrimSpace(part) != "" {
			c, err := parseClause(strings.TrimSpace(part))
			if err != nil {
				return nil, plugin.Errorf(plugin.InvalidArgument, "%s: clause %.80q at byte %d: %w", Variable, part, at, err)
			}
			if clauses = append(clauses, c); len(clauses) > maxClauses {
				return nil, plugin.Errorf(plugin.InvalidArgument, "%s: more than %d clauses", Variable, maxClauses)
			}
		}
		at += len(part) + 1
	}
	return clauses, nil
}

func parseClause(text string) (clause, error) {
	c := clause{rank: -1, from: 1, onwards: true, code: plugin.Internal, number: -1}
	left, right, ok := strings.Cut(text, "=")
	if !ok {
		return c, fmt.Errorf("no = between the name and the action")
	}
	if name, rest, ok := strings.Cut(left, "["); ok {
		digits, ok := strings.CutSuffix(rest, "]")
		rank, err := strconv.ParseUint(digits, 10, 31)
		if !ok || err != nil || rank >= plugin.MaxWorld {
			return c, fmt.Errorf("rank %.80q is not a number from 0 to %d in brackets", rest, plugin.MaxWorld-1)
		}
		left, c.rank = name, int(rank)
	}
	if c.name = left; !validName(left) {
		return c, fmt.Errorf("name %.80q is not made of a-z, 0-9, dot and underscore", left)
	}
	if before, after, ok := strings.Cut(right, "@"); ok {
		digits, onwards := strings.CutSuffix(after, "+")
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 {
			return c, fmt.Errorf("@%.80s is not the number of a hit, from 1", after)
		}
		right, c.from, c.onwards = before, n, onwards
	}
	verb, argument := right, ""
	if before, after, ok := strings.Cut(right, "("); ok {
		if argument, ok = strings.CutSuffix(after, ")"); !ok {
			return c, fmt.Errorf("no closing parenthesis")
		}
		verb = before
	}
	return c, c.parseAction(verb, argument)
}

func (c *clause) parseAction(verb, argument string) error {
	found := false
	for i, name := range actionNames {
		if name == verb {
			c.action, found = action(i), true
		}
	}
	if !found {
		if near := nearest.Of(verb, actionNames); near != "" {
			return fmt.Errorf("unknown action %.80q; did you mean %s?", verb, near)
		}
		return fmt.Errorf("unknown action %.80q; there are %s", verb, strings.Join(actionNames, ", "))
	}
	switch c.action {
	case actError:
		if argument == "" {
			return nil
		}
		var known []string
		for _, code := range plugin.Codes() {
			if code == plugin.OK {
				continue
			}
			if code.String() == argument {
				c.code = code
				return nil
			}
			known = append(known, code.String())
		}
		if near := nearest.Of(argument, known); near != "" {
			return fmt.Errorf("unknown error code %.80q; did you mean %s?", argument, near)
		}
		return fmt.Errorf("unknown error code %.80q", argument)
	case actDelay:
		d, err := time.ParseDuration(argument)
		if err != nil || d < 0 || d > maxDelay {
			return fmt.Errorf("delay(%.80s) needs a time from 0 to %v", argument, maxDelay)
		}
		c.number = int64(d)
	case actExit, actCorrupt:
		limit := int64(255)
		if c.action == actCorrupt {
			limit, c.number = maxCorrupt, 1
		}
		if argument == "" {
			return nil
		}
		n, err := strconv.ParseInt(argument, 10, 64)
		if err != nil || n < 0 || n > limit || (c.action == actCorrupt && n == 0) {
			return fmt.Errorf("%s(%.80s): not a number up to %d", verb, argument, limit)
		}
		c.number = n
	default:
		if argument != "" {
			return fmt.Errorf("%s takes no argument", verb)
		}
	}
	return nil
}
