// Package printable cleans text of other processes and of files for a terminal.
package printable

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/shunt-ccl/shunt/plugin"
)

// Line returns text without control characters and in one line.
func Line(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)), " ")
}

// Copy copies a value into another of its type as JSON, with every text in it as Line returns it.
func Copy(to, from any) error {
	text, err := json.Marshal(from)
	var value any
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		err = d.Decode(&value)
	}
	if err == nil {
		text, err = json.Marshal(clean(value))
	}
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return plugin.Errorf(plugin.Internal, "%w", err)
	}
	return nil
}

func clean(value any) any {
	switch v := value.(type) {
	case string:
		return Line(v)
	case []any:
		for i := range v {
			v[i] = clean(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = clean(v[name])
		}
	}
	return value
}
