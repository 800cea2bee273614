package option

import (
	"fmt"
	"strings"
	"time"
)

// Markdown returns docs/options.md: the table as a page for users.
func Markdown() string {
	var b strings.Builder
	b.WriteString("<!-- Generated from host/option by internal/gendocs. Do not edit. -->\n\n# Options\n\n")
	b.WriteString("Shunt reads these environment variables when a communicator is made. Options given in code win over them.\n" +
		"Those under Tools are read elsewhere: by the Python package, the examples and Shunt's libnccl.so.2.\n" +
		"An unknown or malformed `SHUNT_*` variable is reported with the nearest known name, and ignored.\n" +
		"Joining fails if `SHUNT_RANK`, `SHUNT_WORLD`, `SHUNT_ID`, `SHUNT_TRANSPORTS`, `SHUNT_ALGO`, `SHUNT_TUNING_FILE` or\n" +
		"`SHUNT_DELAYS` cannot be used. Algorithms that `SHUNT_ALGO` names and that do not exist fail the calls that they are\n" +
		"for.\n" +
		"Variables of the form `SHUNT_<TRANSPORT>_<NAME>` are passed to the transport of that name, which rejects unknown ones;\n" +
		"`nccl` has two: `SHUNT_NCCL_LIBRARY`, the path of NVIDIA's library, and `SHUNT_NCCL_REGISTER` (`on` or `off`, the\n" +
		"default): [the program's memory is registered with NCCL](guide/join.md#nccl). `ucx` has `SHUNT_UCX_LIBRARY`, the path\n" +
		"of [UCX's library](guide/join.md#ucx).\n\n" +
		"A duration has the form `30s`, `500ms` or `2m`; a bare number means seconds. A boolean is `on` or `off`, `true` or\n" +
		"`false`, `yes` or `no`, `1` or `0`.\n" +
		"A list is separated by commas. Set but empty is the same as unset.\n")
	for _, group := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| variable | type | default | meaning |\n|---|---|---|---|\n", group)
		for i := range table {
			v := &table[i]
			if v.Group != group {
				continue
			}
			def := "—"
			if v.Default != "" {
				def = "`" + v.Default + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, v.typeText(), def, v.Doc)
		}
	}
	return b.String()
}

// typeText describes the type with its limits.
func (v *Variable) typeText() string {
	switch v.Kind {
	case Integer:
		return fmt.Sprintf("integer, %d to %d", v.Min, v.Max)
	case Duration:
		return fmt.Sprintf("duration, %s to %s", short(v.Min), short(v.Max))
	case Choice:
		return "one of `" + strings.Join(v.Choices, "`, `") + "`"
	}
	return v.Kind.String()
}

// short returns a duration in nanoseconds without the zero units that
// time.Duration prints.
func short(ns int64) string {
	s := time.Duration(ns).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
