package emulate

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	sharedVariable = regexp.MustCompile(`__shared__ (\w+) (\w+);`)
	literal        = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"|\w+`)
	operand        = regexp.MustCompile(`"[^"]*"\s*\(`)
	registers      = regexp.MustCompile(`\{ \.reg [^;]*;|\}`)
	notName        = regexp.MustCompile(`[^A-Za-z0-9]+`)
	number         = regexp.MustCompile(`^-?\d+$`)
)

// stringMacros are the macros that the kernels put between the literals of an
// instruction.
var stringMacros = map[string]string{"SHUNT_LINE_STORE": ".volatile"}

// Translate turns CUDA C++ into C++ for machine/cuda.h: inline assembly becomes
// calls of emulate::ptx functions that are named after the instruction, shared
// variables become references to the block's storage, and constants (#define
// NAME n, or constexpr of that name at the start of a line) get the values
// given. An instruction that the machine does not have fails to compile, by
// its name.
func Translate(source string, constants map[string]int) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(source, "asm volatile(")
		out.WriteString(before)
		if !found {
			break
		}
		body, after, err := parenthesized(rest)
		if err != nil {
			return "", err
		}
		call, err := instruction(body)
		if err != nil {
			return "", fmt.Errorf("asm volatile(%s): %w", body, err)
		}
		out.WriteString(call)
		source = after
	}
	text := sharedVariable.ReplaceAllString(out.String(),
		`static const char ${2}_place = 0; $1 &$2 = *static_cast<$1 *>(::emulate::shared(&${2}_place, sizeof($1), alignof($1)));`)
	for name, value := range constants {
		text = regexp.MustCompile(`(?m)^(#define `+name+`) \S+`).ReplaceAllString(text, fmt.Sprintf("$1 %d", value))
		text = regexp.MustCompile(`(?m)^(constexpr \w+ `+name+` =) [^;]*;`).ReplaceAllString(text,
			fmt.Sprintf("$1 %d;", value))
	}
	return text, nil
}

// parenthesized splits behind the parenthesis that closes the one before s.
func parenthesized(s string) (inside, after string, err error) {
	depth, quoted := 1, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				return s[:i], s[i+1:], nil
			}
		}
	}
	return "", "", fmt.Errorf("no closing parenthesis in %.80q", s)
}

// instruction returns the call that stands for the inside of an asm statement.
func instruction(body string) (string, error) {
	sections := split(body, ':')
	var text strings.Builder
	for _, m := range literal.FindAllStringSubmatch(sections[0], -1) {
		if m[0][0] == '"' {
			text.WriteString(m[1])
		} else if value, ok := stringMacros[m[0]]; ok {
			text.WriteString(value)
		} else {
			return "", fmt.Errorf("unknown macro %s", m[0])
		}
	}
	code := strings.Trim(registers.ReplaceAllString(text.String(), ""), " ;\n\t")
	if strings.Contains(code, ";") {
		return "", fmt.Errorf("more than one instruction")
	}
	name, operands, _ := strings.Cut(code, " ")
	var arguments []string
	for _, section := range sections[1:min(len(sections), 3)] {
		for {
			at := operand.FindStringIndex(section)
			if at == nil {
				break
			}
			inside, after, err := parenthesized(section[at[1]:])
			if err != nil {
				return "", err
			}
			arguments = append(arguments, inside)
			section = after
		}
	}
	for _, o := range strings.Split(operands, ",") {
		if o = strings.TrimSpace(o); number.MatchString(o) {
			arguments = append(arguments, o)
		} else if special, ok := strings.CutPrefix(o, "%"); ok && !number.MatchString(special) {
			name += "_" + special
		}
	}
	return "::emulate::ptx::" + notName.ReplaceAllString(name, "_") + "(" + strings.Join(arguments, ", ") + ")", nil
}

// split cuts at a separator outside of parentheses and quotes.
func split(s string, separator byte) []string {
	var parts []string
	depth, quoted, start := 0, false, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == separator && depth == 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}
