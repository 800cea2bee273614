package badinput

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/shunt-ccl/shunt/plugin"
)

//go:embed table.json
var tableJSON []byte

// Table is the content of table.json.
type Table struct {
	Calls      []Entry    `json:"calls"`
	Mismatches []Mismatch `json:"mismatches"`
}

// Entry is one bad call and its reply.
type Entry struct {
	Name    string `json:"name"`
	Call    Call   `json:"call"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Mismatch is two calls, one for each rank, that contradict each other, in the first
// call of its kind or later.
type Mismatch struct {
	Name     string   `json:"name"`
	Calls    []Call   `json:"calls"`
	Messages []string `json:"messages"` // all are part of every rank's error
}

// Call is one operation. See the package comment for the words.
type Call struct {
	Collective value   `json:"collective"`
	DType      value   `json:"dtype"`
	Op         value   `json:"op"`
	Count      int64   `json:"count"`
	Root       value   `json:"root"`
	Send       string  `json:"send"`
	Recv       string  `json:"recv"`
	SendCounts []int64 `json:"send_counts"`
	SendDispls []int64 `json:"send_displs"`
	RecvCounts []int64 `json:"recv_counts"`
	RecvDispls []int64 `json:"recv_displs"`
}

// value is a name or a number.
type value string

// UnmarshalJSON takes a string or an integer; absent is "".
func (v *value) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*v = value(text)
		return nil
	}
	var number int64
	if err := json.Unmarshal(b, &number); err != nil {
		return fmt.Errorf("neither a name nor an integer: %s", b)
	}
	*v = value(strconv.FormatInt(number, 10))
	return nil
}

// enum returns the number of a table's name, or the number itself.
func enum[T ~uint32](v value, parse func(string) (T, error)) (T, error) {
	if v == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(string(v), 10, 32); err == nil {
		return T(n), nil
	}
	return parse(string(v))
}

// Load reads the embedded table.
func Load() (*Table, error) {
	var t Table
	if err := json.Unmarshal(tableJSON, &t); err != nil {
		return nil, err
	}
	for _, e := range t.Calls {
		if _, ok := codeOf(e.Code); !ok {
			return nil, fmt.Errorf("%s: unknown code %q", e.Name, e.Code)
		}
	}
	return &t, nil
}

func codeOf(name string) (plugin.Code, bool) {
	for _, c := range plugin.Codes() {
		if c.String() == name {
			return c, true
		}
	}
	return 0, false
}
