package texts

import (
	"os"
	"regexp"
	"strings"
)

// cConstructors are the functions that make an error in C and C++, and at which argument its text begins. Macros of
// torch's kind join what follows.
var cConstructors = map[string]int{
	"shunt_fail": 1, "nc_fail": 2, "nc_log": 1, "PyErr_Format": 1, "PyErr_SetString": 1, "SHUNT_TORCH_CHECK": 2,
	"TORCH_CHECK": 1, "TORCH_CHECK_VALUE": 1, "TORCH_CHECK_TYPE": 1, "TORCH_WARN": 0, "runtime_error": 0,
}

var (
	cCall    = regexp.MustCompile(`\b(\w+)\(`)
	cLiteral = regexp.MustCompile(`^"((?:[^"\\]|\\.)*)"\s*`)
	cWord    = regexp.MustCompile(`^[A-Za-z_]\w*\s*`)
)

// cTexts returns the texts of a file's calls of constructors.
func cTexts(path string) ([]Text, error) {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	source := string(bytes)
	var found []Text
	for _, at := range cCall.FindAllStringSubmatchIndex(source, -1) {
		first, known := cConstructors[source[at[2]:at[3]]]
		args := arguments(source[at[1]:])
		if !known || len(args) <= first {
			continue
		}
		if !strings.Contains(source[at[2]:at[3]], "TORCH_") {
			args = args[:first+1]
		}
		var text strings.Builder
		literals := false
		for _, arg := range args[first:] {
			part, ok := cText(arg)
			literals = literals || ok
			if !ok {
				part = "%v"
			}
			text.WriteString(part)
		}
		if literals {
			found = append(found, Text{Line: 1 + strings.Count(source[:at[0]], "\n"), Format: text.String(), Whole: true})
		}
	}
	return found, nil
}

// cText returns the literals of an expression that is made of literals and macros of literals alone.
func cText(arg string) (string, bool) {
	var text strings.Builder
	literals := false
	for arg = strings.TrimSpace(arg); arg != ""; {
		if m := cLiteral.FindStringSubmatch(arg); m != nil {
			text.WriteString(m[1])
			literals = true
			arg = arg[len(m[0]):]
		} else if m := cWord.FindString(strings.TrimLeft(arg, "# ")); m != "" {
			text.WriteString("%v")
			arg = strings.TrimLeft(arg, "# ")[len(m):]
		} else {
			return "", false
		}
	}
	return text.String(), literals
}

// arguments splits what stands behind an opening parenthesis at its commas, up to the one that closes it.
func arguments(source string) (list []string) {
	depth, begin := 0, 0
	for i := 0; i < len(source); i++ {
		switch source[i] {
		case '"', '\'':
			for quote := source[i]; i+1 < len(source) && source[i+1] != quote; i++ {
				if source[i+1] == '\\' {
					i++
				}
			}
			i++
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth < 0 {
				return append(list, source[begin:i])
			}
		case ',':
			if depth == 0 {
				list = append(list, source[begin:i])
				begin = i + 1
			}
		}
	}
	return nil
}
