package snippets

import (
	"fmt"
	"strings"
)

// Snippet is one program of a document.
type Snippet struct {
	Name     string // behind "snippet:"
	Language string // of the fence
	Line     int    // of the fence, from 1
	Text     string
}

// Extract returns the marked programs of a Markdown document. A marker without
// a fence behind it, a fence that does not end, and a name that is used twice
// are errors.
func Extract(document string) ([]Snippet, error) {
	var found []Snippet
	names := map[string]bool{}
	lines := strings.Split(document, "\n")
	for i := 0; i < len(lines); i++ {
		name, ok := marker(lines[i])
		if !ok {
			continue
		}
		if name == "" || names[name] {
			return nil, fmt.Errorf("line %d: snippet %q has no name or the name of another", i+1, name)
		}
		names[name] = true
		i++
		if i >= len(lines) || !strings.HasPrefix(lines[i], "```") {
			return nil, fmt.Errorf("line %d: no fenced block behind the marker of snippet %s", i+1, name)
		}
		s := Snippet{Name: name, Language: strings.TrimPrefix(lines[i], "```"), Line: i + 1}
		var text strings.Builder
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			text.WriteString(lines[i] + "\n")
		}
		if i >= len(lines) {
			return nil, fmt.Errorf("line %d: the block of snippet %s does not end", s.Line, name)
		}
		s.Text = text.String()
		found = append(found, s)
	}
	return found, nil
}

func marker(line string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "<!-- snippet:")
	if !ok {
		return "", false
	}
	rest, ok = strings.CutSuffix(rest, "-->")
	return strings.TrimSpace(rest), ok
}
