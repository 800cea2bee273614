package texts

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parts of the help of a command.
const (
	Summary     = "summary"     // Short of a command: a line in the list of commands
	Description = "description" // Long of a command
	Flag        = "flag"        // usage of a flag
)

// flagMethods are the methods that add a flag; the last argument is its usage.
var flagMethods = regexp.MustCompile(`^(Bool|Int|Uint64|Float64|Duration|String|IntSlice|StringSlice|StringArray|)VarP?$`)

// helpIn returns the text that a field of a command or a call that adds a flag has, and which part of the help it is.
func helpIn(n ast.Node) (e ast.Expr, part string) {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok {
			part = map[string]string{"Short": Summary, "Long": Description}[key.Name]
		}
		e = n.Value
	case *ast.CallExpr:
		if method, ok := n.Fun.(*ast.SelectorExpr); ok && len(n.Args) > 2 && flagMethods.MatchString(method.Sel.Name) {
			e, part = n.Args[len(n.Args)-1], Flag
		}
	}
	if call, ok := e.(*ast.CallExpr); ok && nameOf(call.Fun) == "fmt.Sprintf" {
		e = call.Args[0]
	}
	return e, part
}

// widest is the longest line of a description: terminals have 80 columns as a rule, and some are a little wider.
const widest = 88

// offendsHelp returns the fault of a text of the help; "" if it has none.
func (text Text) offendsHelp() string {
	first, _ := utf8.DecodeRuneInString(text.Format)
	switch {
	case text.Whole && strings.TrimSpace(text.Format) != text.Format || text.Format == "":
		return "is empty, or begins or ends with a space"
	case text.Part != Description && (strings.HasSuffix(text.Format, ".") || strings.Contains(text.Format, "\n")):
		return "is one line without a period at its end"
	case text.Part == Flag && unicode.IsUpper(first) && !regexp.MustCompile(`^[A-Z]{2}`).MatchString(text.Format):
		return "begins with a capital letter"
	case text.Part == Flag && dangling.MatchString(text.Format):
		return "begins with a word that has nothing to refer to: say what the flag sets or does"
	case text.Part != Flag && !unicode.IsUpper(first):
		return "begins with a small letter"
	case text.Part != Flag && thirdPerson.MatchString(text.Format):
		return "says what the command does in the third person; want the imperative"
	}
	if text.Part == Description {
		for paragraph := range strings.SplitSeq(text.Format, "\n\n") {
			if !strings.HasSuffix(paragraph, ".") {
				return fmt.Sprintf("has the paragraph %.40q without a period at its end", paragraph)
			}
		}
		for line := range strings.Lines(text.Format) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > widest {
				return fmt.Sprintf("has a line of %d characters, want at most %d: %.40q", n, widest, line)
			}
		}
	}
	return ""
}

var (
	dangling    = regexp.MustCompile(`^(of|as|from|with what|what is|changes what)\b|\bso (many|long|often)\b`)
	thirdPerson = regexp.MustCompile(`^[A-Z][a-z]+[^s]s \w`)
)
